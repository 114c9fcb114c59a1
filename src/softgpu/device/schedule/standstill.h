// SPDX-License-Identifier: Apache-2.0
// A moment in which nothing of a context runs or waits: what NVIDIA's driver makes for loading and
// unloading code and for cuMemFree. Launches into the context wait for its end; those into other
// contexts do not (measured on an H200, docs/decisions/0009-quiescence.md). API threads.
#pragma once

#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {

class Standstill {
 public:
  // Returns when what was queued in the context by now has ended. Several at a time are possible,
  // also by one thread.
  Standstill(Scheduler& scheduler, ExecutionContext& context)
      : scheduler_(scheduler), context_(context) {
    scheduler_.begin_standstill(context_);
  }
  ~Standstill() { scheduler_.end_standstill(context_); }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

 private:
  Scheduler& scheduler_;
  ExecutionContext& context_;
};

}  // namespace openmps::softgpu
