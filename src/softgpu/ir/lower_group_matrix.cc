// SPDX-License-Identifier: Apache-2.0
// Lowering of wgmma, the matrix instructions of four warps together. Part of Builder. A product is
// computed when it is issued, by each warp for its own 16 rows; fence and wait_group bring the four
// warps together, so that no warp goes on while another has still to read shared memory.
#include "softgpu/ir/builder.h"
#include "softgpu/ir/matrix_types.h"

namespace openmps::softgpu::ir {
namespace {

// Registers of A for a warp's 16 rows, whatever the elements.
constexpr size_t kRegistersOfA = 4;

// The shapes and types of the PTX manual.
bool is_legal(const GroupMatrixCode& code) {
  const Family family = family_of(code.a);
  if (family_of(code.b) != family || code.n == 0 || code.n > 256 || code.n % 8 != 0) return false;
  // Integers have fewer widths.
  const bool integer_width = code.n <= 32 || code.n % 16 == 0;
  switch (family) {
    case Family::kHalf:
      return code.k == 16 && code.a == code.b &&
             (code.d == Element::kF32 || (code.d == Element::kF16 && code.a == Element::kF16));
    case Family::kTF32: return code.k == 8 && code.d == Element::kF32;
    case Family::kFP8: return code.k == 32 && (code.d == Element::kF32 || code.d == Element::kF16);
    case Family::kInt8: return code.k == 32 && code.d == Element::kS32 && integer_width;
    case Family::kBit: return code.k == 256 && code.d == Element::kS32 && integer_width;
    default: return false;
  }
}

// The operands behind scale-d: which factors are negated, then which are transposed. Integers have
// none, and only elements of 16 bits can be transposed; A of registers never is.
bool read_flags(const ptx::Instruction& in, GroupMatrixCode* code) {
  const Family family = family_of(code->a);
  const bool is_float = family != Family::kInt8 && family != Family::kBit;
  const size_t transposed = family != Family::kHalf ? 0 : code->a_in_registers ? 1 : 2;
  constexpr size_t kFirst = 4;
  if (in.operands.size() != kFirst + (is_float ? 2 : 0) + transposed) return false;
  for (size_t i = kFirst; i < in.operands.size(); ++i) {
    if (in.operands[i].kind != ptx::Operand::Kind::kInteger) return false;
  }
  const auto value = [&](size_t i) {
    return static_cast<int64_t>(in.operands[kFirst + i].integer);
  };
  const auto flag = [&](size_t i, int64_t no, int64_t yes, bool* out) {
    *out = value(i) == yes;
    return *out || value(i) == no;
  };
  if (is_float && !(flag(0, 1, -1, &code->negate_a) && flag(1, 1, -1, &code->negate_b))) {
    return false;
  }
  if (transposed == 2 && !flag(2, 0, 1, &code->transpose_a)) return false;
  return transposed == 0 || flag(1 + transposed, 0, 1, &code->transpose_b);
}

}  // namespace

bool Builder::lower_group_matrix(const Instruction& in) {
  if (in.has("commit_group")) return true;  // what has been issued is done
  if (in.has("fence") || in.has("wait_group")) {
    emit(IrOp::k_barrier_group);
    return true;
  }
  const std::optional<Shape> shape = shape_of(in);
  const auto d = element_of(in.type(0)), a = element_of(in.type(1)), b = element_of(in.type(2));
  if (!shape || !d || !a || !b) return unsupported("matrix shape or types");
  GroupMatrixCode code;
  code.n = shape->n, code.k = shape->k;
  code.d = *d, code.a = *a, code.b = *b;
  code.saturate = in.has("satfinite");
  code.a_in_registers = in.operands[1].kind == Operand::Kind::kVector;
  const bool bits = code.a == Element::kB1;
  if (!is_legal(code) || in.has("and") != bits || in.has("popc") != bits ||
      (code.saturate && family_of(code.a) != Family::kInt8)) {
    return unsupported("matrix shape with these types");
  }
  if (!read_flags(in, &code)) return unsupported("flags of a matrix product");

  const std::vector<Operand> to = members_of(in.operands[0]);
  const std::vector<Operand> from = members_of(in.operands[1]);
  if (to.size() != code.n * element_bits(code.d) / 64 ||
      from.size() != (code.a_in_registers ? kRegistersOfA : 1)) {
    return unsupported("matrix fragments of the wrong size");
  }
  const std::vector<int32_t> before = read_fragment(in.operands[0], 4);
  const std::vector<int32_t> factor =
      code.a_in_registers ? read_fragment(in.operands[1], 4) : std::vector<int32_t>();
  const int32_t a_memory = code.a_in_registers ? -1 : read(in.operands[1], Lane::u64);
  const int32_t b_memory = read(in.operands[2], Lane::u64);
  const int32_t adds = read_predicate(in.operands[3]);
  std::vector<int32_t> results;
  for (const Operand& member : to) results.push_back(result(member, 4));

  Draft& draft = emit(IrOp::k_group_multiply, -1, a_memory, b_memory, adds);
  draft.imm = code.encode();
  draft.aux = static_cast<uint32_t>(results.size());
  draft.extra_results = results;
  draft.extra_values = before;
  draft.extra_values.insert(draft.extra_values.end(), factor.begin(), factor.end());
  for (size_t i = 0; i < to.size(); ++i) store_result(to[i], results[i]);
  return true;
}

}  // namespace openmps::softgpu::ir
