// SPDX-License-Identifier: Apache-2.0
// See kept_fd.h.
#include "base/kept_fd.h"

#include <sys/stat.h>

namespace openmps {

RememberedFd::RememberedFd(int fd) : fd_(fd) {
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) return;
  device_ = info.st_dev;
  inode_ = info.st_ino;
}

int RememberedFd::get() const {
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) return -1;
  return info.st_dev == device_ && info.st_ino == inode_ ? fd_ : -1;
}

}  // namespace openmps
