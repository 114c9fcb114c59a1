// SPDX-License-Identifier: Apache-2.0
// See device_parts.h.
#include "worker/core/device_parts.h"

#include <utility>

#include "worker/device/in_context.h"

namespace openmps::worker {

Status DeviceParts::get(uint32_t device, GreenContext** part) {
  *part = nullptr;
  if (!is_limited(device)) return Status();
  Part& mine = parts_[device];
  if (mine.held == nullptr) {
    const InContext current(driver_, devices_.at(device).context);
    auto taken =
        commons_.partitions->take(device, sms_[device], commons_.descriptors, gate_, &feeder_);
    if (!taken.ok()) return taken.status();
    mine.held = std::move(*taken);
    mine.green = {device, mine.held->handle, mine.held->context, mine.held->sms, 0};
  }
  *part = &mine.green;
  return Status();
}

void DeviceParts::release_all() {
  for (Part& part : parts_) part = {};
}

}  // namespace openmps::worker
