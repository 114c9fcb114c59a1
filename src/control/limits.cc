// SPDX-License-Identifier: Apache-2.0
// See limits.h.
#include "control/limits.h"

#include <algorithm>
#include <cctype>

#include "base/environment.h"
#include "base/text.h"

namespace openmps::control {
namespace {

constexpr std::string_view kUuidStart = "GPU-";

// "0=1G,GPU-1=512M".
void read_by_device(std::string_view text, const wire::LimitInfo& info, Limits* limits) {
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    if (const auto value = info.parse(entry.substr(equals + 1))) {
      (*limits)[{info.limit, std::string(entry.substr(0, equals))}] = *value;
    }
  }
}

}  // namespace

Limits overlay(Limits below, const Limits& above) {
  for (const auto& [key, value] : above) below[key] = value;
  return below;
}

Limits limits_of_environment() {
  Limits limits;
  for (const wire::LimitInfo& info : wire::limit_table()) {
    if (info.variable == nullptr) continue;
    const std::string text = environment_or(info.variable, "");
    if (info.is_per_device) {
      read_by_device(text, info, &limits);
    } else if (const auto value = info.parse(text)) {
      limits[{info.limit}] = *value;
    }
  }
  return limits;
}

std::string manual_of_limits(bool of_groups) {
  const auto sentence = [](std::string_view text) {
    std::string made;
    for (const char c : text) made += c == '"' ? "\\(dq" : std::string(1, c);
    made[0] = static_cast<char>(toupper(made[0]));
    return made;
  };
  std::string text;
  for (const wire::LimitInfo& info : wire::limit_table()) {
    if (info.is_of_groups != of_groups) continue;
    text += ".TP\n.B " + std::string(info.name) + "\n";
    if (info.is_per_device) {
      text += sentence(info.expected_table) + ", with the ordinal or UUID of each device.\n";
    }
    text += sentence(info.expected) + ".\n";
  }
  return text;
}

bool names_a_device(std::string_view text) {
  if (!text.starts_with(kUuidStart)) {
    return parse_unsigned(text, wire::kMaxDevices - 1).has_value();
  }
  return text.find_first_not_of("0123456789abcdef-", kUuidStart.size()) == std::string_view::npos;
}

}  // namespace openmps::control
