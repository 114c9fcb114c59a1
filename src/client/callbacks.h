// SPDX-License-Identifier: Apache-2.0
// Host functions and stream callbacks: the GPU posts a slot in shared memory, one thread of the
// client runs the function and answers, the stream goes on. The functions run on that thread, in
// the order in which the slots are posted.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "base/cuda_abi.h"
#include "client/fence.h"

namespace openmps::client {

struct HostCall {
  CUhostFn function = nullptr;          // or
  CUstreamCallback callback = nullptr;  // with the stream that the program named
  CUstream stream = nullptr;
  void* user_data = nullptr;
};

class Callbacks {
 public:
  Callbacks(Channel& channel, Fences& fences) : channel_(channel), fences_(fences) {}

  // Put a host function into the stream, behind what is there.
  // Errors: CUDA_ERROR_OUT_OF_MEMORY (no thread), the session's end.
  [[nodiscard]] CUresult enqueue(Stream& stream, const HostCall& call);

 private:
  struct Pending {
    uint32_t slot;
    HostCall call;
  };
  struct Used {
    uint32_t slot;
    FencePoint point;
  };

  static void* thread_main(void* self);
  void serve();
  bool run_posted();
  [[nodiscard]] bool any_posted();
  [[nodiscard]] CUresult acquire_slot(std::unique_lock<std::mutex>& guard, uint32_t* slot);

  Channel& channel_;
  Fences& fences_;
  std::mutex lock_;
  std::condition_variable enqueued_;
  bool started_ = false;
  uint32_t next_slot_ = 0;        // slots from here on were never used
  std::deque<Used> used_;         // free again once their point is reached
  std::vector<Pending> pending_;  // enqueued, not yet run
};

}  // namespace openmps::client
