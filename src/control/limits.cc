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

// "0=1G,GPU-1=512M", of values that `parse` reads. Calls `wrong` for what is malformed.
template <typename Parse, typename Wrong>
void read_by_device(std::string_view text, wire::Limit limit, Limits* limits, const Parse& parse,
                    const Wrong& wrong) {
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    const bool has_device = equals != std::string_view::npos && equals != 0;
    const auto value = has_device ? parse(entry.substr(equals + 1)) : std::nullopt;
    if (!value) {
      wrong(entry);
      continue;
    }
    (*limits)[{limit, std::string(entry.substr(0, equals))}] = *value;
  }
}

// "4G", "512M" or "1024K". A number without a unit would be bytes, which nobody means.
std::optional<wire::LimitValue> parse_size(std::string_view text) {
  const bool has_unit =
      !text.empty() && std::string_view("KMG").find(text.back()) != std::string_view::npos;
  const auto bytes = has_unit ? parse_bytes(text) : std::nullopt;
  return bytes ? std::optional(static_cast<wire::LimitValue>(*bytes)) : std::nullopt;
}

bool is_memory(wire::Limit limit) { return wire::info_of(limit).notation == wire::Notation::kSize; }

std::string of_device(const std::string& device) {
  return device == kEveryDevice ? "each device" : "device " + device;
}

}  // namespace

Limits overlay(Limits below, const Limits& above) {
  for (const auto& [key, value] : above) below[key] = value;
  return below;
}

Limits changed(Limits before, const LimitChanges& changes) {
  const auto names = [&changes](wire::Limit limit) {
    return std::ranges::any_of(changes,
                               [limit](const auto& entry) { return entry.first.limit == limit; });
  };
  std::erase_if(before, [&](const auto& entry) {
    const wire::Limit limit = entry.first.limit;
    return is_memory(limit) ? names(limit)
                            : limit == wire::Limit::kSmCount && names(wire::Limit::kPercentage);
  });
  for (const auto& [key, value] : changes) {
    if (value) {
      before[key] = *value;
    } else {
      before.erase(key);
    }
  }
  return before;
}

Limits limits_of_environment() {
  Limits limits;
  for (const wire::LimitInfo& info : wire::limit_table()) {
    if (info.variable == nullptr) continue;
    const std::string text = environment_or(info.variable, "");
    if (info.is_per_device) {
      read_by_device(text, info.limit, &limits, info.parse, [](std::string_view) {});
    } else if (const auto value = info.parse(text)) {
      limits[{info.limit}] = *value;
    }
  }
  return limits;
}

bool read_memory_limits(std::string_view text, wire::Limit limit, Limits* limits) {
  Limits read;
  bool is_right = !text.empty();
  if (const auto value = parse_size(text)) {
    read[{limit, kEveryDevice}] = *value;
  } else {
    read_by_device(text, limit, &read, parse_size,
                   [&is_right](std::string_view) { is_right = false; });
  }
  for (const auto& [key, value] : read) {
    is_right = is_right && (key.device == kEveryDevice || names_a_device(key.device));
  }
  if (!is_right) return false;
  std::erase_if(*limits, [limit](const auto& entry) { return entry.first.limit == limit; });
  limits->merge(read);
  return true;
}

bool read_sm_counts(std::string_view text, Limits* limits) {
  const wire::LimitInfo& info = wire::info_of(wire::Limit::kSmCount);
  Limits read;
  bool is_right = !text.empty();
  if (const auto value = info.parse(text)) {
    read[{info.limit, kEveryDevice}] = *value;
  } else {
    read_by_device(text, info.limit, &read, info.parse,
                   [&is_right](std::string_view) { is_right = false; });
  }
  for (const auto& [key, value] : read) {
    is_right = is_right && value >= info.least && value <= info.most &&
               (key.device == kEveryDevice || names_a_device(key.device));
  }
  if (is_right) limits->merge(read);
  return is_right;
}

std::string memory_limits_text(const Limits& limits, wire::Limit limit) {
  const auto is_stated = [limit](const auto& entry) {
    return entry.first.limit == limit && entry.second != 0;
  };
  const bool is_one = std::ranges::count_if(limits, is_stated) == 1;
  std::string text;
  for (const auto& entry : limits) {
    if (!is_stated(entry)) continue;
    if (!text.empty()) text += ',';
    if (!is_one || entry.first.device != kEveryDevice) text += entry.first.device + "=";
    text += bytes_text(static_cast<uint64_t>(entry.second));
  }
  return text;
}

std::string fault_of_guarantee(const Limits& limits) {
  const auto stated = [&limits](wire::Limit limit, const std::string& device) {
    const auto own = limits.find({limit, device});
    const auto found = own != limits.end() ? own : limits.find({limit, kEveryDevice});
    return found == limits.end() ? 0 : found->second;
  };
  for (const auto& [key, value] : limits) {
    if (!is_memory(key.limit)) continue;
    const wire::LimitValue guaranteed = stated(wire::Limit::kGuaranteedMemory, key.device);
    const wire::LimitValue most = stated(wire::Limit::kMemory, key.device);
    if (most == 0 || guaranteed <= most) continue;
    return "the guaranteed memory of " + of_device(key.device) + " is " +
           bytes_text(static_cast<uint64_t>(guaranteed)) + ", more than the limit of its memory, " +
           bytes_text(static_cast<uint64_t>(most));
  }
  return "";
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
