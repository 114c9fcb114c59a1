// SPDX-License-Identifier: Apache-2.0
// The session as the generated dispatcher sees it: ids of the client to handles of the driver.
// Session's thread only.
#pragma once

#include "api/worker_session.h"
#include "worker/session_core.h"
#include "worker/worker_event.h"
#include "worker/worker_module.h"
#include "worker/worker_stream.h"

namespace openmps::worker {

class Handles final : public HandleResolver {
 public:
  Handles(SessionCore& core, Streams& streams, Events& events, Modules& modules)
      : core_(core), streams_(streams), events_(events), modules_(modules) {}

  // A generated command begins: its context is on this device.
  void begin(uint32_t device) { device_ = device; }

  [[nodiscard]] CUresult resolve(HandleType type, uint32_t id, void** handle) override;
  [[nodiscard]] CUresult bind(HandleType type, uint32_t id, void* handle) override;
  void release(HandleType type, uint32_t id) override;
  [[nodiscard]] CUresult resolve_device(uint32_t id, CUdevice* device) override;

 private:
  CUresult resolve_function(uint32_t id, bool as_kernel, void** handle);

  SessionCore& core_;
  Streams& streams_;
  Events& events_;
  Modules& modules_;
  uint32_t device_ = 0;
};

}  // namespace openmps::worker
