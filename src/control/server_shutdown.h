// SPDX-License-Identifier: Apache-2.0
// quit: the end of the pool's servers. A server that was asked ends by itself with its last client;
// asking again only shows in the log what the daemon waits for. Used by ServerPool on the loop.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/event_loop.h"
#include "base/log.h"
#include "control/server_process.h"

namespace openmps::control {

class ServerShutdown {
 public:
  // `servers`: those that exist.
  ServerShutdown(EventLoop& loop, const Log& log,
                 std::function<std::vector<ServerProcess*>()> servers)
      : loop_(loop), log_(log), servers_(std::move(servers)) {}

  // See ServerPool::shut_down().
  void begin(std::optional<uint32_t> timeout_s, std::function<void()> done);
  [[nodiscard]] bool has_begun() const { return begun_; }
  // A server still has clients.
  void on_refused(ServerProcess& server, uint32_t active_clients);
  // Call when a server has gone.
  void finish_if_none_left();

 private:
  void try_all();
  void force_all();

  EventLoop& loop_;
  const Log& log_;
  const std::function<std::vector<ServerProcess*>()> servers_;
  bool begun_ = false;
  bool forced_ = false;
  bool backoff_ = false;
  uint64_t retry_ms_ = 0;
  EventLoop::TimerId retry_timer_ = 0;
  EventLoop::TimerId deadline_timer_ = 0;
  std::vector<std::function<void()>> done_;
};

}  // namespace openmps::control
