// SPDX-License-Identifier: Apache-2.0
// See faults.h.
#include "softgpu/device/machine/faults.h"

#include <charconv>
#include <optional>

namespace openmps::softgpu {
namespace {

constexpr uint64_t kMostMicroseconds = 60'000'000;
constexpr uint64_t kMostLaunches = UINT32_MAX;

// A whole number of decimal digits, at most `most`.
std::optional<uint64_t> number(std::string_view text, uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

std::optional<size_t> kind_named(std::string_view name) {
  for (size_t i = 0; i < kFaultKinds.size(); ++i) {
    if (name == kFaultKinds[i].name) return i;
  }
  return std::nullopt;
}

// What stands before `mark`; `text` keeps what stands behind it, nothing if there is no mark.
std::string_view cut(std::string_view& text, char mark) {
  const size_t at = text.find(mark);
  const std::string_view before = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return before;
}

}  // namespace

FaultDelays FaultSettings::delays_of(CUresult code) const {
  for (size_t i = 0; i < kFaultKinds.size(); ++i) {
    if (kFaultKinds[i].code == code) return delays[i];
  }
  return {};
}

bool FaultSettings::read_delays(std::string_view text) {
  while (!text.empty()) {
    std::string_view times = cut(text, ',');
    const std::optional<size_t> kind = kind_named(cut(times, ':'));
    const bool has_xid = times.find('/') != std::string_view::npos;
    const std::optional<uint64_t> report = number(cut(times, '/'), kMostMicroseconds);
    const std::optional<uint64_t> xid =
        has_xid ? number(cut(times, '/'), kMostMicroseconds) : report;
    if (!kind.has_value() || !report.has_value() || !xid.has_value()) return false;
    if (!times.empty() && times != "hold") return false;
    delays[*kind] = {*report * 1000, *xid * 1000, !times.empty()};
  }
  return true;
}

bool FaultSettings::read_injection(std::string_view text) {
  if (text.empty()) return true;
  injected_kernel = cut(text, ':');
  const std::optional<uint64_t> nth = number(cut(text, ':'), kMostLaunches);
  const std::optional<size_t> kind = kind_named(text);
  if (injected_kernel.empty() || nth.value_or(0) == 0 || !kind.has_value()) return false;
  injected_launch = *nth;
  injected_code = kFaultKinds[*kind].code;
  return true;
}

}  // namespace openmps::softgpu
