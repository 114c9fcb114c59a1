// SPDX-License-Identifier: Apache-2.0
// The code of a fatbin's entry, unpacked where nvcc has packed it. A library of its own: the
// client, which only forwards images, does without the decompressors. Any thread.
#pragma once

#include <vector>

#include "cuda/fatbin.h"

namespace openmps::cuda {

// More than any single cubin or PTX so far: what claims to unpack to more is not looked into.
inline constexpr uint64_t kMostUnpackedBytes = 256ull << 20;

// The payload itself, or what it unpacks to, in `*buffer`. Errors: CUDA_ERROR_INVALID_IMAGE with
// the reason.
[[nodiscard]] Result<Bytes> unpack(const FatbinEntry& entry, std::vector<unsigned char>* buffer);

}  // namespace openmps::cuda
