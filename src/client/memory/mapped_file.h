// SPDX-License-Identifier: Apache-2.0
// A descriptor of the file that a shared mapping of this process is of, so that another process can
// map the same pages. Any thread.
#pragma once

#include "base/unique_fd.h"
#include "client/memory/maps.h"

namespace openmps::client {

// A new description of the file, for reading and, if `write`, for writing. Invalid: there is no way
// to it, and `why` says so; constant texts. In this order: /proc/self/map_files, where the system
// allows it; the path that the mapping names; a descriptor of this process. Each is taken only if a
// mapping of it is of the same device and inode.
UniqueFd file_of(const Region& region, bool write, const char** why);

}  // namespace openmps::client
