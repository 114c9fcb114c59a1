// SPDX-License-Identifier: Apache-2.0
// See timed_calls.h.
#include "worker/process/timed_calls.h"

#include <utility>

#include "base/clock.h"

namespace openmps::worker {
namespace {

// Used by the functions below. Never freed: threads of the driver may make calls while the process
// ends.
struct Timed {
  DriverTable real;
  std::function<void(const DriverCall&)> observe;
};
Timed* g_timed = nullptr;

template <auto member, DriverSymbol symbol>
struct TimedCall;

template <typename... Args, CUresult (*DriverTable::*member)(Args...), DriverSymbol symbol>
struct TimedCall<member, symbol> {
  static CUresult call(Args... args) {
    const uint64_t begin_ns = now_ns();
    const CUresult result = (g_timed->real.*member)(args...);
    g_timed->observe({symbol, result, begin_ns, now_ns()});
    return result;
  }
};

}  // namespace

DriverTable timed_calls(const DriverTable& real, std::function<void(const DriverCall&)> observe) {
  g_timed = new Timed{real, std::move(observe)};
  DriverTable table = real;
#define OPENMPS_TIMED(name)                                                \
  if (real.name != nullptr) {                                              \
    table.name = &TimedCall<&DriverTable::name, DriverSymbol::name>::call; \
  }
  OPENMPS_DRIVER_SYMBOLS(OPENMPS_TIMED)
#undef OPENMPS_TIMED
  return table;
}

}  // namespace openmps::worker
