// SPDX-License-Identifier: Apache-2.0
// The limits in force. See settings.h.
#include "control/settings.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace openmps::control {
namespace {

// As far as nobody says anything.
constexpr double kUsualPercentage = 100;
constexpr uint32_t kUsualPriority = 0;

std::optional<uint64_t> stated_for(const Limits& limits, const std::string& device) {
  const auto found = limits.memory.find(device);
  return found != limits.memory.end() ? std::optional<uint64_t>(found->second) : std::nullopt;
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

void Settings::set_percentage(std::string_view text) {
  percentage_ = parse_percentage(text).value_or(percentage_);
}

std::string Settings::percentage_text() const { return format_text("%.1f", percentage_); }

bool Settings::set_priority(std::string_view text) {
  const auto priority = parse_priority(text);
  priority_ = priority.value_or(priority_);
  return priority.has_value();
}

void Settings::set_memory_limit(std::string_view device, std::string_view value) {
  const std::optional<uint64_t> bytes = parse_memory_limit(value);
  if (!device.empty() && bytes) set_memory_limit(device, *bytes);
}

void Settings::set_memory_limit(std::string_view device, uint64_t bytes) {
  std::erase_if(memory_limits_, [&](const auto& entry) { return entry.first == device; });
  if (bytes != 0) memory_limits_.emplace_back(device, bytes);
}

uint64_t Settings::memory_limit(std::string_view device) const {
  for (const auto& [spelling, bytes] : memory_limits_) {
    if (spelling == device) return bytes;
  }
  return 0;
}

std::string Settings::memory_limit_text(std::string_view device) const {
  const uint64_t bytes = memory_limit(device);
  if (bytes == 0) return "";
  const bool gib = bytes >= wire::kGiB;
  return std::to_string(bytes / (gib ? wire::kGiB : wire::kMiB)) + (gib ? "G" : "M");
}

std::array<uint64_t, wire::kMaxDevices> Settings::memory_limits(
    const std::vector<Device>& devices) const {
  std::array<uint64_t, wire::kMaxDevices> limits{};
  for (const auto& [spelling, bytes] : memory_limits_) {
    if (const auto device = find_device(spelling, devices)) limits[*device] = bytes;
  }
  return limits;
}

std::vector<std::string> Settings::change(const Limits& before, const Limits& now) {
  std::vector<std::string> lines;
  const auto note = [&lines](const std::string& what, const std::string& from,
                             const std::string& to) {
    if (from != to) lines.push_back(what + ": " + from + " -> " + to);
  };
  if (before.percentage != now.percentage) {
    const std::string from = percentage_text();
    percentage_ = now.percentage.value_or(kUsualPercentage);
    note("active_thread_percentage", from, percentage_text());
  }
  if (before.priority != now.priority) {
    const std::string from = std::to_string(priority_);
    priority_ = now.priority.value_or(kUsualPriority);
    note("client_priority", from, std::to_string(priority_));
  }
  const Limits both = overlay(before, now);
  for (const auto& [device, either] : both.memory) {
    if (stated_for(before, device) == stated_for(now, device)) continue;
    const std::string from = memory_text(memory_limit(device));
    set_memory_limit(device, stated_for(now, device).value_or(0));
    note("device_pinned_mem_limit of " + device, from, memory_text(memory_limit(device)));
  }
  return lines;
}

}  // namespace openmps::control
