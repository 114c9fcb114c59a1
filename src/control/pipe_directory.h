// SPDX-License-Identifier: Apache-2.0
// The pipe directory of one daemon: who may write into it (root and the daemon's user), who owns it
// (a lock that dies with its holder), what lies in it (socket, pid files, lock), and leaving
// nothing behind. Used by the daemon's start and end.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::control {

class PipeDirectory {
 public:
  // Make the directory if it is missing (0755) and take its lock. Errors:
  // CUDA_ERROR_ALREADY_ACQUIRED: another daemon holds it; CUDA_ERROR_MPS_CONNECTION_FAILED: the
  // path is too long for a socket; CUDA_ERROR_NOT_PERMITTED: another user, root aside, could write
  // into it, or it is a link, whose target could become another; CUDA_ERROR_OPERATING_SYSTEM.
  // `somebody_listens`: a service manager does, so that says nothing of another daemon.
  Status take(const std::string& path, bool somebody_listens = false);
  // Scripts that were written for NVIDIA's daemon make sure of theirs by its pid file: from
  // open_socket() or use_socket() on there is one by that name, too. One of NVIDIA's own daemon
  // that lives stays as it is.
  void use_nvidia_names() { nvidia_names_ = true; }
  // Write the pid file and listen: what a killed daemon left is replaced, under the lock. Call in
  // the process that stays.
  Result<UniqueFd> open_socket();
  // The same with a socket of a service manager, who made it and removes it: it must listen at
  // socket_path(), or CUDA_ERROR_INVALID_VALUE.
  Result<UniqueFd> use_socket(UniqueFd socket);
  // Remove all that this daemon made but the directory. The lock goes last.
  void remove_entries();

  // A daemon that served it did not come to an orderly end: servers of its may live.
  [[nodiscard]] bool was_abandoned() const { return was_abandoned_; }
  // What that daemon has last given to keep(); empty: nothing.
  [[nodiscard]] const std::string& kept() const { return kept_; }
  // For the next daemon, if this one is killed: in the lock, which it holds open.
  // CUDA_ERROR_OPERATING_SYSTEM.
  Status keep(const std::string& text);

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
  UniqueFd directory_;  // what is in it is reached from here, whatever becomes of the path
  UniqueFd lock_;
  bool nvidia_names_ = false;
  bool made_socket_ = false;
  bool was_abandoned_ = false;
  std::string kept_;
};

}  // namespace openmps::control
