// SPDX-License-Identifier: Apache-2.0
// Lowering of arithmetic, comparison and selection. Part of Builder, see builder.h.
#include <array>

#include "softgpu/ir/builder.h"

namespace openmps::softgpu::ir {

using ptx::Type;

namespace {

// Numbered as compare_code() in interp/lane_math.h knows them.
constexpr std::string_view kComparisons[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                             "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

std::string sized(std::string_view prefix, Type type) {
  return std::string(prefix) + std::to_string(8 * ptx::type_bytes(type));
}

std::string type_name(Type type) {
  switch (type) {
    case Type::kF32: return "f32";
    case Type::kF64: return "f64";
    case Type::kF16: return "f16";
    case Type::kBF16: return "bf16";
    case Type::kF16x2: return "f16x2";
    case Type::kBF16x2: return "bf16x2";
    case Type::kU16x2: return "u16x2";
    case Type::kS16x2: return "s16x2";
    case Type::kU4: return "u4";
    case Type::kS4: return "s4";
    case Type::kB8:
    case Type::kB16:
    case Type::kB32:
    case Type::kB64:
    case Type::kB128: return sized("b", type);
    default: return sized(ptx::is_signed(type) ? "s" : "u", type);
  }
}

void replace(std::string* text, std::string_view from, const std::string& to) {
  for (size_t at; (at = text->find(from)) != std::string::npos;) text->replace(at, from.size(), to);
}

}  // namespace

std::string Builder::ir_name(const Instruction& in) const {
  std::string name(in.rule->ir);
  auto modifier = [&in](size_t i) {
    return std::string(i < in.modifiers.size() ? in.modifiers[i] : std::string_view());
  };
  const Type type = in.type(0);
  const bool packed = type == Type::kU16x2 || type == Type::kS16x2;
  replace(&name, "{t}", type_name(type));
  replace(&name, "{t1}", type_name(in.type(in.types.size() > 1 ? 1 : 0)));
  replace(&name, "{b}", packed ? type_name(type) : sized("b", type));
  replace(&name, "{u}", sized("u", type));
  replace(&name, "{mode}", modifier(0));
  replace(&name, "{mode2}", modifier(1));
  replace(&name, "{mode_}", in.modifiers.empty() ? "" : "_" + modifier(0));
  for (const char* flag : {"ftz", "cc", "shiftamt", "add"}) {
    replace(&name, std::string("{") + flag + "}", in.has(flag) ? std::string("_") + flag : "");
  }
  replace(&name, "{nan}", in.has("NaN") ? "_nan" : "");
  return name;
}

bool Builder::lower_alu(const Instruction& in) {
  IrOp op;
  const std::string name = ir_name(in);
  if (!find_op(name, &op)) return unsupported("no implementation of " + name);
  const OpInfo& info = op_info(op);
  int32_t fields[4] = {-1, -1, -1, -1};
  for (int i = 0; i < info.operand_count(); ++i) {
    const size_t at = static_cast<size_t>(i) + 1;
    if (at >= in.operands.size()) return unsupported("too few operands");
    fields[i] = read(in.operands[at], info.operands[i]);
  }
  const int32_t d = result(in.operands[0], lane_bytes(info.d));
  Draft& draft = emit(op, d, fields[0], fields[1], fields[2]);
  draft.e = fields[3];
  if (op == IrOp::k_lop3_b32) {
    if (in.operands[4].kind != Operand::Kind::kInteger) {
      return unsupported("lop3 without an immediate table");
    }
    draft.imm = in.operands[4].integer & 0xff;
  }
  store_result(in.operands[0], d, info.d == Lane::s16 || info.d == Lane::s32);
  return true;
}

// mad.{lo,hi}.cc and madc: the product first, then an addition in the chain.
bool Builder::lower_mul_add_carry(const Instruction& in) {
  const Type type = in.type(0);
  const uint32_t bytes = ptx::type_bytes(type);
  const Lane lane = bytes == 8 ? Lane::u64 : Lane::u32;
  const int32_t product = temporary(bytes);
  const std::string multiply =
      in.has("hi") ? "mul_hi_" + type_name(type) : "mul_lo_b" + std::to_string(8 * bytes);
  if (!emit_named(multiply, product, read(in.operands[1], lane), read(in.operands[2], lane))) {
    return false;
  }
  const int32_t third = read(in.operands[3], lane);
  const int32_t d = result(in.operands[0], bytes);
  if (!emit_named(ir_name(in), d, product, third)) return false;
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_mul_add_24(const Instruction& in) {
  const int32_t product = temporary(4);
  const std::string multiply =
      std::string("mul24_") + (in.has("hi") ? "hi_" : "lo_") + type_name(in.type(0));
  if (!emit_named(multiply, product, read(in.operands[1], Lane::u32),
                  read(in.operands[2], Lane::u32))) {
    return false;
  }
  const int32_t third = read(in.operands[3], Lane::u32);
  const int32_t d = result(in.operands[0], 4);
  if (!emit_named(std::string(in.rule->ir), d, product, third)) return false;
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_float(const Instruction& in) {
  IrOp op;
  const std::string name = ir_name(in);
  if (!find_op(name, &op)) return unsupported("no implementation of " + name);
  const OpInfo& info = op_info(op);
  int32_t fields[3] = {-1, -1, -1};
  for (int i = 0; i < info.operand_count(); ++i) {
    fields[i] = read(in.operands[static_cast<size_t>(i) + 1], info.operands[i]);
  }
  const int32_t d = result(in.operands[0], lane_bytes(info.d));
  // MXCSR's rounding field: 1 down, 2 up, 3 to zero.
  const uint32_t rounding = in.has("rm") ? 1 : in.has("rp") ? 2 : in.has("rz") ? 3 : 0;
  const std::string type = type_name(in.type(0));
  // What f32 has ops of its own for.
  const bool flushes = in.has("ftz") && type != "f32" && type != "f64";
  for (int32_t& field : fields) {
    if (!flushes || field < 0) continue;
    const int32_t flushed = temporary(lane_bytes(info.d));
    if (!emit_named("flush_" + type, flushed, field)) return false;
    field = flushed;
  }
  // min and max of the magnitudes, with the product's sign.
  int32_t sign = -1;
  if (in.has("xorsign")) {
    const uint32_t bytes = lane_bytes(info.d);
    sign = temporary(bytes);
    if (!emit_named("xorsign_" + type, sign, fields[0], fields[1])) return false;
    for (int i = 0; i < 2; ++i) {
      const int32_t positive = temporary(bytes);
      if (!emit_named("abs_" + type, positive, fields[i])) return false;
      fields[i] = positive;
    }
  }
  if (rounding) emit(IrOp::k_set_rounding).aux = rounding;
  emit(op, d, fields[0], fields[1], fields[2]);
  if (rounding) emit(IrOp::k_set_rounding).aux = 0;
  if (flushes && !emit_named("flush_" + type, d, d)) return false;
  if (sign >= 0 && !emit_named("set_sign_" + type, d, d, sign)) return false;
  if (in.has("sat") && !emit_named("sat_" + type, d, d)) return false;
  if (in.has("relu") && !emit_named("relu_" + type, d, d)) return false;
  store_result(in.operands[0], d);
  return true;
}

// Emit the comparison of operands 1 and 2 into `predicate`.
bool Builder::compare(const Instruction& in, Type type, int32_t predicate) {
  std::string code(in.modifiers[0]);
  std::string lane;
  int32_t a, b;
  if (type == Type::kF16 || type == Type::kBF16) {
    const auto flushed = [&](int32_t value) {
      if (!in.has("ftz")) return value;
      const int32_t made = temporary(2);
      emit_named(type == Type::kF16 ? "flush_f16" : "flush_bf16", made, value);
      return made;
    };
    a = to_float(flushed(read(in.operands[1], Lane::u16)), type);
    b = to_float(flushed(read(in.operands[2], Lane::u16)), type);
    lane = "f32";
  } else if (type == Type::kF32 || type == Type::kF64) {
    const Lane kind = type == Type::kF32 ? Lane::f32 : Lane::f64;
    a = read(in.operands[1], kind);
    b = read(in.operands[2], kind);
    lane = type_name(type) + (in.has("ftz") ? "_ftz" : "");
  } else {
    const uint32_t bytes = ptx::type_bytes(type);
    const Lane kind = bytes == 2 ? Lane::u16 : bytes == 4 ? Lane::u32 : Lane::u64;
    a = read(in.operands[1], kind);
    b = read(in.operands[2], kind);
    const bool is_unsigned_code = code == "lo" || code == "ls" || code == "hi" || code == "hs";
    if (is_unsigned_code) {
      code = code == "lo" ? "lt" : code == "ls" ? "le" : code == "hi" ? "gt" : "ge";
    }
    const bool is_equality = code == "eq" || code == "ne";
    lane = sized(ptx::is_signed(type) && !is_equality && !is_unsigned_code ? "s" : "u", type);
  }
  return emit_named("setp_" + code + "_" + lane, predicate, a, b);
}

// predicate = predicate <and|or|xor> third, if the instruction says so.
void Builder::combine(const Instruction& in, int32_t predicate, int32_t third) {
  if (third < 0) return;
  const IrOp op = in.has("and")  ? IrOp::k_pred_and
                  : in.has("or") ? IrOp::k_pred_or
                                 : IrOp::k_pred_xor;
  emit(op, predicate, predicate, third);
}

bool Builder::lower_compare(const Instruction& in) {
  const Type type = in.type(0);
  const Operand& to = in.operands[0];
  const bool packed = type == Type::kF16x2 || type == Type::kBF16x2;
  if (packed) return unsupported("setp of packed halves");
  const int32_t third = in.operands.size() > 3 ? read_predicate(in.operands[3]) : -1;
  // Into a temporary when the result is also an operand of what follows.
  const bool direct = to.kind == Operand::Kind::kRegister && to.pair == -1 && third < 0;
  const int32_t p = direct ? register_value(to.index) : temporary(0);
  if (!compare(in, type, p)) return false;
  if (direct) return true;
  int32_t q = -1;
  if (to.pair >= 0) {
    q = temporary(0);
    emit(IrOp::k_pred_not, q, p);
    combine(in, q, third);
  }
  combine(in, p, third);
  if (to.kind == Operand::Kind::kRegister) emit(IrOp::k_pred_mov, register_value(to.index), p);
  if (q >= 0) emit(IrOp::k_pred_mov, register_value(to.pair), q);
  return true;
}

bool Builder::lower_set(const Instruction& in) {
  const Type to = in.type(0), type = in.type(1);
  if (type == Type::kF16x2 || type == Type::kBF16x2) {
    if (in.operands.size() > 3) return unsupported("set of packed halves with a predicate");
    uint32_t code = 0;
    while (code < std::size(kComparisons) && kComparisons[code] != in.modifiers[0]) ++code;
    const std::string name = "set_" + type_name(type) + (to == type ? "_number" : "_mask");
    const int32_t a = read(in.operands[1], Lane::u32), b = read(in.operands[2], Lane::u32);
    const int32_t d = result(in.operands[0], 4);
    if (!emit_named(name, d, a, b)) return false;
    drafts_.back().imm = code;
    store_result(in.operands[0], d);
    return true;
  }
  const int32_t third = in.operands.size() > 3 ? read_predicate(in.operands[3]) : -1;
  const int32_t p = temporary(0);
  if (!compare(in, type, p)) return false;
  combine(in, p, third);
  const uint32_t bytes = ptx::type_bytes(to);
  const uint64_t yes = to == Type::kF32    ? 0x3f800000
                       : to == Type::kF16  ? 0x3c00
                       : to == Type::kBF16 ? 0x3f80
                                           : ~uint64_t{0};
  const int32_t d = result(in.operands[0], bytes);
  if (!emit_named("selp_b" + std::to_string(8 * bytes), d, constant(yes, bytes), constant(0, bytes),
                  p)) {
    return false;
  }
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_select(const Instruction& in) {
  IrOp op;
  if (!find_op(ir_name(in), &op)) return unsupported("no implementation of " + ir_name(in));
  const Type type = in.type(0);
  const uint32_t bytes = ptx::type_bytes(type);
  const Lane lane = type == Type::kF32   ? Lane::f32
                    : type == Type::kF64 ? Lane::f64
                    : bytes == 2         ? Lane::u16
                    : bytes == 4         ? Lane::u32
                                         : Lane::u64;
  const int32_t a = read(in.operands[1], lane), b = read(in.operands[2], lane);
  const int32_t p = read_predicate(in.operands[3]);
  const int32_t d = result(in.operands[0], bytes);
  emit(op, d, a, b, p);
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_select_sign(const Instruction& in) {
  const uint32_t bytes = ptx::type_bytes(in.type(0));
  const Lane lane = bytes == 2 ? Lane::u16 : bytes == 4 ? Lane::u32 : Lane::u64;
  const int32_t p = temporary(0);
  if (in.type(1) == Type::kF32) {
    emit_named(in.has("ftz") ? "setp_ge_f32_ftz" : "setp_ge_f32", p,
               read(in.operands[3], Lane::f32), constant(0, 4));
  } else {
    emit_named("setp_ge_s32", p, read(in.operands[3], Lane::s32), constant(0, 4));
  }
  const int32_t a = read(in.operands[1], lane), b = read(in.operands[2], lane);
  const int32_t d = result(in.operands[0], bytes);
  if (!emit_named(ir_name(in), d, a, b, p)) return false;
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_testp(const Instruction& in) {
  const int32_t a = read(in.operands[1], in.type(0) == Type::kF32 ? Lane::f32 : Lane::f64);
  if (in.operands[0].kind != Operand::Kind::kRegister) return true;
  return emit_named(ir_name(in), register_value(in.operands[0].index), a, a);
}

bool Builder::lower_predicate(const Instruction& in) {
  IrOp op;
  if (!find_op(in.rule->ir, &op)) {
    return unsupported("no implementation of " + std::string(in.rule->ir));
  }
  const int32_t a = read_predicate(in.operands[1]);
  const int32_t b = in.operands.size() > 2 ? read_predicate(in.operands[2]) : -1;
  if (in.operands[0].kind == Operand::Kind::kRegister) {
    emit(op, register_value(in.operands[0].index), a, b);
  }
  return true;
}

}  // namespace openmps::softgpu::ir
