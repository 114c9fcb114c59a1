// SPDX-License-Identifier: Apache-2.0
// Closing descriptors that a stranger may have filled. See disposal.h.
#include "base/disposal.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace openmps {
namespace {

// In the child, which has a copy of every descriptor: nothing is closed before its end, when
// nothing lingers, and that comes when the parent has let go and closes the other end of
// `released`.
[[noreturn]] void hold_until(int released) {
  char nothing = 0;
  while (read(released, &nothing, 1) < 0 && errno == EINTR) {
  }
  _exit(0);
}

// The child that now holds all that we do, or -1. Single-threaded callers only.
pid_t fork_closer(UniqueFd* release) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const UniqueFd released(ends[0]);
  UniqueFd releasing(ends[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    releasing.reset();
    hold_until(released.get());
  }
  *release = std::move(releasing);
  return pid;
}

// Whether nothing lies unread in a local socket that was shut down, in which nothing can come any
// more, so that to close it closes no other file. Every packet has credentials if these are asked
// for, also an empty one, and says that there was no room for them: the end of the connection has
// none. Nothing is received by looking.
bool nothing_unread(int socket) {
  const int on = 1;
  if (setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) return false;
  msghdr message{};
  return recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) == 0 &&
         (message.msg_flags & MSG_CTRUNC) == 0;
}

// A closer ends in microseconds, or is held up and not worth more than this.
constexpr int kFarewellMs = 100;

void wait_for(pid_t pid) {
  const timespec pause{0, 1'000'000};
  for (int i = 0; i < kFarewellMs && waitpid(pid, nullptr, WNOHANG) == 0; ++i) {
    nanosleep(&pause, nullptr);
  }
}

}  // namespace

Disposal::~Disposal() {
  loop_.cancel(timer_);
  for (const pid_t pid : closers_) loop_.forget_child(pid);
  if (!gathered_.empty()) {
    UniqueFd release;
    const pid_t pid = fork_closer(&release);
    if (pid > 0) closers_.push_back(pid);
    // No process: the end of this one closes them as well.
    for (UniqueFd& fd : gathered_) {
      if (pid < 0) (void)fd.release();
    }
    gathered_.clear();
  }
  // A peer that reads until our end finds it.
  for (const pid_t pid : closers_) wait_for(pid);
}

void Disposal::close(UniqueFd fd) {
  if (!fd.valid()) return;
  gathered_.push_back(std::move(fd));
  gather(kGatherMs);
}

void Disposal::hang_up(UniqueFd fd) {
  const bool shut = shutdown(fd.get(), SHUT_RDWR) == 0;
  if (peers_ == Peers::kOneUser && shut && nothing_unread(fd.get())) return;  // closed here
  close(std::move(fd));
}

void Disposal::gather(uint64_t delay_ms) {
  if (timer_ != 0) return;
  timer_ = loop_.call_after(delay_ms, [this] {
    timer_ = 0;
    close_gathered();
  });
}

void Disposal::close_gathered() {
  if (gathered_.empty()) return;
  UniqueFd release;
  const pid_t pid = closers_.size() < kMostClosers ? fork_closer(&release) : -1;
  if (pid < 0) {
    gather(kCloserRetryMs);
    return;
  }
  gathered_.clear();  // none of these is the last reference: the child has one
  closers_.push_back(pid);
  const Status watched = loop_.watch_child(pid, [this, pid](int) {
    closers_.erase(std::remove(closers_.begin(), closers_.end(), pid), closers_.end());
  });
  release.reset();
  if (!watched.ok()) {
    (void)waitpid(pid, nullptr, WNOHANG);
    closers_.pop_back();
  }
}

}  // namespace openmps
