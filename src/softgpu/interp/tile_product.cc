// SPDX-License-Identifier: Apache-2.0
// See tile_product.h. Compiled once per instruction set (SOFTGPU_ISA), like lanes.cc, and so
// without headers that have inline functions. Run by the interpreter, on its thread.
#include "softgpu/interp/tile_product.h"

namespace openmps::softgpu::SOFTGPU_ISA {
namespace {

typedef int32_t Vector __attribute__((vector_size(4 * kTileColumns)));
typedef uint32_t Bits __attribute__((vector_size(4 * kTileColumns)));
typedef double Doubles __attribute__((vector_size(8 * kDoubleColumns)));

// Of the number 0: smaller than the sum of any two others.
constexpr int32_t kNoExponent = -(1 << 20);

// By reference: how vectors are passed depends on the instruction set.
inline __attribute__((always_inline)) void load(Vector& to, const int32_t* from) {
  __builtin_memcpy(&to, from, sizeof to);
}

// Moves `value` up by `up` and down by how much its exponent is below the largest, toward zero.
inline __attribute__((always_inline)) void align(Vector& value, const Vector& largest,
                                                 const Vector& exponent, int32_t up) {
  const Vector below = largest - exponent, sign = value >> 31;
  const Vector distance = below > 31 ? Vector{} + 31 : below;
  const Bits magnitude = (Bits)((value ^ sign) - sign) << up;
  value = ((Vector)(magnitude >> (Bits)distance) ^ sign) - sign;
}

// Significands with their sign, and exponents.
template <uint32_t kCount>
struct Numbers {
  int32_t significand[kCount], exponent[kCount];
};

// Rows of `columns` numbers become rows of `stride`. False: one is not finite.
template <uint32_t kCount>
bool split(const uint32_t* from, uint32_t rows, uint32_t columns, uint32_t stride,
           const TileFormat& format, Numbers<kCount>* to) {
  const int32_t all = (1 << format.exponent_bits) - 1, hidden = 1 << format.mantissa_bits;
  const int32_t bias = all / 2, sign_at = format.exponent_bits + format.mantissa_bits;
  int32_t infinite = 0;
  for (uint32_t row = 0; row < rows; ++row) {
    int32_t* significand = to->significand + row * stride;
    int32_t* exponent = to->exponent + row * stride;
    for (uint32_t i = 0; i < columns; ++i) {
      const auto bits = static_cast<int32_t>(from[row * columns + i] >> format.unused);
      const int32_t biased = bits >> format.mantissa_bits & all;
      const int32_t size = (bits & (hidden - 1)) | (biased != 0 ? hidden : 0);
      infinite |= biased == all;
      significand[i] = bits >> sign_at & 1 ? -size : size;
      exponent[i] = size == 0 ? kNoExponent : (biased == 0 ? 1 : biased) - bias;
    }
    for (uint32_t i = columns; i < stride; ++i) significand[i] = 0, exponent[i] = kNoExponent;
  }
  return infinite == 0;
}

}  // namespace

bool multiply_tile(const TileProduct& tile) {
  Numbers<kTileRows * kTileDepth> a;
  Numbers<kTileDepth * kTileMostColumns> b;
  Numbers<kTileMostColumns> c;
  const uint32_t stride = (tile.columns + kTileColumns - 1) / kTileColumns * kTileColumns;
  if (!split(tile.a, tile.rows, tile.depth, tile.depth, tile.factor, &a) ||
      !split(tile.b, tile.depth, tile.columns, stride, tile.factor, &b)) {
    return false;
  }
  // How far significands are moved up to begin with: then they have at most 27 bits.
  const int32_t product_up = tile.fraction - 2 * tile.factor.mantissa_bits;
  const int32_t addend_up = tile.fraction - tile.addend.mantissa_bits;
  for (uint32_t row = 0; row < tile.rows; ++row) {
    if (!split(tile.c + row * tile.columns, 1, tile.columns, stride, tile.addend, &c)) return false;
    const int32_t* factors = a.significand + row * tile.depth;
    const int32_t* exponents = a.exponent + row * tile.depth;
    for (uint32_t column = 0; column < tile.columns; column += kTileColumns) {
      Vector c_exponent, exponent, largest, even, odd = {}, product;
      load(c_exponent, c.exponent + column);
      largest = c_exponent;
      for (uint32_t k = 0; k < tile.depth; ++k) {
        load(exponent, b.exponent + k * stride + column);
        exponent += exponents[k];
        largest = exponent > largest ? exponent : largest;
      }
      // Eight products of 27 bits fit into 32, sixteen don't.
      load(even, c.significand + column);
      align(even, largest, c_exponent, addend_up);
      for (uint32_t k = 0; k < tile.depth; ++k) {
        load(exponent, b.exponent + k * stride + column);
        exponent += exponents[k];
        load(product, b.significand + k * stride + column);
        product *= factors[k];
        align(product, largest, exponent, product_up);
        (k % 2 == 0 ? even : odd) += product;
      }
      const uint32_t left = tile.columns - column,
                     count = left < kTileColumns ? left : kTileColumns;
      for (uint32_t i = 0; i < count; ++i) {
        tile.sum[row * tile.columns + column + i] = int64_t{even[i]} + odd[i];
        tile.largest[row * tile.columns + column + i] = largest[i];
      }
    }
  }
  return true;
}

bool multiply_doubles(const DoubleProduct& product) {
  bool ordered = true;
  for (uint32_t row = 0; row < product.rows; ++row) {
    const double* factors = product.a + row * product.depth;
    for (uint32_t column = 0; column < product.columns; column += kDoubleColumns) {
      const uint32_t at = row * product.columns + column;
      Doubles sum;
      __builtin_memcpy(&sum, product.c + at, sizeof sum);
      for (uint32_t k = 0; k < product.depth; ++k) {
        const double* b = product.b + k * product.columns + column;
        for (uint32_t i = 0; i < kDoubleColumns; ++i) {
          sum[i] = __builtin_fma(factors[k], b[i], sum[i]);
        }
      }
      for (uint32_t i = 0; i < kDoubleColumns; ++i) ordered &= sum[i] == sum[i];
      __builtin_memcpy(product.d + at, &sum, sizeof sum);
    }
  }
  return ordered;
}

void multiply_integers(const IntegerProduct& product) {
  for (uint32_t row = 0; row < product.rows; ++row) {
    const int32_t* factors = product.a + row * product.depth;
    for (uint32_t column = 0; column < product.columns; column += kTileColumns) {
      Vector even = {}, odd = {}, b;
      for (uint32_t k = 0; k < product.depth; ++k) {
        load(b, product.b + k * product.columns + column);
        if (product.exclusive_or) {
          b ^= factors[k];
        } else {
          b *= factors[k];
        }
        (k % 2 == 0 ? even : odd) += b;
      }
      even += odd;
      load(b, product.c + row * product.columns + column);
      odd = even + b;
      // An overflow has another sign than both.
      if (product.saturate) odd = ((even ^ odd) & (b ^ odd)) < 0 ? (b >> 31) ^ 0x7fffffff : odd;
      __builtin_memcpy(product.d + row * product.columns + column, &odd, sizeof odd);
    }
  }
}

}  // namespace openmps::softgpu::SOFTGPU_ISA
