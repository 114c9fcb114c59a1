// SPDX-License-Identifier: Apache-2.0
// Files without a name that other processes open by a ticket: what is behind cuIpc* handles and
// exported pools. The owner's descriptor is found under /proc; a key of 128 random bits in the
// file's description identifies the file, and a process without the key can't guess it. Any thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>

#include "base/kept_fd.h"
#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps::softgpu {

using ShareKey = std::array<unsigned char, 16>;

struct SharedFile {
  KeptFd file;
  ShareKey key{};
};

// Of whole pages, at least `bytes`, zeroed; it can't shrink under the processes that map it. Null:
// the machine has no memory or no descriptors left.
std::shared_ptr<const SharedFile> make_shared_file(uint64_t bytes);

// The file that process `owner` has as `descriptor`, if it is at least `bytes` long and has that
// key. CUDA_ERROR_INVALID_HANDLE: it is not there (any more), or is another one.
Result<UniqueFd> open_shared_file(pid_t owner, int descriptor, const ShareKey& key, uint64_t bytes);
// The key of a descriptor that came from make_shared_file(); false: it did not.
bool shared_file_key(int descriptor, ShareKey* key);

// What is mapped of a file ends at a page's end.
uint64_t round_to_pages(uint64_t bytes);

}  // namespace openmps::softgpu
