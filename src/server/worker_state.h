// SPDX-License-Identifier: Apache-2.0
// A worker as its server knows it: the process, what the process has reported, and its state. Held
// by Workers, on the loop's thread; decides nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/heartbeat.h"
#include "base/unique_fd.h"
#include "server/worker_child.h"
#include "wire/usage_table.h"

namespace openmps::server {

// A worker goes through these states in order, and may skip any.
enum class WorkerState {
  kStarting,  // current: new clients wait for it, or the spare
  kSpare,     // ready to be the current one
  kServing,   // current: new clients get their sessions here
  kRetiring,  // serves the clients that it has, and no new ones
  kLost,      // its contexts are lost; its sessions are being handed over
  kEnding,    // has been told to end; has no sessions any more
};

struct Domain;

struct Worker {
  Domain* domain = nullptr;  // whose sessions it has
  uint32_t place = 0;        // of its addresses (wire::kAddressPlaces)
  WorkerState state = WorkerState::kStarting;
  uint64_t ready_ms = 0;  // time that it has to become ready
  EventLoop::TimerId ready_timer = 0;
  EventLoop::TimerId clogged_timer = 0;    // not 0: it holds many windows, and will be checked
  std::string error;                       // why it can't work
  bool may_start_again = false;            // although there is an error: it did not state it itself
  bool was_started_beside_ending = false;  // an ending worker existed at its start
  bool was_too_early = false;  // the ending worker had the device, in exclusive process mode
  UniqueFd facts;              // of its devices, for clients
  wire::UsageTable usage;      // of its sessions; perhaps none
  uint32_t spin_us = 0;
  // A client has changed the shared contexts (the device's heap, limits): wire::SessionClosed.
  bool is_tainted = false;
  bool has_lost_contexts = false;
  std::unique_ptr<WorkerChild> process;
  std::unique_ptr<Heartbeat> heartbeat;
  [[nodiscard]] bool is_silent() const { return heartbeat != nullptr && heartbeat->is_silent(); }
};

}  // namespace openmps::server
