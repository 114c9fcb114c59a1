// SPDX-License-Identifier: Apache-2.0
// control.log and server.log. See log_files.h.
#include "control/log_files.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace openmps::control {
namespace {

constexpr mode_t kLogMode = 0644;

Status failed(const std::string& what) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, what + ": " + strerror(errno));
}

bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_ino == second.st_ino &&
         first.st_dev == second.st_dev;
}

void copy(int from, int to) {
  while (copy_file_range(from, nullptr, to, nullptr, static_cast<size_t>(kLogBytes), 0) > 0) {
  }
}

std::string numbered(const std::string& name, int number) {
  return name + "." + std::to_string(number);
}

}  // namespace

Status LogFiles::open(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM, "making " + directory + ": " + error.message());
  }
  directory_.reset(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory_.valid()) return failed("opening " + directory);
  files_[0].name = "control.log";
  files_[1].name = "server.log";
  for (File& file : files_) {
    file.fd.reset(openat(directory_.get(), file.name.c_str(),
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY,
                         kLogMode));
    if (!file.fd.valid()) return failed("opening " + directory + "/" + file.name);
  }
  return Status();
}

UniqueFd LogFiles::control() const {
  return UniqueFd(fcntl(files_[0].fd.get(), F_DUPFD_CLOEXEC, 3));
}
UniqueFd LogFiles::server() const {
  return UniqueFd(fcntl(files_[1].fd.get(), F_DUPFD_CLOEXEC, 3));
}

Status LogFiles::watch(EventLoop& loop) {
  notices_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!notices_.valid()) return failed("inotify_init1");
  for (const File& file : files_) {
    // The open file, because the name may refer to another one by now.
    const std::string path = "/proc/self/fd/" + std::to_string(file.fd.get());
    if (inotify_add_watch(notices_.get(), path.c_str(), IN_MODIFY) < 0) {
      return failed("watching " + file.name);
    }
  }
  on_written();
  return loop.watch(notices_.get(), EPOLLIN, [this](uint32_t) { on_written(); });
}

void LogFiles::on_written() {
  // The sizes tell which of the two logs has grown.
  alignas(inotify_event) char notices[4096];
  while (read(notices_.get(), notices, sizeof(notices)) > 0) {
  }
  for (const File& file : files_) {
    struct stat info {};
    if (fstat(file.fd.get(), &info) == 0 && info.st_size >= kLogBytes) rotate(file);
  }
}

void LogFiles::rotate(const File& file) const {
  const UniqueFd full(
      openat(directory_.get(), file.name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  // Another program has rotated the log, and keeps what it held.
  if (full.valid() && same_file(full.get(), file.fd.get())) {
    shift(file.name);
    const UniqueFd kept(openat(directory_.get(), numbered(file.name, 1).c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kLogMode));
    if (kept.valid()) copy(full.get(), kept.get());
  }
  // Also if the copy failed: a log must not fill the disk. Its writers append.
  (void)ftruncate(file.fd.get(), 0);
}

void LogFiles::shift(const std::string& name) const {
  (void)unlinkat(directory_.get(), numbered(name, kKeptLogs).c_str(), 0);
  for (int i = kKeptLogs; i > 1; --i) {
    (void)renameat(directory_.get(), numbered(name, i - 1).c_str(), directory_.get(),
                   numbered(name, i).c_str());
  }
}

}  // namespace openmps::control
