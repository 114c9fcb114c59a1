// SPDX-License-Identifier: Apache-2.0
// Limits of clients. See limits.h.
#include "control/limits.h"

#include <algorithm>
#include <charconv>

#include "base/environment.h"
#include "base/text.h"
#include "wire/handshake.h"

namespace openmps::control {
namespace {

constexpr std::string_view kUuidStart = "GPU-";

}  // namespace

Limits overlay(Limits below, const Limits& above) {
  if (above.percentage) below.percentage = above.percentage;
  if (above.priority) below.priority = above.priority;
  for (const auto& [device, bytes] : above.memory) below.memory[device] = bytes;
  return below;
}

Limits limits_of_environment() {
  Limits limits;
  limits.percentage = parse_percentage(environment_or("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", ""));
  limits.priority = parse_priority(environment_or("CUDA_MPS_CLIENT_PRIORITY", ""));
  const std::string memory = environment_or("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "");
  std::string_view rest = memory;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    if (const auto bytes = parse_memory_limit(entry.substr(equals + 1))) {
      limits.memory[std::string(entry.substr(0, equals))] = *bytes;
    }
  }
  return limits;
}

// Servers are told it as a float, as which the least numbers above 0 are 0. Also turns away a NaN.
bool is_percentage(double value) {
  return value > 0 && value <= 100 && static_cast<float>(value) > 0;
}

bool names_a_device(std::string_view text) {
  if (!text.starts_with(kUuidStart)) {
    return parse_unsigned(text, wire::kMaxDevices - 1).has_value();
  }
  return text.find_first_not_of("0123456789abcdef-", kUuidStart.size()) == std::string_view::npos;
}

std::optional<double> parse_percentage(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return is_percentage(value) ? std::optional<double>(value) : std::nullopt;
}

std::optional<uint32_t> parse_priority(std::string_view text) {
  if (text != "0" && text != "1") return std::nullopt;
  return text == "1" ? 1 : 0;
}

std::optional<uint64_t> parse_memory_limit(std::string_view text) {
  if (text.ends_with('B')) text.remove_suffix(1);
  if (text.size() < 2) return std::nullopt;
  const uint64_t unit = text.back() == 'G' ? wire::kGiB : text.back() == 'M' ? wire::kMiB : 0;
  if (unit == 0) return std::nullopt;
  text.remove_suffix(1);
  const std::optional<uint64_t> count = parse_unsigned(text, UINT64_MAX / unit);
  if (!count) return std::nullopt;
  return *count * unit;
}

std::string memory_text(uint64_t bytes) {
  if (bytes == 0) return "none";
  const bool gib = bytes % wire::kGiB == 0;
  return std::to_string(bytes / (gib ? wire::kGiB : wire::kMiB)) + (gib ? "G" : "M");
}

}  // namespace openmps::control
