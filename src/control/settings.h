// SPDX-License-Identifier: Apache-2.0
// The limits in force: the daemon's defaults for coming servers, and each server's copy for its
// coming clients. Set by commands and by the configuration; lost on quit. Used on the daemon's
// loop.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/device.h"
#include "control/limits.h"
#include "wire/handshake.h"

namespace openmps::control {

// An ordinal, or the UUID of one of these or its beginning.
std::optional<uint32_t> find_device(std::string_view text, const std::vector<Device>& devices);

class Settings {
 public:
  // Percentages above 0 up to 100; anything else changes nothing.
  void set_percentage(std::string_view text);
  [[nodiscard]] double percentage() const { return percentage_; }
  [[nodiscard]] std::string percentage_text() const;  // "12.5"

  // "0" or "1". False: invalid, nothing changed.
  [[nodiscard]] bool set_priority(std::string_view text);
  [[nodiscard]] uint32_t priority() const { return priority_; }

  // `device` as spelled (ordinal or UUID, not checked), `value` an integer with G or M; "0G" lifts
  // the limit. A malformed value changes nothing.
  void set_memory_limit(std::string_view device, std::string_view value);
  // The limit set under that very spelling, "512M" or whole GiB "1G"; empty: none.
  [[nodiscard]] std::string memory_limit_text(std::string_view device) const;
  // Bytes by ordinal (0: none), UUIDs resolved, the last one set wins.
  [[nodiscard]] std::array<uint64_t, wire::kMaxDevices> memory_limits(
      const std::vector<Device>& devices) const;

  // Whatever is stated in another way than before takes the place of what is set; what is not
  // stated any more becomes as if it never was. Returns a line for each change: "what: from -> to".
  std::vector<std::string> change(const Limits& before, const Limits& now);

 private:
  [[nodiscard]] uint64_t memory_limit(std::string_view device) const;
  void set_memory_limit(std::string_view device, uint64_t bytes);

  double percentage_ = 100;
  uint32_t priority_ = 0;
  std::vector<std::pair<std::string, uint64_t>> memory_limits_;  // in the order of setting
};

}  // namespace openmps::control
