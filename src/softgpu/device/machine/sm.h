// SPDX-License-Identifier: Apache-2.0
// The resources of a streaming multiprocessor, what a block takes of them, and the occupancy that
// follows: one rule for the block scheduler, launch checks and cuOccupancy*. Pure functions.
#pragma once

#include <bitset>
#include <cstdint>

#include "softgpu/device/machine/config.h"

namespace openmps::softgpu {

using SmSet = std::bitset<kMaxSms>;

inline constexpr uint32_t kWarpSize = 32;
// The first with thread block clusters and tensor maps.
inline constexpr uint32_t kClusterCapability = 90;
inline constexpr uint32_t kMaxThreadsPerBlock = 1024;
inline constexpr uint32_t kMaxBlockDim[3] = {1024, 1024, 64};
inline constexpr uint32_t kMaxGridDim[3] = {0x7fffffff, 65535, 65535};
// What a kernel gets without asking (cuFuncSetAttribute raises it up to shared_per_block_optin).
inline constexpr uint32_t kDefaultSharedPerBlock = 48 * 1024;
// Shared memory is handed out in these units, registers per warp in those.
inline constexpr uint32_t kSharedUnit = 128;
inline constexpr uint32_t kRegisterUnit = 256;

struct SmLimits {
  uint32_t threads;
  uint32_t blocks;
  uint32_t registers;
  uint32_t shared_bytes;
  uint32_t shared_per_block_optin;
  uint32_t reserved_shared_per_block;
};

// From the table of compute capabilities in the CUDA programming guide.
SmLimits sm_limits(uint32_t compute_capability);

struct SmDemand {
  uint32_t threads = 0;  // whole warps
  uint32_t registers = 0;
  uint32_t shared_bytes = 0;
};

// What one block takes. `threads`: of the block; shared bytes: static plus dynamic.
SmDemand block_demand(const SmLimits& limits, uint32_t threads, uint32_t registers_per_thread,
                      uint64_t shared_bytes);

// Blocks that fit one empty SM; 0: the block fits none.
uint32_t blocks_per_sm(const SmLimits& limits, const SmDemand& demand);

}  // namespace openmps::softgpu
