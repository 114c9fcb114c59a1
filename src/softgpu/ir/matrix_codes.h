// SPDX-License-Identifier: Apache-2.0
// Small numbers in Op::imm and Op::aux of matrix ops, which lower_matrix.cc writes and
// interp/matrix.cc and interp/matrix_memory.cc read.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

enum class Element : uint8_t {
  kF16,
  kBF16,
  kTF32,
  kE4M3,
  kE5M2,
  kF32,
  kF64,
  kS32,
  kU8,
  kS8,
  kU4,
  kS4,
  kB1
};

constexpr uint32_t element_bits(Element element) {
  switch (element) {
    case Element::kF16:
    case Element::kBF16: return 16;
    case Element::kE4M3:
    case Element::kE5M2:
    case Element::kU8:
    case Element::kS8: return 8;
    case Element::kU4:
    case Element::kS4: return 4;
    case Element::kB1: return 1;
    case Element::kF64: return 64;
    default: return 32;
  }
}

// D = A * B + C with A of m x k, B of k x n. `linear`: wmma, whose fragments have an order of our
// own; else that of mma in the PTX manual.
struct MatrixCode {
  uint32_t m = 0, n = 0, k = 0;
  Element a = Element::kF16, b = Element::kF16, c = Element::kF32, d = Element::kF32;
  bool linear = false;
  bool a_by_columns = false, b_by_rows = false;  // m8n8k4 of f16: changes the fragments
  bool saturate = false;
  bool exclusive_or = false;  // b1: xor instead of and

  [[nodiscard]] uint64_t encode() const {
    return m | n << 6 | uint64_t{k} << 12 | static_cast<uint64_t>(a) << 21 |
           static_cast<uint64_t>(b) << 25 | static_cast<uint64_t>(c) << 29 |
           static_cast<uint64_t>(d) << 33 | uint64_t{linear} << 37 | uint64_t{a_by_columns} << 38 |
           uint64_t{b_by_rows} << 39 | uint64_t{saturate} << 40 | uint64_t{exclusive_or} << 41;
  }
  static MatrixCode decode(uint64_t code) {
    const auto element = [&](int at) { return static_cast<Element>(code >> at & 15); };
    const auto flag = [&](int at) { return (code >> at & 1) != 0; };
    return {static_cast<uint32_t>(code & 63),
            static_cast<uint32_t>(code >> 6 & 63),
            static_cast<uint32_t>(code >> 12 & 511),
            element(21),
            element(25),
            element(29),
            element(33),
            flag(37),
            flag(38),
            flag(39),
            flag(40),
            flag(41)};
  }
};

// wmma.load and wmma.store: the part of a matrix of `major` x `minor` elements, where those of one
// `major` index follow each other in memory, that each lane has. Sub-byte elements count as words.
struct FragmentCode {
  uint32_t rows = 0, columns = 0;
  uint32_t bits = 32;  // of an element, at least 8
  uint32_t registers = 1;
  bool by_columns = false;        // in memory
  bool order_by_columns = false;  // of the elements among lanes: B
  bool shared = false;            // 32-bit addresses

  [[nodiscard]] uint32_t encode() const {
    return rows | columns << 6 | bits << 12 | registers << 19 |
           static_cast<uint32_t>(by_columns) << 23 | static_cast<uint32_t>(order_by_columns) << 24 |
           static_cast<uint32_t>(shared) << 25;
  }
  static FragmentCode decode(uint32_t aux) {
    return {aux & 63,
            aux >> 6 & 63,
            aux >> 12 & 127,
            aux >> 19 & 15,
            (aux >> 23 & 1) != 0,
            (aux >> 24 & 1) != 0,
            (aux >> 25 & 1) != 0};
  }
};

// ldmatrix and stmatrix: matrices of 8 x 8 elements of 16 bits.
struct TileCode {
  uint32_t count = 1;  // matrices
  bool transposed = false;
  bool shared = false;

  [[nodiscard]] uint32_t encode() const {
    return count | static_cast<uint32_t>(transposed) << 3 | static_cast<uint32_t>(shared) << 4;
  }
  static TileCode decode(uint32_t aux) {
    return {aux & 7, (aux >> 3 & 1) != 0, (aux >> 4 & 1) != 0};
  }
};

// wgmma.mma_async: D = A * B + D with A of 64 x k, B of k x n; in shared memory K comes first
// unless transposed (MN first).
struct GroupMatrixCode {
  uint32_t n = 0, k = 0;
  Element a = Element::kF16, b = Element::kF16, d = Element::kF32;
  bool negate_a = false, negate_b = false;
  bool transpose_a = false, transpose_b = false;
  bool a_in_registers = false;
  bool saturate = false;

  [[nodiscard]] uint64_t encode() const {
    return n | uint64_t{k} << 9 | static_cast<uint64_t>(a) << 18 | static_cast<uint64_t>(b) << 22 |
           static_cast<uint64_t>(d) << 26 | uint64_t{negate_a} << 30 | uint64_t{negate_b} << 31 |
           uint64_t{transpose_a} << 32 | uint64_t{transpose_b} << 33 |
           uint64_t{a_in_registers} << 34 | uint64_t{saturate} << 35;
  }
  static GroupMatrixCode decode(uint64_t code) {
    const auto element = [&](int at) { return static_cast<Element>(code >> at & 15); };
    const auto flag = [&](int at) { return (code >> at & 1) != 0; };
    return {static_cast<uint32_t>(code & 511),
            static_cast<uint32_t>(code >> 9 & 511),
            element(18),
            element(22),
            element(26),
            flag(30),
            flag(31),
            flag(32),
            flag(33),
            flag(34),
            flag(35)};
  }
};

}  // namespace openmps::softgpu
