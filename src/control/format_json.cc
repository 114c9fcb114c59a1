// SPDX-License-Identifier: Apache-2.0
// The JSON forms of command output; the only file that includes nlohmann-json.
#include <nlohmann/json.hpp>

#include "control/format.h"

namespace openmps::control {
namespace {

// A peer's command line need not be UTF-8: what is not is replaced.
std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string format_ps_json(const std::vector<ClientLine>& clients) {
  auto list = nlohmann::ordered_json::array();
  for (const ClientLine& client : clients) {
    list.push_back({{"pid", client.pid},
                    {"id", client.id},
                    {"server", client.server},
                    {"device", client.device_uuid},
                    {"namespace", client.namespace_inode},
                    {"command", client.command},
                    {"ending", client.ending}});
  }
  return text_of(list);
}

std::string format_server_list_json(const std::vector<ServerLine>& servers) {
  auto list = nlohmann::ordered_json::array();
  for (const ServerLine& server : servers) {
    list.push_back({{"pid", server.pid}, {"uid", server.uid}, {"state", server.state}});
  }
  return text_of(list);
}

}  // namespace openmps::control
