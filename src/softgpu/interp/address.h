// SPDX-License-Identifier: Apache-2.0
// Checked accesses of single lanes at generic addresses (address.cc). warp.h has those of all
// lanes. Run by the interpreter, on its thread.
#pragma once

#include <string>

#include "softgpu/interp/warp.h"

namespace openmps::softgpu {

// Null: a fault has been raised. Any memory, ...
std::byte* memory_for(Warp* warp, const Op* op, uint32_t lane, uint64_t address, uint64_t bytes,
                      uint64_t alignment, bool write);
// ... or shared memory, also of other blocks of the cluster.
std::byte* shared_for(Warp* warp, const Op* op, uint32_t lane, uint64_t address, uint64_t bytes,
                      uint64_t alignment);

// Generic memory for services: false: not readable, or not writable.
bool read_generic(Warp* warp, uint32_t lane, uint64_t address, void* to, size_t bytes);
bool write_generic(Warp* warp, uint32_t lane, uint64_t address, const void* from, size_t bytes);
bool read_string(Warp* warp, uint32_t lane, uint64_t address, std::string* out);

}  // namespace openmps::softgpu
