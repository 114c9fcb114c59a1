// SPDX-License-Identifier: Apache-2.0
// The pipe directory of one daemon.
#include "control/pipe_directory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "base/unix_socket.h"
#include "wire/control_call.h"
#include "wire/handshake.h"

namespace openmps::control {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un{}.sun_path) - 1;
// Programs of all users may connect; the kernel reports the user of each.
constexpr mode_t kSocketMode = 0666;
constexpr mode_t kFileMode = 0644;
// Everybody may find the socket in a directory, whose owner and mode say who may connect.
constexpr mode_t kDirectoryMode = 0755;
// Only the owner may open the lock file: a process that can open a file can lock it. The state
// names programs' namespaces.
constexpr mode_t kLockMode = 0600;
// The longest text for the next daemon: 4,096 namespaces with limits, a cgroup of 200 bytes and a
// partition on each of 16 devices make 6 MiB.
constexpr size_t kMaxKeptBytes = size_t{8} << 20;
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;
// Waits 2 s in all for a lock that is held while no living process listens: by a daemon that starts
// or ends, or by a child that a killed daemon has left.
constexpr int kLockTries = 200;
constexpr timespec kLockPause{0, 10'000'000};
constexpr const char* kLockName = "openmps-control.lock";
constexpr const char* kStateName = "openmps-control.state";
constexpr const char* kNewStateName = "openmps-control.state.new";
constexpr const char* kPidName = "openmps-control.pid";
constexpr const char* kNvidiaPidName = "nvidia-cuda-mps-control.pid";
// The program's name as the system truncates it.
constexpr std::string_view kNvidiaProcessName = "nvidia-cuda-mps";

Status system_error(const std::string& what) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, what + ": " + strerror(errno));
}

// A process that listens there lives. A killed daemon's socket takes connections until the child
// that it has left ends. Of a process in another PID namespace nothing is known but that.
bool somebody_serves(const std::string& socket) {
  const Result<UniqueFd> connection = connect_to(socket);
  if (!connection.ok()) return false;
  const Result<PeerCredentials> who = peer_credentials(connection->get());
  if (!who.ok() || who->pid <= 0) return true;
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, who->pid, 0)));
  if (!process.valid()) return errno != ESRCH;
  pollfd ended{.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) <= 0;
}

}  // namespace

Status check_socket_path(const std::string& path) {
  if (path.size() <= kMaxSocketPath) return Status();
  return Status(CUDA_ERROR_INVALID_VALUE,
                "the socket " + path + " has " + std::to_string(path.size()) +
                    " bytes, the system allows " + std::to_string(kMaxSocketPath));
}

std::string PipeDirectory::socket_path() const { return wire::control_socket_path(path_); }

