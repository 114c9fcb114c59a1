// SPDX-License-Identifier: Apache-2.0
// What a service manager and the daemon say to each other, as systemd has it (sd_listen_fds(3),
// sd_notify(3)): the listening socket comes from it, it learns when the daemon serves, that it is
// well, and when it ends. A few variables and datagrams: libsystemd would be one more library for
// every machine. Without a service manager it does nothing. Used by the daemon's start, then on the
// loop.
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
  // Reads LISTEN_PID, LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_PID and WATCHDOG_USEC and takes them out
  // of the environment: servers and workers are not what is meant. Call it before anything opens a
  // descriptor. Errors: CUDA_ERROR_INVALID_VALUE: it has passed other than one socket.
  Status read_environment();

  // The socket that it has passed, if any. Once.
  UniqueFd take_socket() { return std::move(socket_); }
  [[nodiscard]] bool has_socket() const { return socket_.valid(); }

  // "READY=1", "STOPPING=1"; nobody waits for it, and it may be lost.
  void notify(std::string_view state) const;
  // From now on, twice in the time that it gives: the loop still turns.
  void keep_watchdog(EventLoop& loop) const;

 private:
  UniqueFd socket_;
  std::string address_;       // NOTIFY_SOCKET; empty: none
  uint64_t watchdog_ms_ = 0;  // 0: none
};

}  // namespace openmps::control
