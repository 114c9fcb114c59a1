// SPDX-License-Identifier: Apache-2.0
// The signals of threads that a library starts in somebody's program. Signals to the process are
// for the program's own threads. What a thread brings on itself (a fault, a trap, a system call
// that is filtered) is its own: with the signal blocked the kernel would kill the program, where
// its handler fills the memory, or reports, or goes on. Such a thread touches the program's memory,
// and runs its functions.
#pragma once

#include <csignal>

namespace openmps {

// While one lives, a thread that this one starts has all signals blocked but those of faults.
class HelperThreadSignals {
 public:
  HelperThreadSignals();
  ~HelperThreadSignals();
  HelperThreadSignals(const HelperThreadSignals&) = delete;
  HelperThreadSignals& operator=(const HelperThreadSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace openmps
