// SPDX-License-Identifier: Apache-2.0
// See actions.h.
#include "exporter/actions.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "base/text.h"

namespace openmps::exporter {
namespace {

using nlohmann::json;

// PIDs and IDs of the daemon have 32 bits; 0 is none.
std::optional<uint32_t> number_of(const json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto value = found->get<uint64_t>();
  if (value == 0 || value > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(value);
}

Status wrong(const std::string& what) { return Status(CUDA_ERROR_INVALID_VALUE, what); }

}  // namespace

Result<std::string> command_of(const json& request) {
  if (!request.is_object()) return wrong("a JSON object is expected");
  const auto server = number_of(request, "server");
  const auto client = number_of(request, "client");
  if (!server || !client) return wrong("server and client are a PID and an ID above 0");
  const auto found = request.find("action");
  const std::string action =
      found != request.end() && found->is_string() ? found->get<std::string>() : "";
  const std::string name = format_text("id:%u@%u", *client, *server);
  if (action == "terminate") return format_text("terminate_client %u id:%u", *server, *client);
  if (action == "suspend" || action == "resume") return action + " " + name;
  const auto value = request.find("value");
  const bool has_value = value != request.end() && value->is_number();
  if (action == "percentage") {
    const double percentage = has_value ? value->get<double>() : 0;
    if (!(percentage > 0 && percentage <= 100)) return wrong("a percentage is above 0, up to 100");
    return "set_client_active_thread_percentage " + name + format_text(" %.4g", percentage);
  }
  if (action == "priority") {
    const double priority = has_value ? value->get<double>() : -1;
    if (priority != 0 && priority != 1) {
      return wrong("a priority is 0 (normal) or 1 (below normal)");
    }
    return "set_client_priority " + name + format_text(" %.0f", priority);
  }
  return wrong("the action is none of terminate, suspend, resume, percentage, priority");
}

bool has_succeeded(const std::string& command, int exit_status, const std::string& text) {
  if (!command.starts_with("terminate_client ")) return exit_status == 0;
  return exit_status == 0 && (text == "0\n" || text.ends_with("\n0\n"));
}

}  // namespace openmps::exporter