// Owner and mode decide, also with an access control list, whose mask appears as the group's bits.
Status PipeDirectory::open_directory() {
  struct stat info {};
  if (lstat(path_.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    return Status(CUDA_ERROR_NOT_PERMITTED,
                  "the pipe directory " + path_ + " is a symbolic link: use what it leads to");
  }
  directory_.reset(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory_.valid() || fstat(directory_.get(), &info) != 0) {
    return system_error("opening the pipe directory " + path_);
  }
  if (info.st_uid != 0 && info.st_uid != geteuid()) {
    return Status(
        CUDA_ERROR_NOT_PERMITTED,
        format_text("the pipe directory %s is user %u's, who could replace what is in it: "
                    "use another, or remove it first",
                    path_.c_str(), info.st_uid));
  }
  if ((info.st_mode & kWritableByOthers) != 0) {
    return Status(
        CUDA_ERROR_NOT_PERMITTED,
        format_text("the pipe directory %s (mode %04o) can be written by other users: use "
                    "another, or chmod go-w it",
                    path_.c_str(), info.st_mode & 07777));
  }
  return Status();
}

Status PipeDirectory::take(const std::string& path, bool somebody_listens) {
  std::error_code error;
  path_ = std::filesystem::absolute(path, error).lexically_normal().string();
  if (error) {
    return Status(
        CUDA_ERROR_OPERATING_SYSTEM,
        "the pipe directory " + path + " is below the current directory: " + error.message());
  }
  if (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  if (const Status fits = check_socket_path(socket_path()); !fits.ok()) {
    return Status(CUDA_ERROR_MPS_CONNECTION_FAILED,
                  "CUDA_MPS_PIPE_DIRECTORY is too long: " + fits.message());
  }
  std::filesystem::create_directories(path_, error);
  if (error) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM,
                  "making the pipe directory " + path_ + ": " + error.message());
  }
  OPENMPS_RETURN_IF_ERROR(open_directory());
  for (int patience = kLockTries;;) {
    lock_.reset(
        openat(directory_.get(), kLockName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kLockMode));
    // The lock file of an older version had another mode.
    if (!lock_.valid() || fchmod(lock_.get(), kLockMode) != 0) {
      return system_error("opening " + path_ + "/" + kLockName);
    }
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return system_error("locking " + path_ + "/" + kLockName);
      // After a daemon was killed, a child of it holds the lock until it ends (base/disposal.h).
      if (--patience > 0 && (somebody_listens || !somebody_serves(socket_path()))) {
        nanosleep(&kLockPause, nullptr);
        continue;
      }
      return Status(CUDA_ERROR_ALREADY_ACQUIRED, "another daemon serves " + path_);
    }
    // A daemon that ended just now may have removed the file between our open and our lock.
    struct stat held {};
    struct stat there {};
    if (fstat(lock_.get(), &held) == 0 &&
        fstatat(directory_.get(), kLockName, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
      was_abandoned_ = fstatat(directory_.get(), kPidName, &there, AT_SYMLINK_NOFOLLOW) == 0;
      if (was_abandoned_) read_kept();
      return Status();
    }
  }
}

void PipeDirectory::read_kept() {
  const UniqueFd file(openat(directory_.get(), kStateName, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return;
  kept_.resize(kMaxKeptBytes);
  size_t bytes = 0;
  ssize_t got = 0;
  while (bytes < kept_.size() &&
         (got = read(file.get(), kept_.data() + bytes, kept_.size() - bytes)) > 0) {
    bytes += static_cast<size_t>(got);
  }
  kept_.resize(bytes);
  // A daemon that does not continue from the text must not leave it to the next one.
  remove(kStateName);
}

Status PipeDirectory::keep(const std::string& text) {
  if (text.size() > kMaxKeptBytes) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  format_text("%zu bytes, more than %zu", text.size(), kMaxKeptBytes));
  }
  remove(kNewStateName);
  const UniqueFd file(openat(directory_.get(), kNewStateName,
                             O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kLockMode));
  if (!file.valid()) return system_error("writing " + path_ + "/" + kNewStateName);
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = write(file.get(), rest.data(), rest.size());
    if (written <= 0) return system_error("writing " + path_ + "/" + kNewStateName);
    rest.remove_prefix(static_cast<size_t>(written));
  }
  if (renameat(directory_.get(), kNewStateName, directory_.get(), kStateName) != 0) {
    return system_error("writing " + path_ + "/" + kStateName);
  }
  return Status();
}

// The pipe directory is root's or the daemon's own, so what is in it is made by these.
Status PipeDirectory::make_directory(const std::string& name) const {
  if (mkdirat(directory_.get(), name.c_str(), kDirectoryMode) == 0) return Status();
  if (errno != EEXIST) return system_error("making " + path_ + "/" + name);
  struct stat info {};
  if (fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return system_error("looking at " + path_ + "/" + name);
  }
  const bool is_ours =
      S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & kWritableByOthers) == 0;
  if (is_ours) return Status();
  return Status(CUDA_ERROR_NOT_PERMITTED,
                path_ + "/" + name + " is there and not a directory of the daemon's alone");
}

// By the directory's descriptor, since the path may change.
Status PipeDirectory::give(const std::string& name, uid_t user) const {
  if (user == geteuid()) return Status();
  if (fchownat(directory_.get(), name.c_str(), user, static_cast<gid_t>(-1), AT_SYMLINK_NOFOLLOW) ==
      0) {
    return Status();
  }
  return system_error("giving " + path_ + "/" + name + format_text(" to user %u", user));
}

