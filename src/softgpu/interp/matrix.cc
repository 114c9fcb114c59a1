// SPDX-License-Identifier: Apache-2.0
// mma and wmma.mma: fragments of all lanes become matrices, and what the tensor cores make of them
// becomes fragments again. Run by the interpreter, on its thread.
#include <array>
#include <cassert>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>

#include "softgpu/interp/block.h"
#include "softgpu/interp/tensor_core.h"
#include "softgpu/ir/matrix_codes.h"

namespace openmps::softgpu {
namespace {

#include "softgpu/interp/lane_math.h"

// The four quarters of a warp that compute matrices of their own (m8n8k4 of f16), else one.
constexpr u32 kMostBatches = 4;
constexpr u32 kMostFloats = 512;    // elements of A or B: 16 x 32
constexpr u32 kMostInts = 4096;     // bits of A: 16 x 256
constexpr u32 kMostSums = 256;      // elements of C or D
constexpr u32 kMostSlots = 4 * 32;  // elements in a lane's part of A: four registers of bits

struct Place {
  u32 row, column, batch;
};

bool is_quarter_warp(const MatrixCode& code) {
  return !code.linear && code.k == 4 && code.a == Element::kF16;
}

// Which element is in `slot` of `lane`: the layouts of the PTX manual, for registers of 32 bits
// with several elements each, or of 64 with one.
struct Layout {
  explicit Layout(const MatrixCode& made) : code(made), quarter(is_quarter_warp(made)) {}

  [[nodiscard]] Place a(u32 lane, u32 slot, u32 slots) const {
    if (code.linear) {
      const u32 at = (lane * slots + slot) % (code.m * code.k);
      return {at / code.k, at % code.k, 0};
    }
    if (quarter) {
      const u32 base = lane & 16 ? 4 : 0;
      if (code.a_by_columns) return {base + slot % 4, lane % 4, lane % 16 / 4};
      return {base + lane % 4, slot, lane % 16 / 4};
    }
    const u32 each = per_register(code.a), index = slot / each;
    const u32 row = lane / 4 + (code.m == 16 ? 8 * (index & 1) : 0);
    const u32 block = code.m == 16 ? index >> 1 : index;
    return {row, lane % 4 * each + slot % each + block * 4 * each, 0};
  }
  [[nodiscard]] Place b(u32 lane, u32 slot, u32 slots) const {
    if (code.linear) {
      const u32 at = (lane * slots + slot) % (code.n * code.k);
      return {at % code.k, at / code.k, 0};
    }
    if (quarter) {
      const u32 base = lane & 16 ? 4 : 0;
      if (code.b_by_rows) return {lane % 4, base + slot % 4, lane % 16 / 4};
      return {slot, base + lane % 4, lane % 16 / 4};
    }
    const u32 each = per_register(code.b);
    return {lane % 4 * each + slot % each + slot / each * 4 * each, lane / 4, 0};
  }
  [[nodiscard]] Place c(u32 lane, u32 slot, u32 slots, Element element) const {
    if (code.linear) {
      const u32 at = (lane * slots + slot) % (code.m * code.n);
      return {at / code.n, at % code.n, 0};
    }
    if (quarter) {
      const u32 base = lane & 16 ? 4 : 0, batch = lane % 16 / 4;
      if (element == Element::kF16) return {base + lane % 4, slot, batch};
      return {base + (lane & 1) + (slot & 2), (slot & 4) + (lane & 2) + (slot & 1), batch};
    }
    return {lane / 4 + 8 * (slot >> 1), lane % 4 * 2 + (slot & 1), 0};
  }
  static u32 per_register(Element element) {
    return element_bits(element) >= 32 ? 1 : 32 / element_bits(element);
  }

