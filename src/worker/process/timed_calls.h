// SPDX-License-Identifier: Apache-2.0
// A driver whose calls are timed: a table of functions that call those of another one and tell an
// observer what each took. For OPENMPS_TRACE in a worker: that is how it shows what its background
// threads ask of the driver. One for a process.
#pragma once

#include <cstdint>
#include <functional>

#include "api/driver_table.h"

namespace openmps::worker {

// A call that has returned, on the thread that made it. Times are now_ns()'s.
struct DriverCall {
  DriverSymbol symbol;
  CUresult result;
  uint64_t begin_ns;
  uint64_t end_ns;
};

// The table of functions that call those of `real` and then `observe`, on the caller's thread. Null
// members stay null. Both are copied, for as long as the process lives; the second call replaces
// the first one's.
DriverTable timed_calls(const DriverTable& real, std::function<void(const DriverCall&)> observe);

}  // namespace openmps::worker
