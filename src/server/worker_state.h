// SPDX-License-Identifier: Apache-2.0
// A worker in the books of its server: the process, what it has said of itself, and where it is in
// its life. Held by Workers, on the loop's thread; decides nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/heartbeat.h"
#include "base/unique_fd.h"
#include "server/worker_child.h"
#include "wire/usage_table.h"

namespace openmps::server {

// A worker goes through these in order, and may skip any.
enum class WorkerState {
  kStarting,  // current: newcomers wait for it
  kServing,   // current: newcomers get their sessions here
  kRetiring,  // there for the clients that it has
  kEnding,    // has been told to end; has no sessions any more
};

struct Worker {
  WorkerState state = WorkerState::kStarting;
  uint64_t ready_ms = 0;  // that it has to become ready
  EventLoop::TimerId ready_timer = 0;
  EventLoop::TimerId clogged_timer = 0;  // not 0: it keeps many windows, and somebody will look
  std::string error;                     // why it can't work
  bool may_start_again = false;          // with that error, too: it did not say so itself
  bool is_beside_one_that_ends = false;  // since its start
  bool was_too_early = false;            // that one had the device, in exclusive process mode
  UniqueFd facts;                        // of its devices, for clients
  wire::UsageTable usage;                // of its sessions; perhaps none
  uint32_t spin_us = 0;
  // A client has left its marks on the shared contexts: the device's heap, limits.
  bool is_tainted = false;
  std::unique_ptr<WorkerChild> process;
  std::unique_ptr<Heartbeat> heartbeat;
  [[nodiscard]] bool is_silent() const { return heartbeat != nullptr && heartbeat->is_silent(); }
};

}  // namespace openmps::server