  MatrixCode code;
  bool quarter;
};

// The operands of one matrix op in the frame: registers of D, A, B, C.
struct Operands {
  const int32_t *d, *a, *b, *c;
  u32 d_count, a_count, b_count, c_count;
};
Operands operands_of(const Op* op) {
  Operands o;
  o.d_count = op->aux & 15, o.a_count = op->aux >> 4 & 15;
  o.b_count = op->aux >> 8 & 15, o.c_count = op->aux >> 12 & 15;
  o.d = op->extra, o.a = o.d + o.d_count, o.b = o.a + o.a_count, o.c = o.b + o.b_count;
  return o;
}

// Where the elements of a fragment are in their matrix, lane after lane.
using Places = std::array<u16, kWarpSize * kMostSlots>;

// Those of one kind of instruction. B, C and D have rows of `stride`.
struct Fragments {
  Fragments(const MatrixCode& code, const Operands& o) : stride(stride_of(code)) {
    const Layout layout(code);
    const auto fill = [](u32 count, Element element, u32 rows, u32 columns, Places* to,
                         const auto& place) {
      const u32 slots = count * Layout::per_register(element);
      assert(slots <= kMostSlots && "more elements than any shape has");
      for (u32 i = 0; i < kWarpSize * slots; ++i) {
        const Place p = place(i / slots, i % slots, slots);
        (*to)[i] = static_cast<u16>((p.batch * rows + p.row) * columns + p.column);
      }
    };
    fill(o.a_count, code.a, code.m, code.k, &a,
         [&](u32 lane, u32 slot, u32 slots) { return layout.a(lane, slot, slots); });
    fill(o.b_count, code.b, code.k, stride, &b,
         [&](u32 lane, u32 slot, u32 slots) { return layout.b(lane, slot, slots); });
    fill(o.c_count, code.c, code.m, stride, &c,
         [&](u32 lane, u32 slot, u32 slots) { return layout.c(lane, slot, slots, code.c); });
    fill(o.d_count, code.d, code.m, stride, &d,
         [&](u32 lane, u32 slot, u32 slots) { return layout.c(lane, slot, slots, code.d); });
  }

  // Integers are multiplied in whole vectors of columns.
  static u32 stride_of(const MatrixCode& code) {
    if (code.d != Element::kS32) return code.n;
    return (code.n + kTileColumns - 1) / kTileColumns * kTileColumns;
  }

  u32 stride;
  Places a, b, c, d;
};

// Computed when a thread first comes to such an instruction.
const Fragments& fragments_of(const Op* op, const MatrixCode& code, const Operands& o) {
  using Key = std::pair<u64, u32>;
  struct Known {
    std::map<Key, Fragments> all;
    Key last_key;
    const Fragments* last = nullptr;
  };
  auto& known = matrix::workspace<Known>();
  const Key key(op->imm, op->aux);
  if (known.last == nullptr || known.last_key != key) {
    known.last = &known.all.try_emplace(key, code, o).first->second;
    known.last_key = key;
  }
  return *known.last;
}

// Calls visit(place, bits) for each element of a fragment with so many bits.
template <u32 bits, class F>
void each_element_of(const std::byte* regs, const int32_t* offsets, u32 count, const u16* places,
                     F visit) {
  using Word = std::conditional_t<bits == 64, u64, u32>;
  constexpr u32 each = bits >= 32 ? 1 : 32 / bits;
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    for (u32 i = 0; i < count; ++i) {
      Word word;
      std::memcpy(&word, regs + offsets[i] + sizeof word * lane, sizeof word);
      for (u32 e = 0; e < each; ++e) {
        if constexpr (bits >= 32) {
          visit(*places++, word);
        } else {
          visit(*places++, word >> (e * bits) & ((1u << bits) - 1));
        }
      }
    }
  }
}
template <class F>
void each_element(const std::byte* regs, const int32_t* offsets, u32 count, Element element,
                  const Places& places, F visit) {
  switch (element_bits(element)) {
    case 1: return each_element_of<1>(regs, offsets, count, places.data(), visit);
    case 4: return each_element_of<4>(regs, offsets, count, places.data(), visit);
    case 8: return each_element_of<8>(regs, offsets, count, places.data(), visit);
    case 16: return each_element_of<16>(regs, offsets, count, places.data(), visit);
    case 32: return each_element_of<32>(regs, offsets, count, places.data(), visit);
    default: return each_element_of<64>(regs, offsets, count, places.data(), visit);
  }
}

// Stores what value(place) gives in the fragment of D, for the lanes of `mask`.
template <u32 bits, class F>
void write_result_of(std::byte* regs, const int32_t* offsets, u32 count, u32 mask,
                     const u16* places, F value) {
  using Word = std::conditional_t<bits == 64, u64, u32>;
  constexpr u32 each = bits >= 32 ? 1 : 32 / bits;
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    for (u32 i = 0; i < count; ++i, places += each) {
      if (!(mask >> lane & 1)) continue;
      Word word = 0;
      for (u32 e = 0; e < each; ++e) word |= static_cast<Word>(value(places[e])) << (e * bits);
      std::memcpy(regs + offsets[i] + sizeof word * lane, &word, sizeof word);
    }
  }
}
template <class F>
void write_result(std::byte* regs, const int32_t* offsets, u32 count, Element element, u32 mask,
                  const Places& places, F value) {
  switch (element_bits(element)) {
    case 16: return write_result_of<16>(regs, offsets, count, mask, places.data(), value);
    case 32: return write_result_of<32>(regs, offsets, count, mask, places.data(), value);
    default: return write_result_of<64>(regs, offsets, count, mask, places.data(), value);
  }
}

