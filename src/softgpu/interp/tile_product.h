// SPDX-License-Identifier: Apache-2.0
// Products of matrices for many columns at once (tile_product.cc): of floating-point numbers that
// are all finite, as matrix_math.h has them for one; of f64; of integers. Plain data: compiled once
// per instruction set.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

// Columns are padded with zeros to a multiple of this.
inline constexpr uint32_t kTileColumns = 16;
// The largest tile: with 16 products a sum fits, see multiply_tile().
inline constexpr uint32_t kTileRows = 32, kTileDepth = 16, kTileMostColumns = 256;

// An IEEE format: its bits are `bits >> unused`.
struct TileFormat {
  int32_t unused, exponent_bits, mantissa_bits;
};

struct TileProduct {
  uint32_t rows, columns, depth;
  TileFormat factor, addend;
  const uint32_t* a;  // rows x depth
  const uint32_t* b;  // depth x columns
  const uint32_t* c;  // rows x columns
  // rows x columns: exact sums, and the largest exponent in each; of the bits that take part the
  // smallest is `fraction` below it.
  int32_t fraction;
  int64_t* sum;
  int32_t* largest;
};

// False: a number is not finite, nothing has been computed.
using MultiplyTile = bool (*)(const TileProduct& tile);

// D = A * B + C, one fused multiply-add after the other.
struct DoubleProduct {
  uint32_t rows, columns, depth;  // columns: a multiple of kDoubleColumns
  const double* a;                // rows x depth
  const double* b;                // depth x columns
  const double* c;                // rows x columns
  double* d;                      // rows x columns
};
inline constexpr uint32_t kDoubleColumns = 8;

// False: one of D is a NaN, of no payload in particular.
using MultiplyDoubles = bool (*)(const DoubleProduct& product);

// D = A * B + C in 32 bits; A * B always fits.
struct IntegerProduct {
  uint32_t rows, columns, depth;  // columns: a multiple of kTileColumns
  bool exclusive_or;              // of elements, instead of products
  bool saturate;
  const int32_t* a;  // rows x depth
  const int32_t* b;  // depth x columns
  const int32_t* c;  // rows x columns
  int32_t* d;        // rows x columns
};

using MultiplyIntegers = void (*)(const IntegerProduct& product);

}  // namespace openmps::softgpu
