// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Called by copy engines and, for synchronous copies, by the API thread itself.
#include "softgpu/device/schedule/copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cuda/box.h"

namespace openmps::softgpu {
namespace {

template <typename T>
void fill_row(uint64_t destination, T value, uint64_t count) {
  std::fill_n(reinterpret_cast<T*>(destination), count, value);
}

// Somebody may wait for a word that comes by itself: as a GPU does, it is stored whole, behind what
// came before. False: it does not lie at a multiple of its size.
template <typename Word>
bool store_word(uint64_t destination, Word value) {
  if (destination % sizeof(Word) != 0) return false;
  std::atomic_ref<Word>(*reinterpret_cast<Word*>(destination))
      .store(value, std::memory_order_release);
  return true;
}

template <typename Word>
bool copy_word(uint64_t destination, uint64_t source) {
  return source % sizeof(Word) == 0 &&
         store_word(destination, std::atomic_ref<Word>(*reinterpret_cast<Word*>(source))
                                     .load(std::memory_order_acquire));
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
  if (shape.height == 1 && shape.depth == 1) {
    if (shape.width == 4 && copy_word<uint32_t>(shape.destination, shape.source)) return;
    if (shape.width == 8 && copy_word<uint64_t>(shape.destination, shape.source)) return;
  }
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
  const bool is_word = shape.element == 4 && shape.width == 1 && shape.height == 1;
  if (is_word && store_word(shape.destination, shape.value)) return;
  for (uint64_t y = 0; y < shape.height; ++y) {
    uint64_t row = shape.destination + y * shape.pitch;
    if (shape.element == 1) fill_row(row, static_cast<uint8_t>(shape.value), shape.width);
    if (shape.element == 2) fill_row(row, static_cast<uint16_t>(shape.value), shape.width);
    if (shape.element == 4) fill_row(row, shape.value, shape.width);
  }
}

}  // namespace openmps::softgpu
