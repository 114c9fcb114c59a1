// SPDX-License-Identifier: Apache-2.0
// A service manager. See service_manager.h.
#include "control/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/environment.h"
#include "base/text.h"

namespace openmps::control {
namespace {

constexpr int kFirstPassedFd = 3;  // SD_LISTEN_FDS_START

// The value of a variable, which is removed so that programs started here do not get it.
std::string take_variable(const char* name) {
  std::string value = environment_or(name, "");
  unsetenv(name);
  return value;
}

bool is_me(const std::string& pid) {
  return parse_unsigned(pid, INT32_MAX) == static_cast<uint64_t>(getpid());
}

}  // namespace

Status ServiceManager::read_environment() {
  const std::string listener = take_variable("LISTEN_PID");
  const std::string sockets = take_variable("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  address_ = take_variable("NOTIFY_SOCKET");
  const std::string watched = take_variable("WATCHDOG_PID");
  const auto watchdog_us = parse_unsigned(take_variable("WATCHDOG_USEC"), UINT64_MAX);
  if (watchdog_us && (watched.empty() || is_me(watched))) watchdog_ms_ = *watchdog_us / 1000;
  if (!is_me(listener)) return Status();
  if (sockets != "1") {
    return Status(
        CUDA_ERROR_INVALID_VALUE,
        "one socket is wanted of the service manager, not LISTEN_FDS=" + printable(sockets));
  }
  socket_.reset(kFirstPassedFd);
  if (fcntl(kFirstPassedFd, F_SETFD, FD_CLOEXEC) != 0) {
    (void)socket_.release();
    return Status(CUDA_ERROR_INVALID_VALUE,
                  std::string("descriptor 3 of the service manager: ") + strerror(errno));
  }
  return Status();
}

void ServiceManager::notify(std::string_view state) const {
  sockaddr_un address{};
  // "@name" is a socket in the abstract namespace, without a file.
  if (address_.size() < 2 || address_.size() > sizeof(address.sun_path)) return;
  if (address_.front() != '/' && address_.front() != '@') return;
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, address_.data(), address_.size());
  if (address_.front() == '@') address.sun_path[0] = '\0';
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  (void)sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address), bytes);
}

void ServiceManager::keep_watchdog(EventLoop& loop) const {
  if (watchdog_ms_ == 0) return;
  notify("WATCHDOG=1");
  loop.call_after(std::max<uint64_t>(watchdog_ms_ / 2, 1), [this, &loop] { keep_watchdog(loop); });
}

}  // namespace openmps::control
