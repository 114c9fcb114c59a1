// SPDX-License-Identifier: Apache-2.0
// See work.h.
#include "softgpu/device/work.h"

#include "softgpu/device/driver.h"

namespace openmps::softgpu {

Status check_words(const Driver& driver, const WordsWork& work) {
  for (const WordAction& action : work.actions) {
    if (action.kind == WordAction::Kind::kBarrier) continue;
    const bool write = action.kind != WordAction::Kind::kWait;
    if (driver.address_space.coverage(action.address, action.bytes, write) !=
        AddressSpace::Coverage::kInside)
      return Status(CUDA_ERROR_INVALID_VALUE, "the address is not mapped for the device");
  }
  return Status();
}

}  // namespace openmps::softgpu
