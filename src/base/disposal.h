// SPDX-License-Identifier: Apache-2.0
// Closing descriptors that a stranger may have filled. The last close of a file can wait for as
// long as its maker likes (a TCP socket that lingers, a file of a slow file system), and a socket's
// last close is the last close of every file that lies unread in it. So daemon and server give such
// descriptors away: a child process that holds the last reference ends, and the kernel closes them
// behind it. An ending process does not linger, and one that is held up holds up nobody. Of one
// user's own clients a connection in which nothing lies unread is closed here: a fork of a server
// takes the longer the more clients it has.
// Used on the loop's thread; docs/decisions/0011.
#pragma once

#include <vector>

#include "base/event_loop.h"
#include "base/unique_fd.h"

namespace openmps {

// Descriptors are gathered for this long: a fork takes 0.3 ms, a flood of connections costs one per
// gathering.
inline constexpr uint64_t kGatherMs = 2;
// Children that are held up at once. Only a file that can't be interrupted holds one up; at the
// limit descriptors wait here.
inline constexpr int kMostClosers = 32;
// The system gave no process: again after this.
inline constexpr uint64_t kCloserRetryMs = 500;

class Disposal {
 public:
  // Whose connections are hung up. Anybody's go to a child in any case: before Linux 6.10 whoever
  // closes a local socket closes the descriptors as well that others have sent in a circle.
  enum class Peers { kAnybody, kOneUser };

  Disposal(EventLoop& loop, Peers peers) : loop_(loop), peers_(peers) {}
  ~Disposal();
  Disposal(const Disposal&) = delete;
  Disposal& operator=(const Disposal&) = delete;

  // Close it, here or elsewhere, without waiting. Whoever shares the file keeps it.
  void close(UniqueFd fd);
  // The same for our end of a connection: its peer sees the end at once, whoever shares it.
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

// The owner of one such descriptor.
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
  // For a connection: see Disposal.
  void hang_up() {
    if (fd_.valid()) disposal_->hang_up(std::move(fd_));
  }

 private:
  Disposal* disposal_ = nullptr;
  UniqueFd fd_;
};

}  // namespace openmps
