// SPDX-License-Identifier: Apache-2.0
// Products of matrices as tensor cores compute them, for mma and wmma (matrix.cc) and wgmma
// (group_matrix.cc). Pure functions; any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "softgpu/interp/matrix_math.h"
#include "softgpu/interp/tile_product.h"
#include "softgpu/ir/matrix_codes.h"

namespace openmps::softgpu::matrix {

// Of a thread, from when it first multiplies: most threads of a process never do.
template <class T>
T& workspace() {
  static thread_local std::unique_ptr<T> made;
  if (made == nullptr) made = std::make_unique<T>();
  return *made;
}

// The number that the low bits are; TF32 lies in the upper bits of an f32.
Number number_of(uint64_t bits, Element element);

// The largest tile.
inline constexpr uint32_t kMostRows = kTileRows, kMostColumns = kTileMostColumns;
inline constexpr uint32_t kMostTerms = 32;  // of one sum

// D = A * B + C; all as bits.
struct Tile {
  Element a_type = Element::kF16, b_type = Element::kF16;
  Element c_type = Element::kF32, d_type = Element::kF32;  // f32 or f16
  uint32_t rows = 0, columns = 0, depth = 0;
  const uint32_t* a = nullptr;  // rows x depth
  const uint32_t* b = nullptr;  // depth x columns
  const uint32_t* c = nullptr;  // rows x columns
  uint32_t* d = nullptr;        // rows x columns
  bool by_group = false;        // wgmma, which adds products of FP8 in a way of its own
};
void multiply(const Tile& tile);

// As tile_product.h says.
bool multiply(const DoubleProduct& product);
void multiply(const IntegerProduct& product);

}  // namespace openmps::softgpu::matrix
