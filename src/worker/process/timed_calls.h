// SPDX-License-Identifier: Apache-2.0
// A driver table whose functions call another table's and tell an observer how long each took. With
// it OPENMPS_TRACE shows the driver calls of a worker's background threads. One per process.
#pragma once

#include <cstdint>
#include <functional>

#include "api/driver_table.h"

namespace openmps::worker {

// A call that has returned. Times are of now_ns().
struct DriverCall {
  DriverSymbol symbol;
  CUresult result;
  uint64_t begin_ns;
  uint64_t end_ns;
};

// The functions of the table call those of `real`, then `observe` on the calling thread. Null
// members are null in the result as well. `real` and `observe` are copied and never freed; a second
// call replaces those of the first.
DriverTable timed_calls(const DriverTable& real, std::function<void(const DriverCall&)> observe);

}  // namespace openmps::worker
