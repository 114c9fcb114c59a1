// SPDX-License-Identifier: Apache-2.0
// On which devices programs that see several of them have worked lately (docs/decisions/0047): the
// clients that see one of these alone share its SMs with them. Used by Server on the loop's thread;
// the caller gives the times, in nanoseconds of any monotonic clock.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "wire/layout.h"

namespace openmps::server {

class BusyDevices {
 public:
  // How long a device counts as busy: going to another domain and back costs a client two pauses.
  static constexpr uint64_t kHoldNs = 600'000'000'000;
  // A session's work on each device so far, in nanoseconds (wire::DeviceUse::kNs).
  using Work = std::array<uint64_t, wire::kMaxDevices>;

  // What is known of those programs' sessions, by number, at one time. A device on which they have
  // worked before the last look and since is busy: one that is looked at for a moment is not.
  void look(std::map<uint32_t, Work> sessions, uint64_t now_ns);
  // A bit for each.
  [[nodiscard]] uint32_t devices(uint64_t now_ns) const;

 private:
  std::map<uint32_t, Work> last_;
  uint32_t worked_ = 0;  // on which of them, before the last look
  std::array<uint64_t, wire::kMaxDevices> until_ns_{};
};

}  // namespace openmps::server
