// SPDX-License-Identifier: Apache-2.0
// What this program's kernels print. The worker takes the text out of the driver; the client writes
// it to the program's standard output when CUDA would: when the program synchronises. The text of a
// failed assert() goes to standard error once the client notices the error. Any thread.
#pragma once

#include <atomic>

#include "base/mutex.h"
#include "client/link/channel.h"
#include "wire/output_ring.h"

namespace openmps::client {

class KernelOutput {
 public:
  explicit KernelOutput(Channel& channel) : channel_(channel), ring_(channel.view()) {}

  // A function has been looked up whose image refers to printf. Graphs may contain the function.
  void found_printing_function() { any_.store(true, std::memory_order_relaxed); }
  // A kernel that may print has been launched.
  void expect() { expected_.store(true, std::memory_order_relaxed); }
  void graph_launched() {
    if (any_.load(std::memory_order_relaxed)) expect();
  }

  // A synchronisation has ended with `result`: write what has been printed. Returns `result`.
  CUresult show(CUresult result) {
    if (result == CUDA_SUCCESS && !expected_.load(std::memory_order_relaxed)) [[likely]] {
      return result;
    }
    return collect(result);
  }
  // For a call that is no synchronisation: writes only the last text of a session that has ended.
  CUresult show_end(CUresult status) {
    if (status == CUDA_SUCCESS) [[likely]] {
      return status;
    }
    return collect(status);
  }

 private:
  CUresult collect(CUresult result);

  Channel& channel_;
  std::atomic<bool> any_{false};
  std::atomic<bool> expected_{false};  // kernels may have printed what has not been shown
  Mutex lock_{LockRank::kClientKernelOutput};
  wire::OutputConsumer ring_ GUARDED_BY(lock_);
};

}  // namespace openmps::client
