// SPDX-License-Identifier: Apache-2.0
// wgmma.mma_async: each of four warps multiplies its 16 rows of A, from its registers or from
// shared memory, with a matrix B in shared memory, which a descriptor says the place of. Run by the
// interpreter, on its thread.
#include <algorithm>
#include <cstring>
#include <string>

#include "softgpu/interp/block.h"
#include "softgpu/interp/tensor_core.h"
#include "softgpu/ir/matrix_codes.h"

namespace openmps::softgpu {
namespace {

constexpr uint32_t kRows = 16;          // of a warp
constexpr uint32_t kMostColumns = 256;  // of B
constexpr uint32_t kMostDepth = 256;    // k, of bits
constexpr uint32_t kMostFloatDepth = matrix::kMostTerms;

// A matrix in shared memory, as the 64-bit descriptor of the PTX ISA has it: rows of 16 bytes;
// eight rows are a core matrix.
class SharedMatrix {
 public:
  SharedMatrix(uint64_t descriptor, uint32_t element_bits, bool transposed)
      : bits_(element_bits), transposed_(transposed) {
    const auto bytes = [&](int at) {
      return static_cast<uint32_t>(descriptor >> at & 0x3fff) << 4;
    };
    start_ = bytes(0), leading_ = bytes(16), stride_ = bytes(32);
    pattern_ = static_cast<uint32_t>(descriptor >> 49 & 7);
    constexpr uint32_t kChunks[] = {1, 8, 4,
                                    2};  // that change places in a row: none, 128, 64, 32 bytes
    chunks_ = kChunks[descriptor >> 62];
  }

  // Where the element lies: its byte in shared memory, and its first bit there.
  struct Place {
    uint32_t byte, bit;
  };
  // `major`: row of A or column of B; `depth`: along k.
  [[nodiscard]] Place at(uint32_t major, uint32_t depth) const {
    const uint32_t row = transposed_ ? depth : major, bit = (transposed_ ? major : depth) * bits_;
    const uint32_t chunk = bit / kChunkBits, rest = bit % kChunkBits;
    uint32_t offset = row % 8 * chunks_ * kChunkBytes;
    if (chunks_ == 1) {
      // Core matrices one by one; along k the leading distance leads on.
      offset +=
          transposed_ ? row / 8 * leading_ + chunk * stride_ : row / 8 * stride_ + chunk * leading_;
    } else {
      offset += row / 8 * stride_ + chunk / chunks_ * leading_ + chunk % chunks_ * kChunkBytes;
    }
    uint32_t byte = start_ + offset;
    // A swizzle goes by the number of the 128-byte line in its pattern.
    byte ^= ((byte / kLine - pattern_) & (chunks_ - 1)) * kChunkBytes;
    return {byte + rest / 8, rest % 8};
  }

 private:
  static constexpr uint32_t kChunkBytes = 16, kChunkBits = 128, kLine = 128;
  uint32_t bits_;
  bool transposed_;
  uint32_t start_, leading_, stride_, pattern_, chunks_;
};

uint64_t first_of(const std::byte* regs, int32_t offset, uint32_t active) {
  uint64_t value;
  std::memcpy(&value, regs + offset + 8 * __builtin_ctz(active), sizeof value);
  return value;
}

// One warp's share of one instruction.
struct Share {
  const Op* op;
  Warp* warp;
  std::byte* regs;
  GroupMatrixCode code;

  [[nodiscard]] uint32_t word(const int32_t* offsets, uint32_t i, uint32_t lane) const {
    uint32_t value;
    std::memcpy(&value, regs + offsets[i] + 4 * lane, sizeof value);
    return value;
  }
  [[nodiscard]] const int32_t* before() const { return op->extra + op->aux; }
  [[nodiscard]] const int32_t* factor() const { return op->extra + 2 * op->aux; }

