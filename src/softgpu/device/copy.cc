// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Called by copy engines and, for synchronous copies, by the API thread itself.
#include "softgpu/device/copy.h"

#include <algorithm>
#include <cstring>

#include "cuda/box.h"

namespace openmps::softgpu {
namespace {

template <typename T>
void fill_row(uint64_t destination, T value, uint64_t count) {
  std::fill_n(reinterpret_cast<T*>(destination), count, value);
}

}  // namespace

uint64_t CopyShape::source_extent() const {
  return cuda::span_of_box(width, height, depth, source_pitch, source_slice);
}

uint64_t CopyShape::destination_extent() const {
  return cuda::span_of_box(width, height, depth, destination_pitch, destination_slice);
}

uint64_t FillShape::extent() const {
  return cuda::span_of_box(cuda::bytes_of_row(width, element), height, 1, pitch, 0);
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
