// SPDX-License-Identifier: Apache-2.0
// Quiescence: a time in which nothing of a context runs or waits to run. NVIDIA's driver makes
// one to load and unload code and for cuMemFree. Launches into the context wait until it is over;
// those into other contexts do not (measured on an H200, docs/decisions/0009-quiescence.md). API
// threads.
#pragma once

#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {

class Quiescence {
 public:
  // Returns when what was queued in the context by now has ended. Several at a time are possible,
  // also by one thread.
  Quiescence(Scheduler& scheduler, ExecutionContext& context)
      : scheduler_(scheduler), context_(context) {
    scheduler_.begin_quiescence(context_);
  }
  ~Quiescence() { scheduler_.end_quiescence(context_); }
  Quiescence(const Quiescence&) = delete;
  Quiescence& operator=(const Quiescence&) = delete;

 private:
  Scheduler& scheduler_;
  ExecutionContext& context_;
};

}  // namespace openmps::softgpu
