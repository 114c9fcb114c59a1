// SPDX-License-Identifier: Apache-2.0
// A program's threads may end in a call of ours: by pthread_cancel() from another thread, and by
// pthread_exit() in a function of the program's that we call. Both unwind the stack through our
// frames. Any thread.
#pragma once

#include <pthread.h>

namespace openmps {

// While one lives, its thread is not cancelled: it runs on, and ends at the first cancellation
// point after it. Whatever blocks, or may be a cancellation point (pthreads(7): reading, writing,
// closing, sleeping, waiting for a condition), is done under one, so a cancelled thread leaves no
// lock locked and no work half done. Costs 3 ns: not for what is done in each call.
class CancellationHeld {
 public:
  CancellationHeld() {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state_);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type_);
  }
  ~CancellationHeld() noexcept(false) {
    pthread_setcancelstate(state_, nullptr);
    if (type_ == PTHREAD_CANCEL_DEFERRED) return;
    // With the type or the state alone glibc 2.36 ends the thread as well, but pthread_join() does
    // not say that it was cancelled.
    pthread_testcancel();
    pthread_setcanceltype(type_, nullptr);
  }
  CancellationHeld(const CancellationHeld&) = delete;
  CancellationHeld& operator=(const CancellationHeld&) = delete;

 private:
  int state_ = 0;
  int type_ = 0;
};

// Once, before any thread can end in a call. glibc unwinds with the shared libgcc; the C++ run time
// that is linked into us asks the libgcc that is linked into us about frames, and that one aborts
// the program if it has never unwound anything itself.
void prepare_unwinding();

}  // namespace openmps
