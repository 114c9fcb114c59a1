// SPDX-License-Identifier: Apache-2.0
// Compiled kernels on disk, one file each, by their keys. The folder is the user's own, and others
// may not enter it, for what is in it is run. A file gets its name when it is complete; one that is
// damaged is ignored. Any number of processes, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "softgpu/tier/compiler.h"
#include "softgpu/tier/kernel_key.h"

namespace openmps::softgpu::tier {

// All files together. A kernel takes 20 to 500 KiB.
inline constexpr uint64_t kStoredCodeBytes = 256ull << 20;

class CodeStore {
 public:
  // `place`: a directory of the user's, in which the store makes its folder; empty: no store.
  explicit CodeStore(const std::string& place, uint64_t most_bytes = kStoredCodeBytes);

  // False: it is not there.
  bool read(const KernelKey& key, CompiledImage* image) const;
  // What was used longest ago makes room.
  void write(const KernelKey& key, const CompiledImage& image) const;

 private:
  void make_room(uint64_t bytes) const;
  std::string folder_;  // empty: none
  uint64_t most_bytes_;
};

// The user's directory for caches: OPENMPS_CACHE_DIRECTORY, or "openmps" in XDG_CACHE_HOME or in
// ~/.cache; empty: there is none.
std::string cache_directory();

}  // namespace openmps::softgpu::tier
