// SPDX-License-Identifier: Apache-2.0
// How the threads of a block lie in its warps: kernels are compiled for it, since most addresses
// are made of %tid.
#pragma once

#include <cstdint>

#include "softgpu/ir/frame.h"

namespace openmps::softgpu::tier {

struct LaunchShape {
  // kRows: threads of a warp are whole rows of the block, whose width divides the warp's;
  // kLine: they are part of one row, and each row is whole warps.
  enum class Kind : uint8_t { kOther, kRows, kLine } kind = Kind::kOther;
  uint32_t width = 0;  // kRows: of a row
  bool operator==(const LaunchShape&) const = default;
};

inline LaunchShape launch_shape(const uint32_t block[3]) {
  if (block[0] % kWarpSize == 0) return {LaunchShape::Kind::kLine, 0};
  if (kWarpSize % block[0] == 0 && block[1] % (kWarpSize / block[0]) == 0) {
    return {LaunchShape::Kind::kRows, block[0]};
  }
  return {};
}

}  // namespace openmps::softgpu::tier