  // visit(row, depth, bits) for the elements of A. False: a fault has been raised.
  template <class F>
  bool read_a(F visit) const {
    const uint32_t bits = element_bits(code.a);
    if (!code.a_in_registers) {
      const SharedMatrix from(first_of(regs, op->a, warp->active), bits, code.transpose_a);
      const uint32_t first = warp->index % kGroupWarps * kRows;
      return read_shared(from, bits, first, kRows, visit);
    }
    const uint32_t each = 32 / bits;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t value = word(factor(), i, lane), row = lane / 4 + 8 * (i & 1);
        for (uint32_t e = 0; e < each; ++e) {
          const uint32_t depth = lane % 4 * each + e + (i >> 1) * 4 * each;
          visit(row, depth, bits == 32 ? value : value >> (e * bits) & ((1u << bits) - 1));
        }
      }
    }
    return true;
  }
  // visit(column, depth, bits) for those of B.
  template <class F>
  bool read_b(F visit) const {
    const uint32_t bits = element_bits(code.b);
    const SharedMatrix from(first_of(regs, op->b, warp->active), bits, code.transpose_b);
    return read_shared(from, bits, 0, code.n, visit);
  }
  template <class F>
  bool read_shared(const SharedMatrix& from, uint32_t bits, uint32_t first, uint32_t count,
                   F visit) const {
    const uint32_t bytes = bits < 8 ? 1 : bits / 8;
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t depth = 0; depth < code.k; ++depth) {
        const SharedMatrix::Place place = from.at(first + i, depth);
        if (place.byte + bytes > warp->shared_bytes) {
          warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, kSharedWindow | place.byte,
                             "matrix beyond shared memory, at byte " + std::to_string(place.byte));
          return false;
        }
        uint32_t value = 0;
        std::memcpy(&value, warp->shared + place.byte, bytes);
        visit(i, depth, bits < 8 ? value >> place.bit & ((1u << bits) - 1) : value);
      }
    }
    return true;
  }

  // Whether the product is added to what D holds, or is all.
  [[nodiscard]] bool adds() const {
    uint32_t lanes;
    std::memcpy(&lanes, regs + op->c, sizeof lanes);
    return (lanes >> __builtin_ctz(warp->active) & 1) != 0;
  }
  // Where the element in `slot` of a lane's registers of D is.
  struct Position {
    uint32_t row, column;
  };
  static Position position(uint32_t lane, uint32_t slot) {
    return {lane / 4 + 8 * (slot >> 1 & 1), slot / 4 * 8 + lane % 4 * 2 + (slot & 1)};
  }
  // visit(row, column, bits) for what D holds, 0 if nothing is added to it.
  template <class F>
  void read_sums(F visit) const {
    const uint32_t bits = element_bits(code.d), each = 32 / bits;
    const bool add = adds();
    for (uint32_t i = 0; i < op->aux; ++i) {
      for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
        const uint32_t old = add ? word(before(), i, lane) : 0;
        for (uint32_t e = 0; e < each; ++e) {
          const auto [row, column] = position(lane, i * each + e);
          visit(row, column, each == 1 ? old : old >> (bits * e % 32) & 0xffff);
        }
      }
    }
  }
  // D becomes value(row, column) in the lanes of `mask`.
  template <class F>
  void write_sums(uint32_t mask, F value) const {
    const uint32_t bits = element_bits(code.d), each = 32 / bits;
    for (uint32_t i = 0; i < op->aux; ++i) {
      for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
        if (!(mask >> lane & 1)) continue;
        uint32_t made = 0;
        for (uint32_t e = 0; e < each; ++e) {
          const auto [row, column] = position(lane, i * each + e);
          made |= value(row, column) << (bits * e % 32);
        }
        std::memcpy(regs + op->extra[i] + 4 * lane, &made, sizeof made);
      }
    }
  }
};

struct Floats {  // bits, by rows
  uint32_t a[kRows * kMostFloatDepth], b[kMostFloatDepth * kMostColumns];
  uint32_t c[kRows * kMostColumns], d[kRows * kMostColumns];
};

bool multiply_floats(const Share& share, uint32_t mask) {
  auto& work = matrix::workspace<Floats>();
  const GroupMatrixCode& code = share.code;
  const uint32_t sign = 1u << ((element_bits(code.a) - 1) % 32);
  const uint32_t sign_a = code.negate_a ? sign : 0, sign_b = code.negate_b ? sign : 0;
  if (!share.read_a([&](uint32_t row, uint32_t depth, uint32_t bits) {
        work.a[row * code.k + depth] = bits ^ sign_a;
      }) ||
      !share.read_b([&](uint32_t column, uint32_t depth, uint32_t bits) {
        work.b[depth * code.n + column] = bits ^ sign_b;
      })) {
    return false;
  }
  share.read_sums(
      [&](uint32_t row, uint32_t column, uint32_t bits) { work.c[row * code.n + column] = bits; });
  matrix::multiply({code.a, code.b, code.d, code.d, kRows, code.n, code.k, work.a, work.b, work.c,
                    work.d, true});
  share.write_sums(mask,
                   [&](uint32_t row, uint32_t column) { return work.d[row * code.n + column]; });
  return true;
}

struct Integers {
  int16_t a[kRows * kMostDepth], b[kMostColumns * kMostDepth];
  uint32_t d[kRows * kMostColumns];
};

bool multiply_integers(const Share& share, uint32_t mask) {
  auto& work = matrix::workspace<Integers>();
  const GroupMatrixCode& code = share.code;
  const auto integer = [](uint32_t bits, Element element) {
    return element == Element::kS8 ? static_cast<int16_t>(static_cast<int8_t>(bits))
                                   : static_cast<int16_t>(bits);
  };
  if (!share.read_a([&](uint32_t row, uint32_t depth, uint32_t bits) {
        work.a[row * code.k + depth] = integer(bits, code.a);
      }) ||
      !share.read_b([&](uint32_t column, uint32_t depth, uint32_t bits) {
        work.b[column * code.k + depth] = integer(bits, code.b);
      })) {
    return false;
  }
  share.read_sums([&](uint32_t row, uint32_t column, uint32_t bits) {
    const int16_t *a = work.a + row * code.k, *b = work.b + column * code.k;
    int32_t products = 0;  // at most 256 of 16 bits
    for (uint32_t i = 0; i < code.k; ++i) products += a[i] * b[i];
    int64_t sum = int64_t{static_cast<int32_t>(bits)} + products;
    if (code.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
    work.d[row * code.n + column] = static_cast<uint32_t>(sum);
  });
  share.write_sums(mask,
                   [&](uint32_t row, uint32_t column) { return work.d[row * code.n + column]; });
  return true;
}

// imm: GroupMatrixCode; a: descriptor of A unless in registers; b: of B; c: predicate, add to D;
// aux: registers of D; extra: those of D, D before, A.
const Op* h_group_multiply(const Op* op, Warp* warp, std::byte* regs, uint32_t mask) {
  const Share share{op, warp, regs, GroupMatrixCode::decode(op->imm)};
  warp->fuel -= static_cast<int64_t>(share.code.n) * 2;
  const bool done =
      share.code.d == Element::kS32 ? multiply_integers(share, mask) : multiply_floats(share, mask);
  if (!done) return nullptr;
  SOFTGPU_NEXT(op + 1);
}

}  // namespace

void add_group_matrix_handlers(HandlerTable* table) {
  table->handlers[static_cast<size_t>(IrOp::k_group_multiply)] = h_group_multiply;
}

}  // namespace openmps::softgpu
