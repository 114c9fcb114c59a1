// SPDX-License-Identifier: Apache-2.0
// What the lowering and the interpreter agree on: the lanes of a warp, the start of a frame, and
// the addresses of memory that is not the host's.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

inline constexpr uint32_t kWarpSize = 32;
inline constexpr uint32_t kFullMask = 0xffffffffu;

// Generic addresses of the windows that are not host memory: bits that no user-space address of
// x86-64 (57 bits at most) or AArch64 (52) has.
inline constexpr uint64_t kWindowShift = 60;
inline constexpr uint64_t kSharedWindow = uint64_t{1} << kWindowShift;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << kWindowShift;
inline constexpr uint64_t kParamWindow = uint64_t{3} << kWindowShift;
inline constexpr uint64_t kFunctionWindow = uint64_t{4} << kWindowShift;
inline constexpr uint64_t kWindowMask = (uint64_t{1} << kWindowShift) - 1;

// A .shared::cluster address, in the shared window or by itself: the offset, and above it the
// block: 0 the one that uses the address, else the rank plus one.
inline constexpr uint64_t kSharedRankShift = 24;
inline constexpr uint64_t kSharedOffsetMask = (uint64_t{1} << kSharedRankShift) - 1;

// Places at the start of every frame: the carry flag of add.cc and friends, and a constant "true".
inline constexpr int32_t kCarryOffset = 0;
inline constexpr int32_t kTrueOffset = 4;
inline constexpr int32_t kFirstPredicateOffset = 8;

// Of runs of shared loads (ld_shared_keep): address registers that they may alternate between.
inline constexpr uint32_t kKeptWindows = 4;

}  // namespace openmps::softgpu
