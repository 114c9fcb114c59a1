// SPDX-License-Identifier: Apache-2.0
// The paths of this installation, relative to the running program: build tree and install tree have
// one layout. Called by the subcommands of `openmps`.
#pragma once

#include <string>
#include <vector>

#include "cuda/status.h"

namespace openmps::cli {

struct Installation {
  std::string control_program;   // bin/openmps-control
  std::string server_program;    // bin/openmps-server
  std::string worker_program;    // bin/openmps-worker
  std::string client_directory;  // lib/openmps
  std::string client_library;    // lib/openmps/libcuda.so.1
  std::string softgpu_library;   // lib/softgpu/libcuda.so.1
};

Result<Installation> find_installation();

// The first libcuda.so.1 in LD_LIBRARY_PATH of this environment; empty: none, so the dynamic linker
// searches its default paths.
std::string library_on_path();

// Why programs here can't load that library, in the dynamic linker's words; empty: they can. CUDA's
// runtime does not report this: it takes a libcuda.so.1 that can't be loaded for one that is too
// old (error 35).
std::string why_not_loadable(const std::string& library);

// NVIDIA's driver library in the directories that distributions use; empty: none.
std::string nvidia_library();

}  // namespace openmps::cli
