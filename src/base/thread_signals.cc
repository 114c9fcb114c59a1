// SPDX-License-Identifier: Apache-2.0
// See thread_signals.h.
#include "base/thread_signals.h"

#include <pthread.h>

#include <csignal>
#include <initializer_list>

namespace openmps {

HelperThreadSignals::HelperThreadSignals() {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) {
    sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before_);
}

HelperThreadSignals::~HelperThreadSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace openmps
