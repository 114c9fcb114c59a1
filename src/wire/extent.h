// SPDX-License-Identifier: Apache-2.0
// How many bytes of memory an operand spans, from its first to its last. ~0 where that overflows,
// which no session's memory contains. Pure arithmetic, used by the ranges of commands.
#pragma once

#include <algorithm>
#include <cstdint>

namespace openmps::wire {

// A box of rows and slices; `width`, `pitch` and `slice` in bytes.
constexpr uint64_t box_bytes(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch,
                             uint64_t slice) {
  if (width == 0 || height == 0 || depth == 0) return 0;
  uint64_t rows = 0;
  uint64_t slices = 0;
  uint64_t span = 0;
  if (__builtin_mul_overflow(height - 1, pitch, &rows) ||
      __builtin_mul_overflow(depth - 1, slice, &slices) ||
      __builtin_add_overflow(rows, slices, &span) || __builtin_add_overflow(span, width, &span)) {
    return ~0ull;
  }
  return span;
}

// Bytes from row to row of a fill: of one row its length.
constexpr uint64_t fill_pitch(uint64_t width, uint64_t element, uint64_t height, uint64_t pitch) {
  uint64_t row = 0;
  if (__builtin_mul_overflow(width, element, &row)) row = ~0ull;
  return height > 1 ? pitch : row;
}

// Rows of `width` elements. No rows may be one to a driver.
constexpr uint64_t fill_bytes(uint64_t width, uint64_t element, uint64_t height, uint64_t pitch) {
  return box_bytes(fill_pitch(width, element, 1, 0), std::max<uint64_t>(height, 1), 1,
                   fill_pitch(width, element, height, pitch), 0);
}

}  // namespace openmps::wire
