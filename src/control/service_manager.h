// SPDX-License-Identifier: Apache-2.0
// The protocol between a service manager and the daemon, as systemd defines it (sd_listen_fds(3),
// sd_notify(3)): the manager passes the listening socket, and learns when the daemon serves, that
// it runs, and when it ends. A few variables and datagrams, so libsystemd is not needed. Without a
// service manager nothing happens. Used by the daemon's start, then on the loop.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::control {

class ServiceManager {
 public:
  // Reads LISTEN_PID, LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_PID and WATCHDOG_USEC and removes them
  // from the environment, which servers and workers inherit. Call it before anything opens a
  // descriptor. CUDA_ERROR_INVALID_VALUE: the manager has not passed exactly one socket.
  Status read_environment();

  // The socket that the manager has passed, if any. Call it once.
  UniqueFd take_socket() { return std::move(socket_); }
  [[nodiscard]] bool has_socket() const { return socket_.valid(); }

  // Sends "READY=1" or "STOPPING=1", without a confirmation; the datagram may be lost.
  void notify(std::string_view state) const;
  // From now on tells the manager, twice in each WATCHDOG_USEC, that the loop runs.
  void keep_watchdog(EventLoop& loop) const;

 private:
  UniqueFd socket_;
  std::string address_;       // NOTIFY_SOCKET; empty: none
  uint64_t watchdog_ms_ = 0;  // 0: none
};

}  // namespace openmps::control
