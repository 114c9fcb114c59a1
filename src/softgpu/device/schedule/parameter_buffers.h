// SPDX-License-Identifier: Apache-2.0
// Memory of a context for kernels that launch kernels: buffers for parameters, and texts of errors.
// Nothing is unmapped before the context is destroyed, since that would interrupt every kernel.
// Called by workers from inside the engine.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"

namespace openmps::softgpu {

class AddressSpace;

class ParameterBuffers {
 public:
  ParameterBuffers(AddressSpace* memory, int device) : memory_(memory), device_(device) {}
  ~ParameterBuffers();
  ParameterBuffers(const ParameterBuffers&) = delete;
  ParameterBuffers& operator=(const ParameterBuffers&) = delete;

  // At least `bytes`, aligned for every type. 0: the host has no memory.
  uint64_t take(uint64_t bytes);
  void give_back(uint64_t address, uint64_t bytes);
  // Where kernels can read `text`, with a NUL behind it: one address for each text. 0: no memory.
  uint64_t text(const char* text);

 private:
  uint64_t take_locked(uint64_t bytes) REQUIRES(mutex_);

  AddressSpace* const memory_;
  const int device_;
  Mutex mutex_{LockRank::kSoftParameterBuffers};
  std::vector<uint64_t> chunks_ GUARDED_BY(mutex_);  // addresses of what was allocated
  std::map<uint64_t, std::vector<uint64_t>> free_ GUARDED_BY(mutex_);  // by size, a power of two
  std::unordered_map<std::string_view, uint64_t> texts_ GUARDED_BY(mutex_);  // of literals
};

}  // namespace openmps::softgpu
