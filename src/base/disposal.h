// SPDX-License-Identifier: Apache-2.0
// Closing descriptors that another process may have filled. The last close of a file can block for
// as long as the file's maker likes (SO_LINGER, a file of a slow file system), and the last close
// of a socket is the last close of every file that lies unread in it. So daemon and server fork a
// child that holds the last reference and exits: the kernel closes the descriptors of the child,
// where a close that blocks blocks no other process. If all peers are one user's, a connection in
// which nothing lies unread is closed here, as a fork of a server takes longer with more clients.
// Used on the loop's thread; docs/decisions/0011.
#pragma once

#include <vector>

#include "base/event_loop.h"
#include "base/unique_fd.h"

namespace openmps {

// Descriptors are gathered for this long: a fork takes 0.3 ms, a flood of connections costs one per
// gathering.
inline constexpr uint64_t kGatherMs = 2;
// Children whose exit blocks at once. Only a close that can't be interrupted blocks one; at the
// limit descriptors wait here.
inline constexpr int kMostClosers = 32;
// Pause after a fork that failed.
inline constexpr uint64_t kCloserRetryMs = 500;

class Disposal {
 public:
  // Whose connections are closed. Those of any user go to a child in any case: before Linux 6.10
  // the process that closes a local socket also closes descriptors that others have sent in a
  // cycle.
  enum class Peers { kAnybody, kOneUser };

  Disposal(EventLoop& loop, Peers peers) : loop_(loop), peers_(peers) {}
  ~Disposal();
  Disposal(const Disposal&) = delete;
  Disposal& operator=(const Disposal&) = delete;

  // Close the descriptor, here or in a child, without blocking. Other references keep the file
  // open.
  void close(UniqueFd fd);
  // Shut down and close our end of a connection: the peer sees the end at once, even if another
  // process holds a reference.
  void hang_up(UniqueFd fd);

 private:
  void gather(uint64_t delay_ms);
  void close_gathered();

  EventLoop& loop_;
  Peers peers_;
  std::vector<UniqueFd> gathered_;
  EventLoop::TimerId timer_ = 0;
  std::vector<pid_t> closers_;  // that have not ended
};

// The owner of a descriptor that is closed by Disposal.
class ForeignFd {
 public:
  ForeignFd() = default;
  ForeignFd(Disposal& disposal, UniqueFd fd) : disposal_(&disposal), fd_(std::move(fd)) {}
  ForeignFd(ForeignFd&&) = default;
  ForeignFd& operator=(ForeignFd&& other) noexcept {
    reset();
    disposal_ = other.disposal_;
    fd_ = std::move(other.fd_);
    return *this;
  }
  ~ForeignFd() { reset(); }

  [[nodiscard]] int get() const { return fd_.get(); }
  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] UniqueFd take() { return std::move(fd_); }
  void reset() {
    if (fd_.valid()) disposal_->close(std::move(fd_));
  }
  // For a connection: see Disposal::hang_up().
  void hang_up() {
    if (fd_.valid()) disposal_->hang_up(std::move(fd_));
  }

 private:
  Disposal* disposal_ = nullptr;
  UniqueFd fd_;
};

}  // namespace openmps
