// SPDX-License-Identifier: Apache-2.0
// The JSON forms of command output; the only file that includes nlohmann-json.
#include <nlohmann/json.hpp>

#include "control/format.h"
#include "wire/command_info.h"

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

std::string format_inspected_json(const Inspected& inspected) {
  const wire::SessionReport& r = inspected.report;
  auto waits = nlohmann::ordered_json::array();
  for (const wire::WaitRow& wait : inspected.waits) {
    switch (wait.kind) {
      case wire::WaitKind::kQueued:
        waits.push_back({{"kind", "queued"},
                         {"command", wire::name_of(static_cast<wire::Opcode>(wait.number))},
                         {"count", wait.have}});
        break;
      case wire::WaitKind::kReply:
        waits.push_back({{"kind", "reply"}, {"slot", wait.number}});
        break;
      case wire::WaitKind::kFence:
        waits.push_back({{"kind", "fence"},
                         {"stream", wait.stream},
                         {"slot", wait.number},
                         {"reached", wait.have},
                         {"promised", wait.want}});
        break;
      case wire::WaitKind::kHostFunction:
        waits.push_back({{"kind", "host function"}, {"slot", wait.number}});
        break;
    }
  }
  const char* const held[] = {"", "quiet moment", "held back"};
  const auto wait = static_cast<size_t>(r.wait);
  return text_of({{"pid", r.pid},
                  {"id", r.id},
                  {"ending", r.ending != 0},
                  {"status", r.status},
                  {"async_error", r.async_error},
                  {"ring_bytes", r.ring_bytes},
                  {"executed", r.executed},
                  {"executing", wire::name_of(static_cast<wire::Opcode>(r.opcode))},
                  {"executor_sleeps", r.sleeping != 0},
                  {"executor_waits_for", wait < std::size(held) ? held[wait] : ""},
                  {"executor_waits_ns", r.wait_ns},
                  {"answered_later", r.later},
                  {"sleeping_threads", r.waiters},
                  {"waits", waits},
                  {"more_waits", r.more_waits}});
}

std::string format_server_list_json(const std::vector<ServerLine>& servers) {
  auto list = nlohmann::ordered_json::array();
  for (const ServerLine& server : servers) {
    list.push_back({{"pid", server.pid}, {"uid", server.uid}, {"state", server.state}});
  }
  return text_of(list);
}

}  // namespace openmps::control
