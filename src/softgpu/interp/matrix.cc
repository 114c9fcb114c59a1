// SPDX-License-Identifier: Apache-2.0
// mma and wmma.mma: fragments of all lanes become matrices, and what the tensor cores make of them
// becomes fragments again. Run by the interpreter, on its thread.
#include <cstring>

#include "softgpu/interp/block.h"
#include "softgpu/interp/tensor_core.h"
#include "softgpu/ir/matrix_codes.h"

namespace openmps::softgpu {
namespace {

#include "softgpu/interp/lane_math.h"

// The four quarters of a warp that compute matrices of their own (m8n8k4 of f16), else one.
constexpr u32 kMostBatches = 4;
constexpr u32 kMostFloats = 512;  // elements of A or B: 16 x 32
constexpr u32 kMostInts = 4096;   // bits of A: 16 x 256

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

// Calls visit(place, bits) for each element of a fragment.
template <class P, class F>
void each_element(const std::byte* regs, const int32_t* offsets, u32 count, Element element,
                  P place, F visit) {
  const u32 bits = element_bits(element), each = Layout::per_register(element);
  const u32 slots = count * each;
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    for (u32 slot = 0; slot < slots; ++slot) {
      const std::byte* at = regs + offsets[slot / each];
      u64 value = 0;
      if (bits == 64) {
        std::memcpy(&value, at + 8 * lane, 8);
      } else {
        std::memcpy(&value, at + 4 * lane, 4);
      }
      if (bits < 32) value = value >> (slot % each * bits) & ((1u << bits) - 1);
      visit(place(lane, slot, slots), value);
    }
  }
}

// Stores what value(place) gives in the fragment of D, for the lanes of `mask`.
template <class P, class F>
void write_result(std::byte* regs, const int32_t* offsets, u32 count, Element element, u32 mask,
                  P place, F value) {
  const u32 bits = element_bits(element), each = Layout::per_register(element);
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    if (!(mask >> lane & 1)) continue;
    for (u32 i = 0; i < count; ++i) {
      u64 word = 0;
      for (u32 e = 0; e < each; ++e) {
        word |= static_cast<u64>(value(place(lane, i * each + e, count * each))) << (e * bits);
      }
      std::memcpy(regs + offsets[i] + (bits == 64 ? 8 : 4) * lane, &word, bits == 64 ? 8 : 4);
    }
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
  u32 a[kMostFloats], b[kMostFloats], c[kMostBatches * 256], d[kMostBatches * 256];
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

void multiply_floats(const MatrixCode& code, const Operands& o, std::byte* regs, u32 mask) {
  static thread_local FloatWork work;
  const Layout layout(code);
  const auto index = [&](u32 rows, u32 columns) {
    return [=](const Place& p) { return (p.batch * rows + p.row) * columns + p.column; };
  };
  const auto a_at = index(code.m, code.k), b_at = index(code.k, code.n),
             c_at = index(code.m, code.n);
  each_element(
      regs, o.a, o.a_count, code.a,
      [&](u32 lane, u32 slot, u32 slots) { return layout.a(lane, slot, slots); },
      [&](const Place& p, u64 bits) { work.a[a_at(p)] = static_cast<u32>(bits); });
  each_element(
      regs, o.b, o.b_count, code.b,
      [&](u32 lane, u32 slot, u32 slots) { return layout.b(lane, slot, slots); },
      [&](const Place& p, u64 bits) { work.b[b_at(p)] = static_cast<u32>(bits); });
  each_element(
      regs, o.c, o.c_count, code.c,
      [&](u32 lane, u32 slot, u32 slots) { return layout.c(lane, slot, slots, code.c); },
      [&](const Place& p, u64 bits) { work.c[c_at(p)] = static_cast<u32>(bits); });
  if (layout.quarter) {
    multiply_quarters(code, &work);
  } else {
    matrix::multiply(
        {code.a, code.b, code.c, code.d, code.m, code.n, code.k, work.a, work.b, work.c, work.d});
  }
  write_result(
      regs, o.d, o.d_count, code.d, mask,
      [&](u32 lane, u32 slot, u32 slots) { return layout.c(lane, slot, slots, code.d); },
      [&](const Place& p) { return work.d[c_at(p)]; });
}

// One fused multiply-add after the other.
void multiply_doubles(const MatrixCode& code, const Operands& o, std::byte* regs, u32 mask) {
  f64 a[16 * 16], b[16 * 8], c[16 * 8];
  const Layout layout(code);
  each_element(
      regs, o.a, o.a_count, code.a,
      [&](u32 lane, u32 slot, u32 slots) { return layout.a(lane, slot, slots); },
      [&](const Place& p, u64 bits) { a[p.row * code.k + p.column] = double_of(bits); });
  each_element(
      regs, o.b, o.b_count, code.b,
      [&](u32 lane, u32 slot, u32 slots) { return layout.b(lane, slot, slots); },
      [&](const Place& p, u64 bits) { b[p.row * code.n + p.column] = double_of(bits); });
  each_element(
      regs, o.c, o.c_count, code.c,
      [&](u32 lane, u32 slot, u32 slots) { return layout.c(lane, slot, slots, code.c); },
      [&](const Place& p, u64 bits) { c[p.row * code.n + p.column] = double_of(bits); });
  for (u32 row = 0; row < code.m; ++row) {
    for (u32 column = 0; column < code.n; ++column) {
      for (u32 i = 0; i < code.k; ++i) {
        f64& sum = c[row * code.n + column];
        const f64 y = b[i * code.n + column];
        sum = last_nan(last_nan(fused(a[row * code.k + i], y, sum), sum), y);
      }
    }
  }
  write_result(
      regs, o.d, o.d_count, code.d, mask,
      [&](u32 lane, u32 slot, u32 slots) { return layout.c(lane, slot, slots, code.d); },
      [&](const Place& p) { return bits_of(c[p.row * code.n + p.column]); });
}

s32 integer_of(u64 bits, Element element) {
  switch (element) {
    case Element::kS8: return (s8)bits;
    case Element::kS4: return (s32)((u32)bits << 28) >> 28;
    default: return (s32)bits;
  }
}

void multiply_integers(const MatrixCode& code, const Operands& o, std::byte* regs, u32 mask) {
  s16 a[kMostInts], b[kMostInts / 2];
  s64 c[256];
  const Layout layout(code);
  each_element(
      regs, o.a, o.a_count, code.a,
      [&](u32 lane, u32 slot, u32 slots) { return layout.a(lane, slot, slots); },
      [&](const Place& p, u64 bits) {
        a[p.row * code.k + p.column] = (s16)integer_of(bits, code.a);
      });
  each_element(
      regs, o.b, o.b_count, code.b,
      [&](u32 lane, u32 slot, u32 slots) { return layout.b(lane, slot, slots); },
      [&](const Place& p, u64 bits) {
        b[p.column * code.k + p.row] = (s16)integer_of(bits, code.b);
      });
  each_element(
      regs, o.c, o.c_count, code.c,
      [&](u32 lane, u32 slot, u32 slots) { return layout.c(lane, slot, slots, code.c); },
      [&](const Place& p, u64 bits) { c[p.row * code.n + p.column] = (s32)bits; });
  const bool bits = code.a == Element::kB1;
  for (u32 row = 0; row < code.m; ++row) {
    for (u32 column = 0; column < code.n; ++column) {
      s64& sum = c[row * code.n + column];
      for (u32 i = 0; i < code.k; ++i) {
        const s16 x = a[row * code.k + i], y = b[column * code.k + i];
        sum += !bits ? s64{x} * y : code.exclusive_or ? x ^ y : x & y;
      }
      if (code.saturate) sum = clamp_s32(sum);
    }
  }
  write_result(
      regs, o.d, o.d_count, code.d, mask,
      [&](u32 lane, u32 slot, u32 slots) { return layout.c(lane, slot, slots, code.d); },
      [&](const Place& p) { return (u32)c[p.row * code.n + p.column]; });
}

// imm: MatrixCode; aux: the counts of registers of D, A, B and C, four bits each; extra: these.
const Op* h_matrix_multiply(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  const MatrixCode code = MatrixCode::decode(op->imm);
  const Operands operands = operands_of(op);
  warp->fuel -= static_cast<int64_t>(code.m);
  if (code.d == Element::kF64) {
    multiply_doubles(code, operands, regs, mask);
  } else if (code.d == Element::kS32) {
    multiply_integers(code, operands, regs, mask);
  } else {
    multiply_floats(code, operands, regs, mask);
  }
  SOFTGPU_NEXT(op + 1);
}

}  // namespace

void add_matrix_handlers(HandlerTable* table) {
  table->handlers[static_cast<size_t>(IrOp::k_matrix_multiply)] = h_matrix_multiply;
}

}  // namespace openmps::softgpu
