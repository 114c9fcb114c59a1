// SPDX-License-Identifier: Apache-2.0
// See lane_builder.h.
#include "softgpu/tier/lane_builder.h"

#include <utility>

namespace openmps::softgpu::tier {

Val LaneBuilder::splat(Val scalar, uint32_t lanes) {
  const Type type = vector(llvm.TypeOf(scalar), lanes);
  if (llvm.IsConstant(scalar)) {
    std::vector<Val> all(lanes, scalar);
    return llvm.ConstVector(all.data(), lanes);
  }
  const Val first =
      llvm.BuildInsertElement(builder, llvm.GetUndef(type), scalar, scalar_constant(32, 0), "");
  return shuffle(first, llvm.GetUndef(type), std::vector<uint32_t>(lanes, 0));
}

Val LaneBuilder::shuffle(Val a, Val b, const std::vector<uint32_t>& lanes) {
  std::vector<Val> indices;
  for (uint32_t lane : lanes) indices.push_back(scalar_constant(32, lane));
  const Val mask = llvm.ConstVector(indices.data(), static_cast<unsigned>(indices.size()));
  return llvm.BuildShuffleVector(builder, a, b, mask, "");
}

Val LaneBuilder::intrinsic(const std::string& name, std::vector<Type> types,
                           std::vector<Val> operands) {
  const unsigned id = llvm.LookupIntrinsicID(name.data(), name.size());
  const Val function = llvm.GetIntrinsicDeclaration(module, id, types.data(), types.size());
  const Type type = llvm.IntrinsicGetType(context, id, types.data(), types.size());
  return llvm.BuildCall2(builder, type, function, operands.data(),
                         static_cast<unsigned>(operands.size()), "");
}

Val LaneBuilder::real_intrinsic(const char* name, std::initializer_list<Val> operands,
                                uint32_t bits) {
  std::vector<Val> reals;
  for (Val operand : operands) reals.push_back(as_real(operand, bits));
  return as_bits(intrinsic(name, {shaped(real(bits))}, std::move(reals)), bits);
}

Val LaneBuilder::load(Type type, Val address, uint32_t alignment) {
  const Val value = llvm.BuildLoad2(builder, type, cast(address, pointer(type)), "");
  llvm.SetAlignment(value, alignment);
  return value;
}

void LaneBuilder::store(Val value, Val address, uint32_t alignment) {
  const Val to = cast(address, pointer(llvm.TypeOf(value)));
  llvm.SetAlignment(llvm.BuildStore(builder, value, to), alignment);
}

Val LaneBuilder::at(Val base, Val bytes) {
  return llvm.BuildGEP2(builder, integer(8), base, &bytes, 1, "");
}

Val LaneBuilder::bitcount(Val bits) { return intrinsic("llvm.ctpop", {integer(32)}, {bits}); }

}  // namespace openmps::softgpu::tier
