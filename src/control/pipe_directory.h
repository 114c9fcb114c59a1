// SPDX-License-Identifier: Apache-2.0
// The pipe directory of one daemon: its access rights (root and the daemon's user may write), the
// lock that makes this daemon the only one (released by the kernel at the daemon's death), its
// socket and pid files, and their removal. Used by the daemon's start and end.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::control {

// CUDA_ERROR_INVALID_VALUE: the path is too long for a socket, with how long it is and may be.
Status check_socket_path(const std::string& path);

class PipeDirectory {
 public:
  // Make the directory if it is missing (0755) and take its lock. Errors:
  // CUDA_ERROR_ALREADY_ACQUIRED: another daemon holds it; CUDA_ERROR_MPS_CONNECTION_FAILED: the
  // path is too long for a socket; CUDA_ERROR_NOT_PERMITTED: a user other than root could write
  // into the directory, or it is a symbolic link, whose target could change;
  // CUDA_ERROR_OPERATING_SYSTEM. `somebody_listens`: a service manager listens on the socket, so a
  // listener does not mean that there is a daemon.
  Status take(const std::string& path, bool somebody_listens = false);
  // Scripts that were written for NVIDIA's daemon look for its pid file: open_socket() and
  // use_socket() make one of that name, too, unless NVIDIA's own daemon runs and has one.
  void use_nvidia_names() { nvidia_names_ = true; }
  // Write the pid file and listen, replacing under the lock what a killed daemon has left. Call it
  // in the daemon process.
  Result<UniqueFd> open_socket();
  // Write the pid file and use a service manager's socket, which the manager removes.
  // CUDA_ERROR_INVALID_VALUE: it does not listen at socket_path().
  Result<UniqueFd> use_socket(UniqueFd socket);
  // Nobody can connect any more to the socket that open_socket() made. False: it is a service
  // manager's, and stays.
  bool remove_socket();
  // Leave the directory as a killed daemon does, whose servers the next one takes back.
  void leave_to_next();
  // Remove all files that this daemon made, the lock last. The directory remains.
  void remove_entries();

  // Whether the last daemon here was killed: its servers may still run.
  [[nodiscard]] bool was_abandoned() const { return was_abandoned_; }
  // The text that the killed daemon passed to keep() last; empty: none.
  [[nodiscard]] const std::string& kept() const { return kept_; }
  // Stores a text for the next daemon, in case this one is killed. Whenever that happens the next
  // one reads this text or the one before it. CUDA_ERROR_INVALID_VALUE: it is too long;
  // CUDA_ERROR_OPERATING_SYSTEM.
  Status keep(const std::string& text);
  // Make a directory below this one, or check that the one that is there is the daemon's.
  // CUDA_ERROR_NOT_PERMITTED: others could write into it; CUDA_ERROR_OPERATING_SYSTEM.
  [[nodiscard]] Status make_directory(const std::string& name) const;
  // Give a socket below this directory to a user. CUDA_ERROR_OPERATING_SYSTEM.
  [[nodiscard]] Status give(const std::string& name, uid_t user) const;
  // A file or an empty directory below this one; nothing happens if there is none.
  void remove_below(const std::string& name) const;

  // Absolute.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string socket_path() const;

 private:
  Status open_directory();
  void read_kept();
  Status write_pid_file();
  [[nodiscard]] bool has_our_nvidia_pid() const;
  [[nodiscard]] bool is_nvidias() const;
  void remove(const char* name) const;

  std::string path_;
  UniqueFd directory_;  // files are opened relative to it, since the path may change
  UniqueFd lock_;
  bool nvidia_names_ = false;
  bool made_socket_ = false;
  bool was_abandoned_ = false;
  std::string kept_;
};

}  // namespace openmps::control
