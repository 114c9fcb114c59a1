// SPDX-License-Identifier: Apache-2.0
// Helper threads of the device model: named, detached, with the signals of base/thread_signals.h.
#pragma once

#include <pthread.h>

#include <thread>
#include <utility>

#include "base/thread_signals.h"

namespace openmps::softgpu {

// `name`: at most 15 characters (the kernel's limit).
template <typename Function>
void start_helper_thread(const char* name, Function&& function) {
  const HelperThreadSignals signals;
  std::thread thread(std::forward<Function>(function));
  pthread_setname_np(thread.native_handle(), name);
  thread.detach();
}

}  // namespace openmps::softgpu