// The oldest shape, which newer architectures compute by ordinary multiply-adds, the addend last.
f32 dot_quarter(const u32* a, const u32* b, u32 stride, u32 k, f32 c) {
  const auto value = [](u32 bits) { return half_to_float((u16)bits); };
  f32 sum = value(a[0]) * value(b[0]);
  for (u32 i = 1; i < k; ++i) sum = fused(value(a[i]), value(b[i * stride]), sum);
  return sum + c;
}

struct FloatWork {
  // Bits, by rows.
  u32 a[kMostFloats], b[kMostFloats], c[kMostBatches * kMostSums], d[kMostBatches * kMostSums];
};

// The products of the four quarters of a warp.
void multiply_quarters(const MatrixCode& code, FloatWork* work) {
  for (u32 batch = 0; batch < kMostBatches; ++batch) {
    const u32* a = work->a + batch * code.m * code.k;
    const u32* b = work->b + batch * code.n * code.k;
    for (u32 row = 0; row < code.m; ++row) {
      for (u32 column = 0; column < code.n; ++column) {
        const u32 at = (batch * code.m + row) * code.n + column;
        const f32 c =
            code.c == Element::kF16 ? half_to_float((u16)work->c[at]) : float_of(work->c[at]);
        const f32 sum = dot_quarter(a + row * code.k, b + column, code.n, code.k, c);
        work->d[at] = code.d == Element::kF16 ? float_to_half(sum) : bits_of(canonical(sum));
      }
    }
  }
}

// Elements of k that wmma adds at once.
constexpr u32 kTF32Step = 4;

// So many elements of k at a time.
void multiply_by_steps(const MatrixCode& code, u32 step, FloatWork* work) {
  u32 a[matrix::kMostRows * kTF32Step];
  const u32* c = work->c;
  for (u32 begin = 0; begin < code.k; begin += step) {
    for (u32 i = 0; i < code.m * step; ++i) a[i] = work->a[i / step * code.k + begin + i % step];
    matrix::multiply(matrix::Tile{code.a, code.b, code.c, code.d, code.m, code.n, step, a,
                                  work->b + begin * code.n, c, work->d});
    c = work->d;
  }
}

void multiply_floats(const MatrixCode& code, const Operands& o, const Fragments& at,
                     std::byte* regs, u32 mask) {
  auto& work = matrix::workspace<FloatWork>();
  each_element(regs, o.a, o.a_count, code.a, at.a, [&](u32 i, u32 bits) { work.a[i] = bits; });
  each_element(regs, o.b, o.b_count, code.b, at.b, [&](u32 i, u32 bits) { work.b[i] = bits; });
  each_element(regs, o.c, o.c_count, code.c, at.c, [&](u32 i, u32 bits) { work.c[i] = bits; });
  if (is_quarter_warp(code)) {
    multiply_quarters(code, &work);
  } else if (code.linear && code.a == Element::kTF32) {
    multiply_by_steps(code, kTF32Step, &work);
  } else {
    matrix::multiply(matrix::Tile{code.a, code.b, code.c, code.d, code.m, code.n, code.k, work.a,
                                  work.b, work.c, work.d});
  }
  write_result(regs, o.d, o.d_count, code.d, mask, at.d, [&](u32 i) { return work.d[i]; });
}

