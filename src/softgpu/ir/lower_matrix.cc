// SPDX-License-Identifier: Apache-2.0
// Lowering of matrix instructions: mma, wmma, ldmatrix, stmatrix, movmatrix. Part of Builder.
#include <charconv>

#include "softgpu/ir/builder.h"
#include "softgpu/ir/matrix_types.h"

namespace openmps::softgpu::ir {

using ptx::Type;

std::optional<Element> element_of(Type type) {
  switch (type) {
    case Type::kF16: return Element::kF16;
    case Type::kBF16: return Element::kBF16;
    case Type::kTF32: return Element::kTF32;
    case Type::kE4M3: return Element::kE4M3;
    case Type::kE5M2: return Element::kE5M2;
    case Type::kF32: return Element::kF32;
    case Type::kF64: return Element::kF64;
    case Type::kS32: return Element::kS32;
    case Type::kU8: return Element::kU8;
    case Type::kS8: return Element::kS8;
    case Type::kU4: return Element::kU4;
    case Type::kS4: return Element::kS4;
    case Type::kB1: return Element::kB1;
    default: return std::nullopt;
  }
}

std::optional<Shape> shape_of(const ptx::Instruction& in) {
  for (const std::string_view part : in.modifiers) {
    const size_t n = part.find('n'), k = part.find('k');
    if (part[0] != 'm' || n == std::string_view::npos || k == std::string_view::npos) continue;
    Shape shape;
    const char* end = part.data() + part.size();
    if (std::from_chars(part.data() + 1, part.data() + n, shape.m).ptr == part.data() + n &&
        std::from_chars(part.data() + n + 1, part.data() + k, shape.n).ptr == part.data() + k &&
        std::from_chars(part.data() + k + 1, end, shape.k).ptr == end) {
      return shape;
    }
  }
  return std::nullopt;
}

Family family_of(Element element) {
  switch (element) {
    case Element::kF16:
    case Element::kBF16: return Family::kHalf;
    case Element::kTF32: return Family::kTF32;
    case Element::kE4M3:
    case Element::kE5M2: return Family::kFP8;
    case Element::kU8:
    case Element::kS8: return Family::kInt8;
    case Element::kU4:
    case Element::kS4: return Family::kInt4;
    case Element::kB1: return Family::kBit;
    case Element::kF64: return Family::kF64;
    default: return Family::kNone;
  }
}

namespace {

// The shapes and types that the PTX manual has for architectures up to sm_90.
bool is_legal(const MatrixCode& code) {
  constexpr struct {
    bool linear;
    Family family;
    uint32_t m, n, k;
  } kShapes[] = {
      {false, Family::kHalf, 16, 8, 8},  {false, Family::kHalf, 16, 8, 16},
      {false, Family::kHalf, 8, 8, 4},   {false, Family::kTF32, 16, 8, 4},
      {false, Family::kTF32, 16, 8, 8},  {false, Family::kFP8, 16, 8, 32},
      {false, Family::kInt8, 8, 8, 16},  {false, Family::kInt8, 16, 8, 16},
      {false, Family::kInt8, 16, 8, 32}, {false, Family::kInt4, 8, 8, 32},
      {false, Family::kInt4, 16, 8, 32}, {false, Family::kInt4, 16, 8, 64},
      {false, Family::kBit, 8, 8, 128},  {false, Family::kBit, 16, 8, 128},
      {false, Family::kBit, 16, 8, 256}, {false, Family::kF64, 8, 8, 4},
      {false, Family::kF64, 16, 8, 4},   {false, Family::kF64, 16, 8, 8},
      {false, Family::kF64, 16, 8, 16},  {true, Family::kHalf, 16, 16, 16},
      {true, Family::kHalf, 32, 8, 16},  {true, Family::kHalf, 8, 32, 16},
      {true, Family::kTF32, 16, 16, 8},  {true, Family::kInt8, 16, 16, 16},
      {true, Family::kInt8, 32, 8, 16},  {true, Family::kInt8, 8, 32, 16},
      {true, Family::kInt4, 8, 8, 32},   {true, Family::kBit, 8, 8, 128},
      {true, Family::kF64, 8, 8, 4},
  };
  const Family family = family_of(code.a);
  if (family_of(code.b) != family) return false;
  bool types;
  switch (family) {
    case Family::kHalf:
      types = code.a == code.b && (code.d == Element::kF32 || code.d == Element::kF16) &&
              (code.c == Element::kF32 || code.c == Element::kF16) &&
              (code.a == Element::kF16 || (code.c == Element::kF32 && code.d == Element::kF32));
      break;
    case Family::kTF32:
    case Family::kFP8: types = code.c == Element::kF32 && code.d == Element::kF32; break;
    case Family::kF64: types = code.c == Element::kF64 && code.d == Element::kF64; break;
    default: types = code.c == Element::kS32 && code.d == Element::kS32;
  }
  for (const auto& shape : kShapes) {
    if (shape.linear == code.linear && shape.family == family && shape.m == code.m &&
        shape.n == code.n && shape.k == code.k) {
      return types && !(code.k == 4 && code.a == Element::kBF16);
    }
  }
  return false;
}

uint32_t register_bytes(Element element) { return element == Element::kF64 ? 8 : 4; }

// How many registers a fragment of `elements` elements takes.
size_t registers_for(uint32_t elements, Element element) {
  const uint32_t bits = elements / 32 * element_bits(element);
  return std::max(1u, bits / (8 * register_bytes(element)));
}

// Of wmma: f16 factors always take eight, whose elements repeat.
size_t fragment_registers(uint32_t elements, Element element, bool is_factor) {
  return is_factor && element == Element::kF16 ? 8 : registers_for(elements, element);
}

// A fragment that some wmma.mma takes.
bool is_legal_fragment(const Shape& shape, Element element, bool is_factor) {
  MatrixCode code;
  code.m = shape.m, code.n = shape.n, code.k = shape.k, code.linear = true;
  if (is_factor) {
    code.a = code.b = element;
    const Family family = family_of(element);
    code.c = code.d = family == Family::kF64 ? Element::kF64
                      : family == Family::kInt8 || family == Family::kInt4 || family == Family::kBit
                          ? Element::kS32
                          : Element::kF32;
    return is_legal(code);
  }
  code.c = code.d = element;
  for (const Element factor :
       {Element::kF16, Element::kTF32, Element::kS8, Element::kS4, Element::kB1, Element::kF64}) {
    code.a = code.b = factor;
    if (is_legal(code)) return true;
  }
  return false;
}

}  // namespace

// The values of a fragment's registers, all as numbers of one width.
std::vector<int32_t> Builder::read_fragment(const Operand& operand, uint32_t bytes) {
  std::vector<int32_t> values;
  for (const Operand& member : members_of(operand)) {
    values.push_back(read(member, bytes == 8 ? Lane::u64 : Lane::u32));
  }
  return values;
}

bool Builder::lower_multiply(const Instruction& in) {
  const std::optional<Shape> shape = shape_of(in);
  if (!shape) return unsupported("matrix shape");
  const bool is_wmma = in.rule->mnemonic == "wmma";
  MatrixCode code;
  code.m = shape->m, code.n = shape->n, code.k = shape->k;
  // wmma of f16 names D and C alone.
  const bool short_form = in.types.size() == 2;
  const Type types[4] = {in.type(0), short_form ? Type::kF16 : in.type(1),
                         short_form ? Type::kF16 : in.type(2), in.type(short_form ? 1 : 3)};
  const auto d = element_of(types[0]), a = element_of(types[1]), b = element_of(types[2]),
             c = element_of(types[3]);
  if (!d || !a || !b || !c) return unsupported("matrix types");
  code.d = *d, code.a = *a, code.b = *b, code.c = *c;
  code.linear = is_wmma;
  code.saturate = in.has("satfinite");
  code.exclusive_or = in.has("xor");
  // The layouts of A and B, in this order.
  std::vector<std::string_view> layouts;
  for (const std::string_view part : in.modifiers) {
    if (part == "row" || part == "col") layouts.push_back(part);
  }
  if (layouts.size() != 2) return unsupported("matrix layouts");
  code.a_by_columns = layouts[0] == "col";
  code.b_by_rows = layouts[1] == "row";
  if (!is_legal(code) || (in.has("rn") && code.a != Element::kF64)) {
    return unsupported("matrix shape with these types");
  }
  const bool quarter = !is_wmma && code.k == 4 && code.a == Element::kF16;
  if (!is_wmma && !quarter && (code.a_by_columns || code.b_by_rows)) {
    return unsupported("matrix layouts");
  }

  std::vector<int32_t> results;
  const std::vector<Operand> to = members_of(in.operands[0]);
  for (const Operand& member : to) results.push_back(result(member, register_bytes(code.d)));
  const std::vector<int32_t> fragments[3] = {read_fragment(in.operands[1], register_bytes(code.a)),
                                             read_fragment(in.operands[2], register_bytes(code.b)),
                                             read_fragment(in.operands[3], register_bytes(code.c))};
  const uint32_t batches = quarter ? 4 : 1;
  const auto count = [&](uint32_t elements, Element element, bool is_factor) {
    return is_wmma ? fragment_registers(elements, element, is_factor)
                   : registers_for(elements * batches, element);
  };
  if (results.size() != count(code.m * code.n, code.d, false) ||
      fragments[0].size() != count(code.m * code.k, code.a, true) ||
      fragments[1].size() != count(code.n * code.k, code.b, true) ||
      fragments[2].size() != count(code.m * code.n, code.c, false)) {
    return unsupported("matrix fragments of the wrong size");
  }

  Draft& draft = emit(IrOp::k_matrix_multiply);
  draft.imm = code.encode();
  draft.aux = static_cast<uint32_t>(results.size() | fragments[0].size() << 4 |
                                    fragments[1].size() << 8 | fragments[2].size() << 12);
  draft.extra_results = results;
  for (const auto& fragment : fragments) {
    draft.extra_values.insert(draft.extra_values.end(), fragment.begin(), fragment.end());
  }
  for (size_t i = 0; i < to.size(); ++i) store_result(to[i], results[i]);
  return true;
}

// wmma.load.a|b|c and wmma.store.d.
bool Builder::lower_fragment(const Instruction& in) {
  const std::optional<Shape> shape = shape_of(in);
  const std::optional<Element> element = element_of(in.type(0));
  if (!shape || !element) return unsupported("matrix shape or type");
  const bool is_load = in.has("load");
  const bool is_a = in.has("a"), is_b = in.has("b");
  FragmentCode code;
  code.rows = is_b ? shape->k : shape->m;
  code.columns = is_a ? shape->k : shape->n;
  code.by_columns = in.has("col");
  code.order_by_columns = is_b;
  code.bits = element_bits(*element);
  const uint32_t elements = code.rows * code.columns;
  if (!is_legal_fragment(*shape, *element, is_a || is_b)) {
    return unsupported("matrix shape with this type");
  }
  code.registers = static_cast<uint32_t>(fragment_registers(elements, *element, is_a || is_b));
  if (code.bits < 8) {
    // Words of several elements, along K, which is how they must lie in memory.
    if (code.by_columns != is_b) return unsupported("layout of a matrix of small elements");
    (is_b ? code.rows : code.columns) /= 32 / code.bits;
    code.bits = 32;
  }
  const Operand& memory = in.operands[is_load ? 1 : 0];
  const Operand& fragment = in.operands[is_load ? 0 : 1];
  const ptx::Space space = space_of(in, memory);
  code.shared = space == ptx::Space::kShared;
  Address address;
  if (!address_of(memory, space, &address)) return false;
  const std::vector<Operand> members = members_of(fragment);
  if (members.size() != code.registers) return unsupported("matrix fragments of the wrong size");
  // The stride counts elements, also those of less than a byte; without one the matrix is dense.
  uint32_t per_unit = element_bits(*element) < 8 ? 32 / element_bits(*element) : 1;
  const int32_t dense = constant(code.by_columns ? code.rows : code.columns, 4);
  int32_t stride = in.operands.size() > 2 ? read(in.operands[2], Lane::u32) : dense;
  if (in.operands.size() > 2 && per_unit > 1) {
    const int32_t words = temporary(4);
    emit(IrOp::k_shr_u32, words, stride,
         constant(static_cast<uint64_t>(__builtin_ctz(per_unit)), 4));
    stride = words;
  }
  const uint32_t bytes = register_bytes(*element);
  std::vector<int32_t> values;
  if (is_load) {
    for (const Operand& member : members) values.push_back(result(member, bytes));
  } else {
    values = read_fragment(fragment, bytes);
  }
  Draft& draft =
      emit(is_load ? IrOp::k_fragment_load : IrOp::k_fragment_store, -1, address.base, stride);
  draft.imm = address.offset;
  draft.aux = code.encode();
  (is_load ? draft.extra_results : draft.extra_values) = values;
  if (is_load) {
    for (size_t i = 0; i < members.size(); ++i) store_result(members[i], values[i]);
  }
  return true;
}

// ldmatrix, stmatrix.
bool Builder::lower_tiles(const Instruction& in) {
  const bool is_load = in.rule->mnemonic == "ldmatrix";
  TileCode code;
  code.count = in.has("x4") ? 4 : in.has("x2") ? 2 : 1;
  code.transposed = in.has("trans");
  const Operand& memory = in.operands[is_load ? 1 : 0];
  const ptx::Space space = space_of(in, memory);
  code.shared = space == ptx::Space::kShared;
  Address address;
  if (!address_of(memory, space, &address)) return false;
  const Operand& registers = in.operands[is_load ? 0 : 1];
  const std::vector<Operand> members = members_of(registers);
  if (members.size() != code.count) return unsupported("matrix fragments of the wrong size");
  std::vector<int32_t> values;
  if (is_load) {
    for (const Operand& member : members) values.push_back(result(member, 4));
  } else {
    values = read_fragment(registers, 4);
  }
  Draft& draft = emit(is_load ? IrOp::k_tile_load : IrOp::k_tile_store, -1, address.base);
  draft.imm = address.offset;
  draft.aux = code.encode();
  (is_load ? draft.extra_results : draft.extra_values) = values;
  if (is_load) {
    for (size_t i = 0; i < members.size(); ++i) store_result(members[i], values[i]);
  }
  return true;
}

bool Builder::lower_matrix(const Instruction& in) {
  if (in.rule->mnemonic == "movmatrix") {
    const int32_t from = read(in.operands[1], Lane::u32), d = result(in.operands[0], 4);
    emit(IrOp::k_tile_transpose, d, from);
    store_result(in.operands[0], d);
    return true;
  }
  if (in.rule->mnemonic == "ldmatrix" || in.rule->mnemonic == "stmatrix") return lower_tiles(in);
  return in.has("load") || in.has("store") ? lower_fragment(in) : lower_multiply(in);
}

}  // namespace openmps::softgpu::ir
