// SPDX-License-Identifier: Apache-2.0
// Helper threads of the device model: named, detached, with every signal blocked so that handlers
// of the program run on its own threads only.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace openmps::softgpu {

// `name`: at most 15 characters (the kernel's limit).
template <typename Function>
void start_helper_thread(const char* name, Function&& function) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Function>(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  thread.detach();
}

}  // namespace openmps::softgpu
