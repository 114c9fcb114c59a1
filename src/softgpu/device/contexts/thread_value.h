// SPDX-License-Identifier: Apache-2.0
// A value of type T for each thread. A plain thread-local object of the main thread is
// destroyed before static objects are, whose destructors may call CUDA (a global
// thrust::device_vector frees its memory then): this one lives until the process has ended. The
// value of another thread ends with the thread.
#pragma once

#include <unistd.h>

namespace openmps::softgpu {

template <typename T>
T& thread_value() {
  static thread_local T* value = nullptr;
  if (value == nullptr) {
    value = new T;
    struct End {
      ~End() {
        if (gettid() == getpid()) return;
        delete value;
        value = nullptr;
      }
    };
    static thread_local End end;
    static_cast<void>(end);
  }
  return *value;
}

}  // namespace openmps::softgpu
