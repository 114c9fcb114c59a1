// SPDX-License-Identifier: Apache-2.0
// Descriptors that a library keeps in somebody's program. Programs close what they do not know
// (closefrom(), daemons that close all) and open files of their own under the same numbers: what is
// done with a kept descriptor must not reach those. Any thread.
#pragma once

#include <sys/types.h>

#include "base/unique_fd.h"

namespace openmps {

// A descriptor, and which file it was.
class RememberedFd {
 public:
  RememberedFd() = default;
  RememberedFd(int fd);  // NOLINT: implicit on purpose
  // -1: there is none, or the number is now another file's. A system call with it fails with EBADF.
  [[nodiscard]] int get() const;
  [[nodiscard]] bool valid() const { return fd_ >= 0; }  // there was one

 private:
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// The owner of one: closes it unless it is another file's by then.
class KeptFd {
 public:
  KeptFd() = default;
  explicit KeptFd(UniqueFd fd) : fd_(fd.release()) {}
  KeptFd(KeptFd&& other) noexcept : fd_(std::exchange(other.fd_, RememberedFd())) {}
  KeptFd& operator=(KeptFd&&) = delete;
  ~KeptFd() { reset(); }
  void reset(int fd = -1) {
    UniqueFd(fd_.get()).reset();
    fd_ = RememberedFd(fd);
  }

  [[nodiscard]] int get() const { return fd_.get(); }
  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] const RememberedFd& remembered() const { return fd_; }

 private:
  RememberedFd fd_;
};

}  // namespace openmps
