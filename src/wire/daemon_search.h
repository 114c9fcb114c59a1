// SPDX-License-Identifier: Apache-2.0
// The directory of a daemon's socket where CUDA_MPS_PIPE_DIRECTORY names none: in which one a
// daemon that starts serves, and in which ones a program or a shell looks for a daemon. Used by the
// client library, openmps-control and openmps.
#pragma once

#include <span>
#include <string>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::wire {

// Root's daemon, and root's daemon by NVIDIA's name: NVIDIA's protocol v3 has it there. Only root
// writes in /run, and all programs see it. /tmp is another one for each service with PrivateTmp and
// for each job under Slurm's job_container/tmpfs.
inline constexpr const char* kRootsPipeDirectory = "/run/openmps";
inline constexpr const char* kRootsNvidiaPipeDirectory = "/run/nvidia-mps";
// The daemons of other users, and those of root that were started with this directory as it was
// once usual.
inline constexpr const char* kUsersPipeDirectory = "/tmp/nvidia-mps";

// Where a daemon of this process's user serves. `nvidia_name`: it has NVIDIA's name.
std::string pipe_directory_to_serve(bool nvidia_name);

// In which order programs look: the directories that only root can write come first, so a program
// that finds root's daemon never connects to what somebody has put in /tmp.
std::span<const char* const> usual_pipe_directories();

struct DaemonSearch {
  std::string directory;
  Result<UniqueFd> socket;  // connect_to_daemon()'s
};

// The daemon of CUDA_MPS_PIPE_DIRECTORY, or else the first one in `usual` that root or our own user
// runs. If there is none, the result is that of a directory where another user's process listens,
// or else that of the directory in which a daemon of this user would serve.
DaemonSearch find_daemon(std::span<const char* const> usual = usual_pipe_directories());

// The first directory in `usual` but `own` that has a daemon of root or of our own user: programs
// that find it would not find one in `own`, or they would find another one than shells do. Empty:
// none.
std::string other_daemon_than(const std::string& own,
                              std::span<const char* const> usual = usual_pipe_directories());

// OPENMPS_REQUIRED: the program is not to run without OpenMPS.
bool requires_daemon();

}  // namespace openmps::wire
