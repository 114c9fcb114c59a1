// SPDX-License-Identifier: Apache-2.0
// The inputs of a case: the same on every machine, made from its name.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cases.h"

namespace conformance {

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kWarps = 16;  // per case, each with inputs of its own
inline constexpr uint32_t kThreads = kLanes * kWarps;
inline constexpr uint32_t kInputWords = 16;  // 64-bit words of a thread: A, B and C of mma.f64
inline constexpr uint32_t kOutputWords = 4;  // 64-bit words of a thread: four of f64, eight of f32

using ThreadInputs = std::array<uint64_t, kInputWords>;

// The inputs of all threads.
std::vector<ThreadInputs> make_inputs(const Case& one);

uint64_t hash_of(const void* data, size_t bytes);

}  // namespace conformance
