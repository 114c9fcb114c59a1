// SPDX-License-Identifier: Apache-2.0
// Percentages, priorities and memory limits with the rules of NVIDIA's commands.
#include "control/settings.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.h"

namespace openmps::control {
namespace {

constexpr std::string_view kUuidStart = "GPU-";

// "3G", "512M", and with a trailing B as the documentation of the variable writes them.
std::optional<uint64_t> parse_memory(std::string_view text) {
  if (text.ends_with('B')) text.remove_suffix(1);
  if (text.size() < 2) return std::nullopt;
  const uint64_t unit = text.back() == 'G' ? wire::kGiB : text.back() == 'M' ? wire::kMiB : 0;
  if (unit == 0) return std::nullopt;
  text.remove_suffix(1);
  const std::optional<uint64_t> count = parse_unsigned(text, UINT64_MAX / unit);
  if (!count) return std::nullopt;
  return *count * unit;
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  settings.set_percentage(environment_or("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", ""));
  (void)settings.set_priority(environment_or("CUDA_MPS_CLIENT_PRIORITY", ""));
  const std::string limits = environment_or("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "");
  std::string_view rest = limits;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos) {
      settings.set_memory_limit(entry.substr(0, equals), entry.substr(equals + 1));
    }
  }
  return settings;
}

void Settings::set_percentage(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return;
  // Also turns away a NaN.
  if (value > 0 && value <= 100) percentage_ = value;
}

std::string Settings::percentage_text() const { return format_text("%.1f", percentage_); }

bool Settings::set_priority(std::string_view text) {
  if (text != "0" && text != "1") return false;
  priority_ = text == "1" ? 1 : 0;
  return true;
}

void Settings::set_memory_limit(std::string_view device, std::string_view value) {
  const std::optional<uint64_t> bytes = parse_memory(value);
  if (device.empty() || !bytes) return;
  std::erase_if(memory_limits_, [&](const auto& entry) { return entry.first == device; });
  if (*bytes != 0) memory_limits_.emplace_back(device, *bytes);
}

std::string Settings::memory_limit_text(std::string_view device) const {
  for (const auto& [spelling, bytes] : memory_limits_) {
    if (spelling != device) continue;
    const bool gib = bytes >= wire::kGiB;
    return std::to_string(bytes / (gib ? wire::kGiB : wire::kMiB)) + (gib ? "G" : "M");
  }
  return "";
}

std::array<uint64_t, wire::kMaxDevices> Settings::memory_limits(
    const std::vector<Device>& devices) const {
  std::array<uint64_t, wire::kMaxDevices> limits{};
  for (const auto& [spelling, bytes] : memory_limits_) {
    if (const auto ordinal = parse_unsigned(spelling, wire::kMaxDevices - 1)) {
      limits[*ordinal] = bytes;
      continue;
    }
    for (size_t i = 0; i < devices.size() && i < limits.size(); ++i) {
      if (spelling.starts_with(kUuidStart) && devices[i].uuid.starts_with(spelling)) {
        limits[i] = bytes;
      }
    }
  }
  return limits;
}

}  // namespace openmps::control
