// SPDX-License-Identifier: Apache-2.0
// How many bytes of memory an operand spans, from its first to its last, as the ranges of commands
// say it. cuda::kTooManyBytes where that overflows, which no session's memory contains.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/box.h"

namespace openmps::wire {

using cuda::span_of_box;

// Bytes from row to row of a fill: of one row its length.
constexpr uint64_t fill_pitch(uint64_t width, uint64_t element, uint64_t height, uint64_t pitch) {
  return height > 1 ? pitch : cuda::bytes_of_row(width, element);
}

// Rows of `width` elements. No rows may be one to a driver.
constexpr uint64_t fill_bytes(uint64_t width, uint64_t element, uint64_t height, uint64_t pitch) {
  return span_of_box(cuda::bytes_of_row(width, element), std::max<uint64_t>(height, 1), 1,
                     fill_pitch(width, element, height, pitch), 0);
}

}  // namespace openmps::wire
