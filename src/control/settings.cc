// SPDX-License-Identifier: Apache-2.0
// The limits in force. See settings.h.
#include "control/settings.h"

#include "base/text.h"

namespace openmps::control {
namespace {

std::optional<wire::LimitValue> stated(const Limits& limits, const LimitKey& key) {
  const auto found = limits.find(key);
  return found != limits.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace

std::optional<uint32_t> find_device(std::string_view text, const std::vector<Device>& devices) {
  if (const auto ordinal = parse_unsigned(text, wire::kMaxDevices - 1)) {
    return static_cast<uint32_t>(*ordinal);
  }
  for (size_t i = 0; i < devices.size() && i < wire::kMaxDevices; ++i) {
    if (names_a_device(text) && devices[i].uuid.starts_with(text)) return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

bool Settings::set(wire::Limit limit, std::string_view device, std::string_view text) {
  const wire::LimitInfo& info = wire::info_of(limit);
  const auto value = info.parse(text);
  if (!value || info.is_per_device == device.empty()) return false;
  put({limit, std::string(device)}, value);
  return true;
}

void Settings::put(const LimitKey& key, std::optional<wire::LimitValue> value) {
  std::erase_if(set_, [&](const auto& entry) { return entry.first == key; });
  const bool is_lifted = !value || (wire::info_of(key.limit).is_per_device && *value == 0);
  if (!is_lifted) set_.emplace_back(key, *value);
}

wire::LimitValue Settings::value(wire::Limit limit, std::string_view device) const {
  for (const auto& [key, value] : set_) {
    if (key.limit == limit && key.device == device) return value;
  }
  return wire::info_of(limit).unset;
}

wire::ClientLimits Settings::resolved(const std::vector<Device>& devices) const {
  wire::ClientLimits limits;
  for (const wire::LimitInfo& info : wire::limit_table()) {  // counts of SMs after the percentage
    for (const auto& [key, value] : set_) {
      if (key.limit != info.limit) continue;
      for (uint32_t i = 0; key.device == kEveryDevice && i < devices.size(); ++i) {
        (void)wire::set_limit(&limits, key.limit, i, value);
      }
      const auto device = info.is_per_device ? find_device(key.device, devices) : 0;
      if (device) (void)wire::set_limit(&limits, key.limit, *device, value);
    }
  }
  return limits;
}

std::vector<std::string> Settings::change(const Limits& before, const Limits& now) {
  std::vector<std::string> lines;
  for (const auto& [key, either] : overlay(before, now)) {
    if (stated(before, key) == stated(now, key)) continue;
    const wire::LimitInfo& info = wire::info_of(key.limit);
    const std::string from = info.text(value(key.limit, key.device));
    put(key, stated(now, key));
    const std::string to = info.text(value(key.limit, key.device));
    const std::string device = !info.is_per_device          ? ""
                               : key.device == kEveryDevice ? " of each device"
                                                            : " of " + key.device;
    if (from != to) lines.push_back(std::string(info.name) + device + ": " + from + " -> " + to);
  }
  return lines;
}

}  // namespace openmps::control
