// SPDX-License-Identifier: Apache-2.0
// The connections of a context: the few ways on which what its streams ask for comes to the device.
// An item stays in its connection until it starts, and whatever is behind it there waits, also if
// it is another stream's. A running kernel is in none, nor is an event without timing. Guarded by
// the Scheduler.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/schedule/scheduler_mutex.h"

namespace openmps::softgpu {

class Connections {
 public:
  // 0: nothing is ever behind another stream's item.
  explicit Connections(uint32_t count) : queues_(count) {}

  // A stream's next item: to the connection where its last one still is; if that has started, to a
  // free one; if there is none, to each in turn.
  void add(const OperationPtr& item, StreamItems& stream) REQUIRES(scheduler_mutex);
  // Nothing is ahead of it.
  [[nodiscard]] bool is_first(const Operation& item) const REQUIRES(scheduler_mutex);
  // It leaves. Returns what is first now; null: nothing, or the item was in no connection.
  OperationPtr remove(Operation& item) REQUIRES(scheduler_mutex);

 private:
  [[nodiscard]] uint32_t choose();

  std::vector<std::deque<OperationPtr>> queues_;
  uint32_t next_ = 0;
};

}  // namespace openmps::softgpu
