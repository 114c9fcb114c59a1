// SPDX-License-Identifier: Apache-2.0
// The pipe directory of one daemon.
#include "control/pipe_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>

#include "base/unix_socket.h"
#include "wire/control_call.h"

namespace openmps::control {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un{}.sun_path) - 1;
// Several users' programs connect; who they are is asked of the kernel.
constexpr mode_t kSocketMode = 0666;

Status system_error(const std::string& what) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, what + ": " + strerror(errno));
}

}  // namespace

std::string PipeDirectory::socket_path() const { return wire::control_socket_path(path_); }
std::string PipeDirectory::lock_path() const { return path_ + "/openmps-control.lock"; }
std::string PipeDirectory::pid_path() const { return path_ + "/openmps-control.pid"; }

Status PipeDirectory::take(const std::string& path) {
  std::error_code error;
  path_ = std::filesystem::absolute(path, error).lexically_normal().string();
  if (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  if (socket_path().size() > kMaxSocketPath) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  "CUDA_MPS_PIPE_DIRECTORY is too long: the socket " + socket_path() + " has " +
                      std::to_string(socket_path().size()) + " bytes, the system allows " +
                      std::to_string(kMaxSocketPath));
  }
  std::filesystem::create_directories(path_, error);
  if (error) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM,
                  "making the pipe directory " + path_ + ": " + error.message());
  }
  while (true) {
    lock_.reset(open(lock_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!lock_.valid()) return system_error("opening " + lock_path());
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return system_error("locking " + lock_path());
      return Status(CUDA_ERROR_ALREADY_ACQUIRED, "another daemon serves " + path_);
    }
    // A daemon that was just leaving may have removed the file between our open and our lock.
    struct stat held {};
    struct stat there {};
    if (fstat(lock_.get(), &held) == 0 && stat(lock_path().c_str(), &there) == 0 &&
        held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
      return Status();
    }
  }
}

Result<UniqueFd> PipeDirectory::open_socket() {
  // The pid file first: whoever can connect finds it.
  (void)unlink(pid_path().c_str());
  const UniqueFd pid_file(
      open(pid_path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  const std::string text = std::to_string(getpid()) + "\n";
  if (!pid_file.valid() ||
      write(pid_file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error("writing " + pid_path());
  }
  (void)unlink(socket_path().c_str());
  return listen_at(socket_path(), kSocketMode);
}

void PipeDirectory::remove_entries() {
  (void)unlink(socket_path().c_str());
  (void)unlink(pid_path().c_str());
  (void)unlink(lock_path().c_str());
  lock_.reset();
}

}  // namespace openmps::control
