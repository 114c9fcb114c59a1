// SPDX-License-Identifier: Apache-2.0
// See range_check.h.
#include "worker/memory/range_check.h"

#include "base/text.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {

std::string range_text(uint64_t address, uint64_t bytes) {
  return format_text("[0x%llx, +0x%llx)", static_cast<unsigned long long>(address),
                     static_cast<unsigned long long>(bytes));
}

Status check_range(uint64_t address, uint64_t bytes, uint64_t begin, uint64_t end, uint64_t unit) {
  if (bytes != 0 && address >= begin && address < end && bytes <= end - address &&
      address % unit == 0 && bytes % unit == 0) {
    return Status();
  }
  return violation(range_text(address, bytes) + " is not a range of the window");
}

}  // namespace openmps::worker