void PipeDirectory::remove_below(const std::string& name) const {
  if (unlinkat(directory_.get(), name.c_str(), 0) != 0 && errno == EISDIR) {
    (void)unlinkat(directory_.get(), name.c_str(), AT_REMOVEDIR);
  }
}

// A hard link to the pid file, so both have the same content.
bool PipeDirectory::has_our_nvidia_pid() const {
  struct stat ours {};
  struct stat there {};
  return fstatat(directory_.get(), kPidName, &ours, AT_SYMLINK_NOFOLLOW) == 0 &&
         fstatat(directory_.get(), kNvidiaPidName, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

bool PipeDirectory::is_nvidias() const {
  const UniqueFd file(openat(directory_.get(), kNvidiaPidName,
                             O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  char text[32];
  const ssize_t bytes = file.valid() ? read(file.get(), text, sizeof(text)) : 0;
  const std::string_view all(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  const auto pid = parse_unsigned(all.substr(0, all.find('\n')), INT32_MAX);
  if (!pid || *pid == static_cast<uint64_t>(getpid())) return false;
  std::string name;
  std::ifstream("/proc/" + std::to_string(*pid) + "/comm") >> name;
  return name == kNvidiaProcessName;
}

Status PipeDirectory::write_pid_file() {
  if (has_our_nvidia_pid()) remove(kNvidiaPidName);  // left by a killed daemon
  remove(kPidName);
  const UniqueFd pid_file(openat(directory_.get(), kPidName,
                                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  const std::string text = std::to_string(getpid()) + "\n";
  if (!pid_file.valid() ||
      write(pid_file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return system_error("writing " + path_ + "/" + kPidName);
  }
  if (!nvidia_names_ || is_nvidias()) return Status();
  remove(kNvidiaPidName);
  if (linkat(directory_.get(), kPidName, directory_.get(), kNvidiaPidName, 0) != 0) {
    return system_error("writing " + path_ + "/" + kNvidiaPidName);
  }
  return Status();
}

Result<UniqueFd> PipeDirectory::open_socket() {
  // The pid file first: a program that can connect finds it.
  OPENMPS_RETURN_IF_ERROR(write_pid_file());
  made_socket_ = true;
  remove(wire::kControlSocketName);
  Result<UniqueFd> socket = listen_at(socket_path(), kSocketMode);
  // A socket is bound by its path, and the owner of a parent directory may have replaced the
  // directory.
  struct stat there {};
  if (socket.ok() &&
      fstatat(directory_.get(), wire::kControlSocketName, &there, AT_SYMLINK_NOFOLLOW) != 0) {
    return system_error("looking for " + socket_path() + " in its directory");
  }
  return socket;
}

Result<UniqueFd> PipeDirectory::use_socket(UniqueFd socket) {
  sockaddr_un address{};
  socklen_t bytes = sizeof(address);
  int type = 0;
  int listens = 0;
  socklen_t size = sizeof(int);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) {
    return system_error("what the service manager has passed");
  }
  const std::string at(address.sun_path, strnlen(address.sun_path, sizeof(address.sun_path)));
  if (address.sun_family != AF_UNIX || type != SOCK_SEQPACKET || listens == 0 ||
      at != socket_path()) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  "what the service manager has passed is not a SOCK_SEQPACKET socket that listens "
                  "at " +
                      socket_path());
  }
  OPENMPS_RETURN_IF_ERROR(write_pid_file());
  return socket;
}

void PipeDirectory::remove(const char* name) const { (void)unlinkat(directory_.get(), name, 0); }

bool PipeDirectory::remove_socket() {
  if (!made_socket_) return false;
  made_socket_ = false;
  remove(wire::kControlSocketName);
  return true;
}

void PipeDirectory::leave_to_next() {
  remove_socket();
  lock_.reset();
}

void PipeDirectory::remove_entries() {
  remove_socket();
  if (has_our_nvidia_pid()) remove(kNvidiaPidName);
  remove(kPidName);
  remove(kStateName);
  remove(kNewStateName);
  remove(kLockName);
  lock_.reset();
}

}  // namespace openmps::control
