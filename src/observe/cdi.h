// SPDX-License-Identifier: Apache-2.0
// What a container needs to have a share of the daemon's GPUs (docs/containers.md), and the file
// that says so to container engines, by the Container Device Interface. Called by `openmps cdi
// generate` and openmps-kubernetes, on any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/status.h"

namespace openmps::observe {

// A namespace of the daemon: programs that connect through its directory have its limits together.
struct Share {
  std::string server;
  std::string name;
  std::string directory;  // of its socket
};

// Asks the daemon for them. read_shares() reads the answer: CUDA_ERROR_INVALID_VALUE with the first
// field of the line that is not understood.
inline constexpr const char* kListSharesCommand = "namespace list --format=csv,noheader";
Result<std::vector<Share>> read_shares(std::string_view csv);

// A place of the machine, and its place in the container. Read-only.
struct ContainerMount {
  std::string from;
  std::string to;
};

// The libraries for containers, by their paths on the machine.
struct ContainerLibraries {
  std::string client;     // libcuda.so.1
  std::string nvml = {};  // libnvidia-ml.so.1; "": containers get none
};
// The client library, and the NVML library if it is where an installation has it: beside the client
// library, in the folder nvml. A mount of what is not there would keep containers from starting.
ContainerLibraries libraries_at(const std::string& client_library);

// The mount of a share's directory, and those of the libraries, which are the same for all shares;
// and the variables that all have.
ContainerMount share_mount(const std::string& directory);
std::vector<ContainerMount> library_mounts(const ContainerLibraries& libraries);
std::vector<std::pair<std::string, std::string>> share_environment();

struct CdiDevice {
  std::string name;
  std::string directory;
  std::vector<std::pair<std::string, std::string>> environment = {};  // beyond share_environment()
};

struct CdiSpec {
  std::string vendor = "openmps.org";
  std::string device_class = "share";
  ContainerLibraries libraries;
  std::vector<CdiDevice> devices = {};
};

// The file's text. Errors: CUDA_ERROR_INVALID_VALUE: a name that the format does not allow, or a
// path that is relative or no text.
Result<std::string> cdi_text(const CdiSpec& spec);

// Replaces the file, or makes it, so that nobody reads a part of the text. Errors:
// CUDA_ERROR_OPERATING_SYSTEM with the reason.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace openmps::observe
