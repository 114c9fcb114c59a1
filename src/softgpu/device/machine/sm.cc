// SPDX-License-Identifier: Apache-2.0
// Occupancy arithmetic of the modelled multiprocessor. Pure functions.
#include "softgpu/device/machine/sm.h"

#include <algorithm>

#include "base/rounding.h"

namespace openmps::softgpu {

SmLimits sm_limits(uint32_t compute_capability) {
  constexpr uint32_t kRegisters = 64 * 1024;
  constexpr uint32_t kKiB = 1024;
  if (compute_capability < 75) return {2048, 32, kRegisters, 96 * kKiB, 96 * kKiB, 0};
  if (compute_capability < 80) return {1024, 16, kRegisters, 64 * kKiB, 64 * kKiB, 0};
  switch (compute_capability) {
    case 80:
    case 87: return {2048, 32, kRegisters, 164 * kKiB, 163 * kKiB, kKiB};
    case 86: return {1536, 16, kRegisters, 100 * kKiB, 99 * kKiB, kKiB};
    case 89: return {1536, 24, kRegisters, 100 * kKiB, 99 * kKiB, kKiB};
    default: break;
  }
  if (compute_capability / 10 == 12) return {1536, 24, kRegisters, 100 * kKiB, 99 * kKiB, kKiB};
  return {2048, 32, kRegisters, 228 * kKiB, 227 * kKiB, kKiB};
}

SmDemand block_demand(const SmLimits& limits, uint32_t threads, uint32_t registers_per_thread,
                      uint64_t shared_bytes) {
  uint32_t warps = (threads + kWarpSize - 1) / kWarpSize;
  uint64_t per_warp =
      round_up(static_cast<uint64_t>(registers_per_thread) * kWarpSize, kRegisterUnit);
  uint64_t shared = round_up(shared_bytes + limits.reserved_shared_per_block, kSharedUnit);
  SmDemand demand;
  demand.threads = warps * kWarpSize;
  // Saturated: a demand beyond the SM need not be exact.
  demand.registers = static_cast<uint32_t>(std::min<uint64_t>(per_warp * warps, UINT32_MAX));
  demand.shared_bytes = static_cast<uint32_t>(std::min<uint64_t>(shared, UINT32_MAX));
  return demand;
}

uint32_t blocks_per_sm(const SmLimits& limits, const SmDemand& demand) {
  uint32_t blocks = limits.blocks;
  if (demand.threads > 0) blocks = std::min(blocks, limits.threads / demand.threads);
  if (demand.registers > 0) blocks = std::min(blocks, limits.registers / demand.registers);
  if (demand.shared_bytes > 0) blocks = std::min(blocks, limits.shared_bytes / demand.shared_bytes);
  return blocks;
}

}  // namespace openmps::softgpu
