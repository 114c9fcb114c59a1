// SPDX-License-Identifier: Apache-2.0
// `openmps cdi generate`: a file by which container engines give a container a share of the
// daemon's GPUs (Container Device Interface), as docs/containers.md shows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"

namespace openmps::cli {

// A namespace of the daemon: programs that connect through its directory have its limits together.
struct Share {
  std::string server;
  std::string name;
  std::string directory;  // of its socket
};

struct CdiOptions {
  // Where the machine's files are, which containers outlive the daemon's restarts with; "-":
  // standard output.
  std::string output = "/etc/cdi/openmps.json";
  std::string vendor = "openmps.org";
  std::string device_class = "share";
  std::string library;              // the client library for containers; empty: this installation's
  bool all = false;                 // a device for the daemon's own directory, too
  std::vector<std::string> shares;  // SERVER/NAMESPACE; none: all of them
};

// Reads the answer to `namespace list --format=csv,noheader`. CUDA_ERROR_INVALID_VALUE with the
// first field of the line that is not understood.
Result<std::vector<Share>> read_shares(std::string_view csv);

// Those with these names, in their order; all if there are no names. CUDA_ERROR_NOT_FOUND with the
// names that there are.
Result<std::vector<Share>> choose_shares(const std::vector<Share>& shares,
                                         const std::vector<std::string>& names);

// The name of its device, as in `podman run --device openmps.org/share=server:namespace`.
std::string device_name(const Share& share);

// The file's text. `options.library` is set; `own_directory` is the daemon's. Errors:
// CUDA_ERROR_INVALID_VALUE: a name that the format does not allow, a path that is relative, or no
// device.
Result<std::string> cdi_text(const std::vector<Share>& shares, const CdiOptions& options,
                             const std::string& own_directory);

// Replaces the file, or makes it, so that nobody reads a part of the text. Errors:
// CUDA_ERROR_OPERATING_SYSTEM with the reason.
Status replace_file(const std::string& path, std::string_view text);

// Returns the exit status, having printed why if it is not 0.
int generate_cdi(const CdiOptions& options);

}  // namespace openmps::cli
