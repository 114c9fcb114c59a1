// SPDX-License-Identifier: Apache-2.0
// A fault domain of a server: clients that share a worker, and thereby the faults of its contexts
// (docs/decisions/0045). Held by Workers, on the loop's thread; decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/event_loop.h"
#include "server/restart_backoff.h"
#include "wire/handshake.h"

namespace openmps::server {

struct Worker;

// Domains of one server with workers that use all GPUs. Each has two contexts on each GPU, some
// 0.9 GiB on an H200, and a GPU runs the work of one worker at a time.
inline constexpr size_t kMostDomains = 8;

// That of programs that have faulted (quarantine.h).
inline constexpr const char* kQuarantineDomain = "quarantine";

struct Domain {
  explicit Domain(std::string its_name, std::optional<uint32_t> its_device = std::nullopt)
      : name(std::move(its_name)), device(its_device) {}

  const std::string name;
  const std::optional<uint32_t> device;  // the only one that its workers use
  Worker* current = nullptr;  // starts, or takes new clients; null: the next one starts after a
                              // pause or with a new client
  Worker* spare = nullptr;    // kStarting or kSpare
  bool can_spare = true;
  bool start_pending = false;  // the pause before the next start
  bool awaits_device = false;  // an ending worker has the device: the next one starts after it
  int attempts = 0;            // starts since the last worker that was ready
  RestartBackoff restart_backoff;
  wire::ServerState state = wire::ServerState::kInitializing;
  // The server's.
  std::deque<uint64_t> lost_at_ns;  // workers, in the last kTakeoverPeriodMs
  EventLoop::TimerId spare_timer = 0;
  EventLoop::TimerId unused_timer = 0;  // not 0: it has no clients, and ends then

  [[nodiscard]] bool is_common() const { return name == wire::kCommonDomain; }
  // Of the devices that its workers use, a bit each.
  [[nodiscard]] uint32_t devices() const { return device ? 1u << *device : wire::kAllDevices; }
};

}  // namespace openmps::server
