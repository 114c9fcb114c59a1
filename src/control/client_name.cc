// SPDX-License-Identifier: Apache-2.0
// See client_name.h.
#include "control/client_name.h"

#include "base/text.h"

namespace openmps::control {
namespace {

constexpr std::string_view kByIdStart = "id:";

}  // namespace

std::optional<ClientName> parse_client_name(std::string_view text) {
  ClientName name;
  const bool is_by_id = text.starts_with(kByIdStart);
  if (is_by_id) text.remove_prefix(kByIdStart.size());
  const size_t at = text.find('@');
  if (is_by_id && at != std::string_view::npos) {
    name.server = text.substr(at + 1);
    text = text.substr(0, at);
    if (name.server.empty()) return std::nullopt;
  }
  const auto number = parse_unsigned(text, UINT32_MAX);
  if (!number || *number == 0) return std::nullopt;
  (is_by_id ? name.id : name.pid) = static_cast<uint32_t>(*number);
  return name;
}

std::string client_name(uint32_t pid, uint32_t id) {
  return pid != 0 ? std::to_string(pid) : std::string(kByIdStart) + std::to_string(id);
}

bool is_hidden_pid(std::string_view text) {
  return parse_unsigned(text, UINT32_MAX) == uint64_t{0};
}

}  // namespace openmps::control
