// SPDX-License-Identifier: Apache-2.0
// Boxes of rows and slices, in numbers that a program or a peer chose: nothing overflows unseen.
// Pure; any thread.
#pragma once

#include <cstdint>

namespace openmps::cuda {

// More bytes than there are addresses; no memory contains so many.
inline constexpr uint64_t kTooManyBytes = ~0ull;

// Bytes of `count` elements; kTooManyBytes.
[[nodiscard]] constexpr uint64_t bytes_of_row(uint64_t count, uint64_t element_bytes) {
  uint64_t bytes = 0;
  return __builtin_mul_overflow(count, element_bytes, &bytes) ? kTooManyBytes : bytes;
}

// From the first to behind the last byte of a box: `width` bytes in each row, `pitch` bytes from
// row to row, `slice` from slice to slice. 0: it is empty; kTooManyBytes.
[[nodiscard]] constexpr uint64_t span_of_box(uint64_t width, uint64_t height, uint64_t depth,
                                             uint64_t pitch, uint64_t slice) {
  if (width == 0 || height == 0 || depth == 0) return 0;
  uint64_t rows = 0;
  uint64_t slices = 0;
  uint64_t span = 0;
  const bool fits = !__builtin_mul_overflow(height - 1, pitch, &rows) &&
                    !__builtin_mul_overflow(depth - 1, slice, &slices) &&
                    !__builtin_add_overflow(rows, slices, &span) &&
                    !__builtin_add_overflow(span, width, &span);
  return fits ? span : kTooManyBytes;
}

}  // namespace openmps::cuda
