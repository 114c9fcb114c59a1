// SPDX-License-Identifier: Apache-2.0
// LLVM IR for one number or for 32 lanes of numbers, by the same calls: `wide` says which. Values
// are integers of 16, 32 or 64 bits, or i1; floating-point operations cast them and cast back.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "softgpu/ir/frame.h"
#include "softgpu/ir/op.h"
#include "softgpu/tier/llvm_api.h"

namespace openmps::softgpu::tier {

class LaneBuilder {
 public:
  LaneBuilder(const Llvm& functions, Context in, Module into, BuilderRef with)
      : llvm(functions), context(in), module(into), builder(with) {}

  [[nodiscard]] Type integer(uint32_t bits) const { return llvm.IntTypeInContext(context, bits); }
  [[nodiscard]] Type real(uint32_t bits) const {
    return bits == 64 ? llvm.DoubleTypeInContext(context) : llvm.FloatTypeInContext(context);
  }
  [[nodiscard]] Type vector(Type element, uint32_t lanes = kWarpSize) const {
    return llvm.VectorType(element, lanes);
  }
  [[nodiscard]] Type pointer(Type to) const { return llvm.PointerType(to, 0); }
  [[nodiscard]] Type shaped(Type element) const { return wide ? vector(element) : element; }

  [[nodiscard]] Val scalar_constant(uint32_t bits, uint64_t value) const {
    return llvm.ConstInt(integer(bits), value, 0);
  }
  [[nodiscard]] Val constant(uint32_t bits, uint64_t value) const {
    return wide ? splat_constant(bits, value) : scalar_constant(bits, value);
  }
  [[nodiscard]] Val splat_constant(uint32_t bits, uint64_t value,
                                   uint32_t lanes = kWarpSize) const {
    std::vector<Val> all(lanes, scalar_constant(bits, value));
    return llvm.ConstVector(all.data(), lanes);
  }
  Val splat(Val scalar, uint32_t lanes = kWarpSize);
  Val shuffle(Val a, Val b, const std::vector<uint32_t>& lanes);

  Val add(Val a, Val b) { return llvm.BuildAdd(builder, a, b, ""); }
  Val sub(Val a, Val b) { return llvm.BuildSub(builder, a, b, ""); }
  Val mul(Val a, Val b) { return llvm.BuildMul(builder, a, b, ""); }
  Val and_(Val a, Val b) { return llvm.BuildAnd(builder, a, b, ""); }
  Val or_(Val a, Val b) { return llvm.BuildOr(builder, a, b, ""); }
  Val xor_(Val a, Val b) { return llvm.BuildXor(builder, a, b, ""); }
  Val not_(Val a) { return llvm.BuildNot(builder, a, ""); }
  Val shl(Val a, Val b) { return llvm.BuildShl(builder, a, b, ""); }
  Val lshr(Val a, Val b) { return llvm.BuildLShr(builder, a, b, ""); }
  Val ashr(Val a, Val b) { return llvm.BuildAShr(builder, a, b, ""); }
  Val compare(IntCompare how, Val a, Val b) { return llvm.BuildICmp(builder, how, a, b, ""); }
  Val select(Val condition, Val yes, Val no) {
    return llvm.BuildSelect(builder, condition, yes, no, "");
  }
  Val trunc(Val a, uint32_t bits) { return llvm.BuildTrunc(builder, a, shaped(integer(bits)), ""); }
  Val zext(Val a, uint32_t bits) { return llvm.BuildZExt(builder, a, shaped(integer(bits)), ""); }
  Val sext(Val a, uint32_t bits) { return llvm.BuildSExt(builder, a, shaped(integer(bits)), ""); }
  Val cast(Val a, Type to) { return llvm.BuildBitCast(builder, a, to, ""); }

  // Of floating-point numbers by their bits.
  Val as_real(Val a, uint32_t bits = 32) { return cast(a, shaped(real(bits))); }
  Val as_bits(Val a, uint32_t bits = 32) { return cast(a, shaped(integer(bits))); }
  Val fadd(Val a, Val b, uint32_t bits = 32) {
    return as_bits(llvm.BuildFAdd(builder, as_real(a, bits), as_real(b, bits), ""), bits);
  }
  Val fsub(Val a, Val b, uint32_t bits = 32) {
    return as_bits(llvm.BuildFSub(builder, as_real(a, bits), as_real(b, bits), ""), bits);
  }
  Val fmul(Val a, Val b, uint32_t bits = 32) {
    return as_bits(llvm.BuildFMul(builder, as_real(a, bits), as_real(b, bits), ""), bits);
  }
  Val fdiv(Val a, Val b, uint32_t bits = 32) {
    return as_bits(llvm.BuildFDiv(builder, as_real(a, bits), as_real(b, bits), ""), bits);
  }
  Val fcompare(RealCompare how, Val a, Val b, uint32_t bits = 32) {
    return llvm.BuildFCmp(builder, how, as_real(a, bits), as_real(b, bits), "");
  }
  // A function of LLVM's on reals of one type, such as "llvm.fma".
  Val real_intrinsic(const char* name, std::initializer_list<Val> operands, uint32_t bits = 32);
  Val intrinsic(const std::string& name, std::vector<Type> types, std::vector<Val> operands);
  Val float_constant(float value) { return constant(32, __builtin_bit_cast(uint32_t, value)); }
  Val double_constant(double value) { return constant(64, __builtin_bit_cast(uint64_t, value)); }

  Val load(Type type, Val address, uint32_t alignment);
  void store(Val value, Val address, uint32_t alignment);
  // `bytes` behind a pointer to bytes.
  Val at(Val base, Val bytes);
  Val at(Val base, uint64_t bytes) { return at(base, scalar_constant(64, bytes)); }
  Val bitcount(Val bits);

  const Llvm& llvm;
  Context context;
  Module module;
  BuilderRef builder;
  bool wide = false;
  bool has_estimates = false;  // the processor has AVX-512, whose estimates the interpreter takes
};

// Code for the ops that compute lane by lane (emit_compute.cc), with their operands by the order of
// ops_*.def. Predicates are i1.
Val emit_compute(LaneBuilder& lanes, const Op& op, const Val (&operands)[4]);

}  // namespace openmps::softgpu::tier
