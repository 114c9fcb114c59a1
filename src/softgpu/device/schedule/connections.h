// SPDX-License-Identifier: Apache-2.0
// The connections of a context (CUDA_DEVICE_MAX_CONNECTIONS): the few queues in which operations of
// streams come to the device. An operation is in its connection until it starts, and whatever is
// behind it there waits, also if it is of another stream. A running kernel is in no connection, nor
// is an event without timing.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/schedule/scheduler_mutex.h"

namespace openmps::softgpu {

class Connections {
 public:
  // 0: an operation is never behind one of another stream.
  explicit Connections(uint32_t count) : queues_(count) {}

  // Queues a stream's next operation: in the connection where its last one still waits; if that has
  // started, in a free connection; if none is free, in each in turn.
  void add(const OperationPtr& item, StreamItems& stream) REQUIRES(scheduler_mutex);
  // Nothing is ahead of the operation.
  [[nodiscard]] bool is_first(const Operation& item) const REQUIRES(scheduler_mutex);
  // Takes the operation out. Returns the one that is first now; null: none, or `item` was in no
  // connection.
  OperationPtr remove(Operation& item) REQUIRES(scheduler_mutex);

 private:
  [[nodiscard]] uint32_t choose();

  std::vector<std::deque<OperationPtr>> queues_;
  uint32_t next_ = 0;
};

}  // namespace openmps::softgpu