// One fused multiply-add after the other, in the order of k.
void multiply_doubles(const MatrixCode& code, const Operands& o, const Fragments& at,
                      std::byte* regs, u32 mask) {
  f64 a[16 * 16], b[16 * 8], c[16 * 8], d[16 * 8];
  const auto put_in = [](f64* to) { return [to](u32 i, u64 bits) { to[i] = double_of(bits); }; };
  each_element(regs, o.a, o.a_count, code.a, at.a, put_in(a));
  each_element(regs, o.b, o.b_count, code.b, at.b, put_in(b));
  each_element(regs, o.c, o.c_count, code.c, at.c, put_in(c));
  // Which NaN comes out is asked only when there is one.
  if (!matrix::multiply(DoubleProduct{code.m, code.n, code.k, a, b, c, d})) {
    for (u32 i = 0; i < code.m * code.n; ++i) {
      const u32 row = i / code.n, column = i % code.n;
      d[i] = c[i];
      for (u32 k = 0; k < code.k; ++k) {
        const f64 y = b[k * code.n + column];
        d[i] = last_nan(last_nan(fused(a[row * code.k + k], y, d[i]), d[i]), y);
      }
    }
  }
  write_result(regs, o.d, o.d_count, code.d, mask, at.d, [&](u32 i) { return bits_of(d[i]); });
}

struct IntegerWork {
  // All but A have rows of whole vectors.
  s32 a[kMostInts], b[kMostInts], c[2 * kMostSums], d[2 * kMostSums];
};

void multiply_integers(const MatrixCode& code, const Operands& o, const Fragments& at,
                       std::byte* regs, u32 mask) {
  auto& work = matrix::workspace<IntegerWork>();
  const auto put_in = [](s32* to, Element element) {
    const bool has_sign = element == Element::kS8 || element == Element::kS4;
    const u32 above = has_sign ? 32 - element_bits(element) : 0;
    return [=](u32 i, u32 bits) { to[i] = (s32)(bits << above) >> above; };
  };
  each_element(regs, o.a, o.a_count, code.a, at.a, put_in(work.a, code.a));
  each_element(regs, o.b, o.b_count, code.b, at.b, put_in(work.b, code.b));
  each_element(regs, o.c, o.c_count, code.c, at.c, put_in(work.c, code.c));
  matrix::multiply(IntegerProduct{code.m, at.stride, code.k,
                                  code.a == Element::kB1 && code.exclusive_or, code.saturate,
                                  work.a, work.b, work.c, work.d});
  write_result(regs, o.d, o.d_count, code.d, mask, at.d, [&](u32 i) { return (u32)work.d[i]; });
}

// imm: MatrixCode; aux: the counts of registers of D, A, B and C, four bits each; extra: these.
const Op* h_matrix_multiply(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  const MatrixCode code = MatrixCode::decode(op->imm);
  const Operands operands = operands_of(op);
  const Fragments& at = fragments_of(op, code, operands);
  warp->fuel -= static_cast<int64_t>(code.m);
  if (code.d == Element::kF64) {
    multiply_doubles(code, operands, at, regs, mask);
  } else if (code.d == Element::kS32) {
    multiply_integers(code, operands, at, regs, mask);
  } else {
    multiply_floats(code, operands, at, regs, mask);
  }
  SOFTGPU_NEXT(op + 1);
}

}  // namespace

void add_matrix_handlers(HandlerTable* table) {
  table->handlers[static_cast<size_t>(IrOp::k_matrix_multiply)] = h_matrix_multiply;
}

}  // namespace openmps::softgpu
