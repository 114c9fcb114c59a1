// SPDX-License-Identifier: Apache-2.0
// The one thread of daemon and server: descriptors, timers, signals and children's ends as calls.
// Not used by client or worker. Every member is called on the loop's own thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps {

class EventLoop {
 public:
  using DescriptorHandler = std::function<void(uint32_t events)>;  // EPOLL* bits
  using Handler = std::function<void()>;
  using TimerId = uint64_t;  // 0: none

  EventLoop() = default;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Before anything else. Errors: CUDA_ERROR_OPERATING_SYSTEM.
  Status open();

  // Call `handler` when `fd` shows one of `events` (level-triggered; EPOLLHUP and EPOLLERR always).
  // The caller owns the descriptor and calls forget() before it closes it. An event of the same
  // round that a handler has made stale is dropped.
  Status watch(int fd, uint32_t events, DescriptorHandler handler);
  void change_events(int fd, uint32_t events);
  void forget(int fd);

  // Call once, after `delay_ms`.
  TimerId call_after(uint64_t delay_ms, Handler handler);
  void cancel(TimerId timer);

  // Block these signals and call on each.
  Status watch_signals(const std::vector<int>& signals, std::function<void(int signal)> handler);
  // Call with waitpid()'s status when the child has ended; it is reaped then.
  Status watch_child(pid_t pid, std::function<void(int wait_status)> handler);
  void forget_child(pid_t pid);

  // Until stop().
  Status run();
  void stop() { stopped_ = true; }

 private:
  struct Watch {
    uint64_t token = 0;
    std::shared_ptr<DescriptorHandler> handler;
  };
  struct Timer {
    TimerId id = 0;
    Handler handler;
  };
  [[nodiscard]] int timeout_ms() const;
  void run_due();
  void dispatch(uint64_t token, uint32_t events);

  UniqueFd epoll_;
  UniqueFd signal_fd_;
  bool stopped_ = false;
  uint64_t next_token_ = 1;
  std::map<int, Watch> watches_;
  std::map<uint64_t, int> token_fd_;
  std::multimap<uint64_t, Timer> timers_;  // by due time
  std::map<TimerId, std::multimap<uint64_t, Timer>::iterator> timer_of_;
  TimerId next_timer_ = 1;
  std::map<pid_t, UniqueFd> children_;
};

}  // namespace openmps
