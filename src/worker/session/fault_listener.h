// SPDX-License-Identifier: Apache-2.0
// What an executor tells the watchdog over the shared contexts (process/fault_monitor.h).
#pragma once

#include <string>

#include "cuda/status.h"

namespace openmps::worker {

class FaultListener {
 public:
  // The session has promised its client a fence, which only the GPU can write.
  virtual void fence_promised() = 0;
  // A driver call has failed with an error after which the contexts are unusable.
  virtual void context_lost(CUresult result, const std::string& reason) = 0;
  // The contexts are lost, and the session goes on in another worker.
  [[nodiscard]] virtual bool hands_over() const = 0;

 protected:
  ~FaultListener() = default;
};

}  // namespace openmps::worker
