// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Called by copy engines and, for synchronous copies, by the API thread itself.
#include "softgpu/device/copy.h"

#include <algorithm>
#include <cstring>

namespace openmps::softgpu {
namespace {

uint64_t extent_of(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch,
                   uint64_t slice) {
  uint64_t planes = 0;
  uint64_t rows = 0;
  uint64_t sum = 0;
  if (__builtin_mul_overflow(depth - 1, slice, &planes) ||
      __builtin_mul_overflow(height - 1, pitch, &rows) ||
      __builtin_add_overflow(planes, rows, &sum) || __builtin_add_overflow(sum, width, &sum))
    return UINT64_MAX;
  return sum;
}

template <typename T>
void fill_row(uint64_t destination, T value, uint64_t count) {
  std::fill_n(reinterpret_cast<T*>(destination), count, value);
}

}  // namespace

uint64_t CopyShape::source_extent() const {
  return empty() ? 0 : extent_of(width, height, depth, source_pitch, source_slice);
}

uint64_t CopyShape::destination_extent() const {
  return empty() ? 0 : extent_of(width, height, depth, destination_pitch, destination_slice);
}

uint64_t FillShape::extent() const {
  uint64_t row = 0;
  if (empty()) return 0;
  if (__builtin_mul_overflow(width, static_cast<uint64_t>(element), &row)) return UINT64_MAX;
  return extent_of(row, height, 1, pitch, 0);
}

CopyShape linear_copy(uint64_t destination, uint64_t source, uint64_t bytes) {
  CopyShape shape;
  shape.source = source;
  shape.destination = destination;
  shape.width = bytes;
  return shape;
}

void run_copy(const CopyShape& shape) {
  if (shape.empty()) return;
  for (uint64_t z = 0; z < shape.depth; ++z) {
    for (uint64_t y = 0; y < shape.height; ++y) {
      // memmove: source and destination may overlap within one allocation.
      memmove(reinterpret_cast<void*>(shape.destination + z * shape.destination_slice +
                                      y * shape.destination_pitch),
              reinterpret_cast<const void*>(shape.source + z * shape.source_slice +
                                            y * shape.source_pitch),
              shape.width);
    }
  }
}

void run_fill(const FillShape& shape) {
  for (uint64_t y = 0; y < shape.height; ++y) {
    uint64_t row = shape.destination + y * shape.pitch;
    if (shape.element == 1) fill_row(row, static_cast<uint8_t>(shape.value), shape.width);
    if (shape.element == 2) fill_row(row, static_cast<uint16_t>(shape.value), shape.width);
    if (shape.element == 4) fill_row(row, shape.value, shape.width);
  }
}

}  // namespace openmps::softgpu
