// SPDX-License-Identifier: Apache-2.0
// Starting another program of ours: the daemon starts servers, a server starts its worker, `openmps
// run --start` the daemon. Single-threaded callers only (fork).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/status.h"

namespace openmps {

struct SpawnOptions {
  std::string program;                 // path
  std::vector<std::string> arguments;  // after argv[0]
  // Descriptors that the child gets, as (ours, number in the child). Everything else must be
  // close-on-exec. Standard streams that are not named here are /dev/null.
  std::vector<std::pair<int, int>> fds;
  // Variables that it gets beside those of this process, or in their place.
  std::vector<std::pair<std::string, std::string>> environment;
  // Become this user (with its groups) first. Only root can.
  std::optional<uid_t> uid;
  gid_t gid = 0;
  bool new_session = false;      // out of reach of the terminal's signals
  bool die_with_parent = false;  // SIGKILL when the calling thread ends
};

// The child's PID, once its exec has succeeded. Errors: CUDA_ERROR_OPERATING_SYSTEM, with the
// program and the reason (no such file, no permission...).
Result<pid_t> spawn(const SpawnOptions& options);

// The folder of the running program, by /proc/self/exe: how our programs find each other.
Result<std::string> program_directory();

// Raise the soft limit of open files to the hard one, at most `wanted`. Never fails: what the
// system grants is used, and returned.
unsigned long raise_open_files_limit(unsigned long wanted);

// Close what a careless parent left open, from descriptor `first` up: a long-lived process must not
// hold its starter's files and locks. First thing in main().
void close_inherited_descriptors(int first = 3);

// "exited with status 1" or "was killed by signal 9 (Killed)", from waitpid()'s status.
std::string describe_exit(int wait_status);

// What keeps a process from answering, as far as the system says: "stopped by a signal", "stopped
// by a debugger", "stuck in a system call", "gone", else "hanging".
std::string describe_state(pid_t pid);

}  // namespace openmps
