// SPDX-License-Identifier: Apache-2.0
// Where driver libraries are looked for on this machine. Used by the loader, on the thread that
// loads; reads the environment and files, changes nothing.
#pragma once

#include <string>
#include <vector>

namespace openmps {

struct DriverSearch {
  // Directories that may hold NVIDIA's libcuda.so.1, in order.
  std::vector<std::string> nvidia_directories;
  // Paths that softgpu's libcuda.so.1 may have, in order.
  std::vector<std::string> softgpu_paths;
  // Whether the kernel driver of a GPU is present.
  bool gpu_present = false;
};

// This machine, this process: LD_LIBRARY_PATH, the directories of ld.so.conf, the usual places of
// NVIDIA's driver; softgpu relative to the binary (program or library) that this code is part of.
DriverSearch default_driver_search();

}  // namespace openmps
