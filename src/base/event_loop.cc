// SPDX-License-Identifier: Apache-2.0
// The one thread of daemon and server, over epoll, signalfd and pidfd.
#include "base/event_loop.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"

namespace openmps {
namespace {

constexpr int kEventsPerRound = 64;  // more wait for the next round

Status system_error(const std::string& what) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, what + ": " + strerror(errno));
}

}  // namespace

Status EventLoop::open() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  return epoll_.valid() ? Status() : system_error("epoll_create1");
}

Status EventLoop::watch(int fd, uint32_t events, DescriptorHandler handler) {
  const uint64_t token = next_token_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return system_error("epoll_ctl");
  watches_[fd] = Watch{token, std::make_shared<DescriptorHandler>(std::move(handler))};
  token_fd_[token] = fd;
  return Status();
}

void EventLoop::change_events(int fd, uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second.token;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::forget(int fd) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  token_fd_.erase(found->second.token);
  watches_.erase(found);
}

EventLoop::TimerId EventLoop::call_after(uint64_t delay_ms, Handler handler) {
  const TimerId id = next_timer_++;
  timer_of_[id] = timers_.emplace(now_ns() + delay_ms * kNsPerMs, Timer{id, std::move(handler)});
  return id;
}

void EventLoop::cancel(TimerId timer) {
  const auto found = timer_of_.find(timer);
  if (found == timer_of_.end()) return;
  timers_.erase(found->second);
  timer_of_.erase(found);
}

Status EventLoop::watch_signals(const std::vector<int>& signals, std::function<void(int)> handler) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return system_error("sigprocmask");
  signal_fd_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signal_fd_.valid()) return system_error("signalfd");
  return watch(signal_fd_.get(), EPOLLIN, [this, handler = std::move(handler)](uint32_t) {
    signalfd_siginfo info{};
    while (read(signal_fd_.get(), &info, sizeof(info)) == sizeof(info)) {
      handler(static_cast<int>(info.ssi_signo));
    }
  });
}

Status EventLoop::watch_child(pid_t pid, std::function<void(int)> handler) {
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));  // close-on-exec by itself
  if (!fd.valid()) return system_error("pidfd_open");
  OPENMPS_RETURN_IF_ERROR(
      watch(fd.get(), EPOLLIN, [this, pid, handler = std::move(handler)](uint32_t) {
        int status = 0;
        if (waitpid(pid, &status, WNOHANG) != pid) return;
        forget_child(pid);
        handler(status);
      }));
  children_[pid] = std::move(fd);
  return Status();
}

void EventLoop::forget_child(pid_t pid) {
  const auto found = children_.find(pid);
  if (found == children_.end()) return;
  forget(found->second.get());
  children_.erase(found);
}

int EventLoop::timeout_ms() const {
  if (timers_.empty()) return -1;
  const uint64_t due = timers_.begin()->first;
  const uint64_t now = now_ns();
  // Rounded up: waking a moment early would only spin.
  return due <= now ? 0 : static_cast<int>(std::min<uint64_t>((due - now) / kNsPerMs + 1, 60'000));
}

void EventLoop::run_due() {
  const uint64_t now = now_ns();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const Handler handler = std::move(timers_.begin()->second.handler);
    timer_of_.erase(timers_.begin()->second.id);
    timers_.erase(timers_.begin());
    handler();
  }
}

void EventLoop::dispatch(uint64_t token, uint32_t events) {
  const auto fd = token_fd_.find(token);
  if (fd == token_fd_.end()) return;  // forgotten by a handler of this round
  // The handler may forget itself: hold it while it runs.
  const std::shared_ptr<DescriptorHandler> handler = watches_.at(fd->second).handler;
  (*handler)(events);
}

Status EventLoop::run() {
  epoll_event events[kEventsPerRound];
  while (!stopped_) {
    const int count = epoll_wait(epoll_.get(), events, kEventsPerRound, timeout_ms());
    if (count < 0 && errno != EINTR) return system_error("epoll_wait");
    for (int i = 0; i < count && !stopped_; ++i) dispatch(events[i].data.u64, events[i].events);
    if (!stopped_) run_due();
  }
  return Status();
}

}  // namespace openmps
