// SPDX-License-Identifier: Apache-2.0
// Lowering of mov (with packing and unpacking), cvt, cvta and isspacep. Part of Builder.
#include "softgpu/ir/builder.h"
#include "softgpu/ir/frame.h"

namespace openmps::softgpu::ir {

using ptx::Type;

namespace {

Lane lane_of(Type type) {
  switch (type) {
    case Type::kF32: return Lane::f32;
    case Type::kF64: return Lane::f64;
    default: break;
  }
  switch (ptx::type_bytes(type)) {
    case 1:
    case 2: return Lane::u16;
    case 4: return Lane::u32;
    case 8: return Lane::u64;
    default: return Lane::u128;
  }
}

std::string integer_name(Type type) {
  return (ptx::is_signed(type) ? "s" : "u") + std::to_string(8 * ptx::type_bytes(type));
}

}  // namespace

bool Builder::lower_move(const Instruction& in) {
  const Operand& to = in.operands[0];
  const Operand& from = in.operands[1];
  if (to.kind == Operand::Kind::kVector) return unpack(in);
  if (from.kind == Operand::Kind::kVector) return pack(in);
  const Lane lane = lane_of(in.type(0));
  const int32_t value = read(from, lane);
  if (to.kind != Operand::Kind::kRegister) return true;
  const int32_t own = register_value(to.index);
  if (values_[own].bytes == 0) return unsupported("mov of a number into a predicate");
  if (values_[own].bytes == values_[value].bytes) {
    return emit_named("mov_b" + std::to_string(8 * values_[own].bytes), own, value);
  }
  store_result(to, value);
  return true;
}

// mov.b64 {%r1, %r2}, %rd1: halves until the pieces are as small as the members.
bool Builder::unpack(const Instruction& in) {
  const std::vector<Operand>& members = in.operands[0].items;
  const uint32_t bytes = ptx::type_bytes(in.type(0));
  if (members.size() != 2 && members.size() != 4) return unsupported("mov of an odd vector");
  std::vector<int32_t> pieces = {read(in.operands[1], lane_of(in.type(0)))};
  uint32_t size = bytes;
  while (pieces.size() < members.size()) {
    std::vector<int32_t> halves;
    for (int32_t piece : pieces) {
      for (const char* half : {"lo_b", "hi_b"}) {
        halves.push_back(temporary(size / 2));
        if (size < 2 || !emit_named(half + std::to_string(8 * size), halves.back(), piece)) {
          return unsupported("mov of a vector that is too small");
        }
      }
    }
    pieces = std::move(halves);
    size /= 2;
  }
  for (size_t i = 0; i < members.size(); ++i) store_result(members[i], pieces[i]);
  return true;
}

bool Builder::pack(const Instruction& in) {
  const std::vector<Operand>& members = in.operands[1].items;
  const uint32_t bytes = ptx::type_bytes(in.type(0));
  if (members.size() != 2 && members.size() != 4) return unsupported("mov of an odd vector");
  uint32_t size = bytes / static_cast<uint32_t>(members.size());
  if (size == 0) return unsupported("mov of a vector that is too small");
  std::vector<int32_t> pieces;
  const Lane lane = size <= 2 ? Lane::u16 : size == 4 ? Lane::u32 : Lane::u64;
  for (const Operand& member : members) pieces.push_back(read(member, lane));
  while (pieces.size() > 1) {
    std::vector<int32_t> joined;
    for (size_t i = 0; i < pieces.size(); i += 2) {
      joined.push_back(temporary(2 * size));
      if (!emit_named("pack_b" + std::to_string(16 * size), joined.back(), pieces[i],
                      pieces[i + 1])) {
        return false;
      }
    }
    pieces = std::move(joined);
    size *= 2;
  }
  store_result(in.operands[0], pieces[0]);
  return true;
}

// A value of a floating type narrower than f32, as f32.
int32_t Builder::to_float(int32_t value, Type type) {
  if (type == Type::kF32 || type == Type::kF64) return value;
  const int32_t made = temporary(4);
  emit(type == Type::kF16 ? IrOp::k_f2f_f32_f16 : IrOp::k_f2f_f32_bf16, made, value);
  return made;
}

void Builder::write_integer(const Instruction& in, int32_t value, Type type) {
  store_result(in.operands[0], value, ptx::is_signed(type));
}

bool Builder::lower_convert(const Instruction& in) {
  const Type to = in.type(0), from = in.type(1);
  if (in.operands.size() == 3 || ptx::type_bytes(to) == 0 || to == Type::kE4M3x2 ||
      to == Type::kE5M2x2 || from == Type::kE4M3x2 || from == Type::kE5M2x2 || to == Type::kF16x2 ||
      to == Type::kBF16x2 || to == Type::kTF32 || from == Type::kF16x2) {
    return convert_packed(in);
  }
  if (ptx::is_float(to)) return convert_float(in);
  if (ptx::is_float(from)) {
    int32_t value = to_float(read(in.operands[1], lane_of(from)), from);
    const Type type = from == Type::kF64 ? Type::kF64 : Type::kF32;
    if (in.has("ftz") && type == Type::kF32) {
      const int32_t flushed = temporary(4);
      emit(IrOp::k_flush_f32, flushed, value);
      value = flushed;
    }
    return convert_to_integer(in, value, to, type);
  }
  // Integer to integer; saturation clamps in the source's type.
  int32_t value = read(in.operands[1], lane_of(from));
  const uint32_t to_bits = 8 * ptx::type_bytes(to);
  if (in.has("sat")) {
    const bool from_signed = ptx::is_signed(from), to_signed = ptx::is_signed(to);
    const Type wide = from_signed ? Type::kS64 : Type::kU64;
    const int32_t extended = temporary(8);
    if (!emit_named("cvt_" + integer_name(wide) + "_" + integer_name(from), extended, value)) {
      return false;
    }
    const std::string suffix = from_signed ? "s64" : "u64";
    const uint64_t most = to_signed       ? (uint64_t{1} << (to_bits - 1)) - 1
                          : to_bits == 64 ? (from_signed ? INT64_MAX : UINT64_MAX)
                                          : (uint64_t{1} << to_bits) - 1;
    emit_named("min_" + suffix, extended, extended, constant(most, 8));
    if (from_signed) {
      emit_named("max_" + suffix, extended, extended,
                 constant(to_signed ? ~((uint64_t{1} << (to_bits - 1)) - 1) : 0, 8));
    }
    const int32_t d = temporary(std::max(2u, ptx::type_bytes(to)));
    if (!emit_named("cvt_" + integer_name(to) + "_" + integer_name(wide), d, extended)) {
      return false;
    }
    write_integer(in, d, to);
    return true;
  }
  const int32_t d = result(in.operands[0], ptx::type_bytes(to));
  if (!emit_named("cvt_" + integer_name(to) + "_" + integer_name(from), d, value)) return false;
  write_integer(in, d, to);
  return true;
}

bool Builder::convert_to_integer(const Instruction& in, int32_t value, Type to, Type type) {
  const std::string lane = type == Type::kF64 ? "f64" : "f32";
  const uint32_t bytes = type == Type::kF64 ? 8 : 4;
  const std::string mode = in.has("rni")   ? "rni"
                           : in.has("rmi") ? "rmi"
                           : in.has("rpi") ? "rpi"
                                           : "";
  if (!mode.empty()) {
    const int32_t rounded = temporary(bytes);
    emit_named("round_" + mode + "_" + lane, rounded, value);
    value = rounded;
  }
  const uint32_t to_bytes = ptx::type_bytes(to);
  const bool to_signed = ptx::is_signed(to);
  const uint32_t middle_bytes = std::max(4u, to_bytes);
  const std::string middle = (to_signed ? "s" : "u") + std::to_string(8 * middle_bytes);
  const int32_t d = to_bytes >= 4 ? result(in.operands[0], to_bytes) : temporary(4);
  // A NaN of f64 gives 0x8000 or 0x80.
  const bool is_narrow = type == Type::kF64 && (to == Type::kU16 || to == Type::kU8);
  if (!emit_named("f2i_" + (is_narrow ? integer_name(to) : middle) + "_" + lane, d, value)) {
    return false;
  }
  if (to_bytes >= 4) {
    write_integer(in, d, to);
    return true;
  }
  const uint32_t bits = 8 * to_bytes;
  const int64_t most = to_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
  const int64_t least = to_signed ? -(1 << (bits - 1)) : 0;
  emit_named("min_" + middle, d, d, constant(static_cast<uint64_t>(most), 4));
  if (to_signed) emit_named("max_s32", d, d, constant(static_cast<uint64_t>(least), 4));
  const int32_t narrow = temporary(2);
  if (!emit_named("cvt_" + integer_name(to) + "_" + (to_signed ? "s32" : "u32"), narrow, d)) {
    return false;
  }
  write_integer(in, narrow, to);
  return true;
}

bool Builder::convert_float(const Instruction& in) {
  const Type to = in.type(0), from = in.type(1);
  int32_t value = read(in.operands[1], lane_of(from));
  const uint32_t rounding = in.has("rm") ? 1 : in.has("rp") ? 2 : in.has("rz") ? 3 : 0;
  const std::string directed = in.has("rm")   ? "_rm"
                               : in.has("rp") ? "_rp"
                               : in.has("rz") ? "_rz"
                                              : "";
  const std::string integral = in.has("rni")   ? "rni"
                               : in.has("rzi") ? "rzi"
                               : in.has("rmi") ? "rmi"
                               : in.has("rpi") ? "rpi"
                                               : "";
  Type type = from;  // of `value`
  if (!ptx::is_float(from)) {
    type = to == Type::kF64 ? Type::kF64 : Type::kF32;
    const int32_t made = temporary(ptx::type_bytes(type));
    if (rounding) emit(IrOp::k_set_rounding).aux = rounding;
    if (!emit_named("i2f_" + std::string(type == Type::kF64 ? "f64_" : "f32_") + integer_name(from),
                    made, value)) {
      return false;
    }
    if (rounding) emit(IrOp::k_set_rounding).aux = 0;
    value = made;
  } else if (from == Type::kF16 || from == Type::kBF16) {
    // A NaN of f16 becomes that of f32, but in f64 it keeps its payload.
    const int32_t made = temporary(4);
    emit(from == Type::kBF16                      ? IrOp::k_f2f_f32_bf16
         : to == Type::kF64 && from == Type::kF16 ? IrOp::k_f2f_kept_f16
                                                  : IrOp::k_f2f_f32_f16,
         made, value);
    value = made;
    type = Type::kF32;
  }
  auto apply = [&](const std::string& name, Type made_type) {
    const int32_t made = temporary(ptx::type_bytes(made_type));
    const bool good = emit_named(name, made, value);
    value = made;
    type = made_type;
    return good;
  };
  // An H200 looks at all of a subnormal number when it rounds to f16.
  if (in.has("ftz") && type == Type::kF32 && to != Type::kF16) apply("flush_f32", type);
  if (!integral.empty() &&
      !apply("round_" + integral + (type == Type::kF64 ? "_f64" : "_f32"), type)) {
    return false;
  }
  if (to == Type::kF32 && type == Type::kF64) {
    if (rounding) emit(IrOp::k_set_rounding).aux = rounding;
    apply("f2f_f32_f64", Type::kF32);
    if (rounding) emit(IrOp::k_set_rounding).aux = 0;
    if (in.has("ftz")) apply("flush_kept_f32", type);
  } else if (to == Type::kF64 && type == Type::kF32) {
    apply("f2f_f64_f32", Type::kF64);
  }
  if (in.has("sat") && !apply(type == Type::kF64 ? "sat_f64" : "sat_f32", type)) return false;
  if (to == Type::kF16 || to == Type::kBF16) {
    const std::string half = to == Type::kF16 ? "f16" : "bf16";
    if (!apply("f2f_" + half + (type == Type::kF64 ? "_f64" : "_f32") + directed, to)) return false;
    if (in.has("satfinite") && !apply("finite_" + half, to)) return false;
    if (in.has("relu") && !apply("relu_" + half, to)) return false;
  }
  store_result(in.operands[0], value);
  return true;
}

bool Builder::convert_packed(const Instruction& in) {
  const Type to = in.type(0), from = in.type(1);
  auto name_of = [](Type type) -> std::string {
    return type == Type::kF16x2    ? "f16x2"
           : type == Type::kBF16x2 ? "bf16x2"
           : type == Type::kE4M3x2 ? "e4m3x2"
           : type == Type::kTF32   ? "tf32"
                                   : "e5m2x2";
  };
  if (in.has("rs")) return unsupported("stochastic rounding");
  const uint32_t bytes = ptx::type_bytes(to);
  const int32_t d = result(in.operands[0], bytes);
  if (to == Type::kTF32) {
    emit(in.has("rz")   ? IrOp::k_f2f_tf32_f32_rz
         : in.has("rn") ? IrOp::k_f2f_tf32_f32_even
                        : IrOp::k_f2f_tf32_f32,
         d, read(in.operands[1], Lane::f32));
  } else if (in.operands.size() == 3) {
    const int32_t a = read(in.operands[1], Lane::f32), b = read(in.operands[2], Lane::f32);
    if (!emit_named("pack_" + name_of(to) + (in.has("rz") ? "_rz" : ""), d, a, b)) return false;
  } else {
    const int32_t a = read(in.operands[1], lane_of(from));
    if (!emit_named("cvt_" + name_of(to) + "_" + name_of(from), d, a)) return false;
  }
  const bool fp8 = to == Type::kE4M3x2 || to == Type::kE5M2x2;
  if (in.has("satfinite") && !fp8) {
    // Of .rna NaNs are taken down like infinities.
    const std::string all = in.has("rna") ? "_rna" : "";
    if (!emit_named("finite_" + name_of(to) + all, d, d)) return false;
  }
  if (in.has("relu") && !emit_named("relu_" + name_of(to), d, d)) return false;
  store_result(in.operands[0], d);
  return true;
}

namespace {

// The window whose tag a space's generic addresses carry; 0: global memory, the host's addresses.
uint64_t window_of(const ptx::Instruction& in, bool is_kernel) {
  if (in.has("shared") || in.has("shared::cta") || in.has("shared::cluster")) return kSharedWindow;
  if (in.has("local")) return kLocalWindow;
  // Parameters of device functions live in local memory.
  if (in.has("param") || in.has("param::entry")) return is_kernel ? kParamWindow : kLocalWindow;
  return 0;
}

}  // namespace

bool Builder::lower_convert_address(const Instruction& in) {
  if (ptx::type_bytes(in.type(0)) != 8) {
    // 32-bit shared addresses are what other instructions take; only their value moves.
    return unsupported("32-bit generic addresses");
  }
  const int32_t from = read(in.operands[1], Lane::u64);
  const int32_t d = result(in.operands[0], 8);
  const uint64_t window = window_of(in, function_.is_kernel);
  if (window == 0) {
    emit(IrOp::k_mov_b64, d, from);
  } else if (in.has("to")) {
    emit(IrOp::k_and_b64, d, from, constant(kWindowMask, 8));
  } else {
    emit(IrOp::k_or_b64, d, from, constant(window, 8));
  }
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_is_space(const Instruction& in) {
  const int32_t from = read(in.operands[1], Lane::u64);
  if (in.operands[0].kind != Operand::Kind::kRegister) return true;
  const int32_t is_there = register_value(in.operands[0].index);
  if (in.has("shared") || in.has("shared::cta")) {
    is_own_shared(from, is_there);
    return true;
  }
  if (in.has("const")) {
    is_constant(from, is_there);
    return true;
  }
  const int32_t tag = temporary(8), in_window = in.has("global") ? temporary(0) : is_there;
  emit(IrOp::k_shr_u64, tag, from, constant(kWindowShift, 4));
  emit(IrOp::k_setp_eq_u64, in_window, tag,
       constant(window_of(in, function_.is_kernel) >> kWindowShift, 8));
  if (in.has("global")) {
    const int32_t elsewhere = temporary(0), not_elsewhere = temporary(0);
    is_constant(from, elsewhere);
    emit(IrOp::k_pred_not, not_elsewhere, elsewhere);
    emit(IrOp::k_pred_and, is_there, in_window, not_elsewhere);
  }
  return true;
}

// Constants lie in global memory: an address is one's if it is in a constant of this module.
void Builder::is_constant(int32_t address, int32_t predicate) {
  int32_t before = temporary(0);
  emit(IrOp::k_setp_ne_u64, before, address, address);
  for (size_t i = 0; i < module_.globals.size(); ++i) {
    const ptx::GlobalVariable& variable = module_.globals[i];
    if (variable.space != ptx::Space::kConst) continue;
    Operand symbol;
    symbol.kind = Operand::Kind::kGlobal;
    symbol.index = static_cast<int32_t>(i);
    const int32_t offset = temporary(8), is_here = temporary(0), joined = temporary(0);
    emit(IrOp::k_sub_b64, offset, address, read_symbol(symbol, 8));
    emit(IrOp::k_setp_lt_u64, is_here, offset, constant(variable.bytes, 8));
    emit(IrOp::k_pred_or, joined, before, is_here);
    before = joined;
  }
  emit(IrOp::k_pred_mov, predicate, before);
}

}  // namespace openmps::softgpu::ir
