// SPDX-License-Identifier: Apache-2.0
// `openmps cdi generate`: a file by which container engines give a container a share of the
// daemon's GPUs (Container Device Interface), as docs/containers.md shows.
#pragma once

#include <string>
#include <vector>

#include "cuda/status.h"
#include "observe/cdi.h"

namespace openmps::cli {

struct CdiOptions {
  // Where the machine's files are, which containers outlive the daemon's restarts with; "-":
  // standard output.
  std::string output = "/etc/cdi/openmps.json";
  std::string vendor = observe::CdiSpec().vendor;
  std::string device_class = observe::CdiSpec().device_class;
  std::string library;              // the client library for containers; empty: this installation's
  bool all = false;                 // a device for the daemon's own directory, too
  std::vector<std::string> shares;  // SERVER/NAMESPACE; none: all of them
};

// Those with these names, in their order; all if there are no names. CUDA_ERROR_NOT_FOUND with the
// names that there are.
Result<std::vector<observe::Share>> choose_shares(const std::vector<observe::Share>& shares,
                                                  const std::vector<std::string>& names);

// The file's devices, called server:namespace. `own_directory` is the daemon's. Errors:
// CUDA_ERROR_INVALID_VALUE: there is none.
Result<std::vector<observe::CdiDevice>> devices_of(const std::vector<observe::Share>& shares,
                                                   const CdiOptions& options,
                                                   const std::string& own_directory);

// Returns the exit status, having printed why if it is not 0.
int generate_cdi(const CdiOptions& options);

}  // namespace openmps::cli
