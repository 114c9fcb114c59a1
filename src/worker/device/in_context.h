// SPDX-License-Identifier: Apache-2.0
// A context that is current for a while. Any thread.
#pragma once

#include "api/driver_table.h"

namespace openmps::worker {

// A context is current until the end of the block, whatever was before; null: what was stays.
class InContext {
 public:
  InContext(const DriverTable& driver, CUcontext context)
      : driver_(driver),
        pushed_(context != nullptr && driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {}
  ~InContext() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  const DriverTable& driver_;
  const bool pushed_;
};

}  // namespace openmps::worker
