// SPDX-License-Identifier: Apache-2.0
// See busy_devices.h.
#include "server/busy_devices.h"

#include <utility>

namespace openmps::server {

void BusyDevices::look(std::map<uint32_t, Work> sessions, uint64_t now_ns) {
  uint32_t worked = 0;
  for (const auto& [session, work] : sessions) {
    const auto before = last_.find(session);
    if (before == last_.end()) continue;
    for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
      if (work[i] > before->second[i]) worked |= 1u << i;
    }
  }
  const uint32_t busy = std::exchange(worked_, worked) & worked;
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    if ((busy >> i & 1) != 0) until_ns_[i] = now_ns + kHoldNs;
  }
  last_ = std::move(sessions);
}

uint32_t BusyDevices::devices(uint64_t now_ns) const {
  uint32_t devices = 0;
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    if (until_ns_[i] > now_ns) devices |= 1u << i;
  }
  return devices;
}

}  // namespace openmps::server
