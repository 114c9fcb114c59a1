// SPDX-License-Identifier: Apache-2.0
// Variables, the frame and the state: see emitter.h.
#include "softgpu/tier/emitter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "softgpu/interp/warp.h"

namespace openmps::softgpu::tier {

Emitter::Emitter(const Ssa& ssa, LaneBuilder& lanes, Val function, const EmitOptions& options)
    : ssa_(ssa),
      lanes_(lanes),
      llvm_(lanes.llvm),
      options_(options),
      function_(function),
      warp_(llvm_.GetParam(function, 0)),
      regs_(llvm_.GetParam(function, 1)),
      state_(llvm_.GetParam(function, 2)),
      runtime_(llvm_.GetParam(function, 3)),
      entry_(llvm_.GetParam(function, 4)) {}

void Emitter::emit() {
  prologue_ = block("prologue");
  for (size_t b = 0; b < ssa_.graph.blocks.size(); ++b) blocks_.push_back(block("block"));
  dispatch_ = block("dispatch");
  stopped_ = block("stopped");
  start(prologue_);
  find_bases();
  declare();
  emit_prologue();
  for (int32_t b : ssa_.graph.order) emit_block(b);
  for (size_t b = 0; b < blocks_.size(); ++b) {
    if (ssa_.graph.blocks[b].reachable) continue;
    start(blocks_[b]);
    llvm_.BuildUnreachable(lanes_.builder);
  }
  start(stopped_);
  leave(0, CompiledExit::kStopped);
}

BlockRef Emitter::block(const char* name) {
  return llvm_.AppendBasicBlockInContext(lanes_.context, function_, name);
}

Type Emitter::type_of(uint32_t bytes, bool wide) const {
  if (bytes == 0) return wide ? lanes_.integer(32) : lanes_.integer(1);  // bits of the lanes
  return wide ? lanes_.vector(lanes_.integer(8 * bytes)) : lanes_.integer(8 * bytes);
}

// In the prologue, wherever the code is that needs it.
Val Emitter::variable(Type type) {
  const BlockRef here = llvm_.GetInsertBlock(lanes_.builder);
  if (variables_end_ != nullptr) llvm_.PositionBuilderBefore(lanes_.builder, variables_end_);
  const Val made = llvm_.BuildAlloca(lanes_.builder, type, "");
  if (variables_end_ != nullptr) start(here);
  return made;
}

// Variables in the state are aligned as that is, not as LLVM would have their types.
constexpr unsigned kStateAlignment = 64;

Val Emitter::get(Type type, Val variable) {
  const Val value = llvm_.BuildLoad2(lanes_.builder, type, variable, "");
  const auto at = homes_.find(variable);
  if (at != homes_.end()) llvm_.SetAlignment(value, at->second);
  return value;
}
void Emitter::put(Val value, Val variable) {
  const Val made = llvm_.BuildStore(lanes_.builder, value, variable);
  const auto at = homes_.find(variable);
  if (at != homes_.end()) llvm_.SetAlignment(made, at->second);
}

Val Emitter::home(Type type, uint32_t bytes) {
  const uint32_t alignment = std::min(bytes, kStateAlignment);
  state_bytes_ = (state_bytes_ + alignment - 1) / alignment * alignment;
  const Val made = lanes_.cast(lanes_.at(state_, state_bytes_), lanes_.pointer(type));
  homes_[made] = alignment;
  state_bytes_ += bytes;
  return made;
}

void Emitter::keep(Val variable, Type type, uint32_t bytes) {
  const uint32_t aligned = std::min(bytes, 64u);
  state_bytes_ = (state_bytes_ + aligned - 1) / aligned * aligned;
  kept_[variable] = {variable, type, state_bytes_};
  state_bytes_ += bytes;
}

void Emitter::declare() {
  fuel_ = variable(lanes_.integer(64));
  scalars_.assign(ssa_.values.size(), nullptr);
  vectors_.assign(ssa_.values.size(), nullptr);
  for (size_t k = 0; k < ssa_.values.size(); ++k) {
    if (ssa_.find(static_cast<int32_t>(k)) != static_cast<int32_t>(k)) continue;
    const Value& value = ssa_.values[k];
    const Form& form = value.form;
    const uint32_t bytes = ssa_.graph.bytes_of(value.slot);
    const bool own = form.kind == Kind::kBase && form.id == static_cast<int32_t>(k);
    const bool fixed = value.kind == Value::Kind::kFixed;
    if (form.kind != Kind::kBase || form.has_scalar) {
      const Type type = type_of(bytes, false);
      scalars_[k] = variable(type);
      if (!fixed) keep(scalars_[k], type, std::max(bytes, 1u));
    }
    const auto value_number = static_cast<int32_t>(k);
    if (own && bases_.contains(value_number) && !fixed) {
      // Large, and rarely made: not to be moved whenever the function is left.
      vectors_[k] = home(type_of(bytes, true), 32 * bytes);
    } else if (own) {
      const Type type = type_of(bytes, true);
      vectors_[k] = variable(type);
      if (!fixed) keep(vectors_[k], type, bytes == 0 ? 4 : 32 * bytes);
    }
  }
  const uint32_t words = options_.avx512 ? 16 : 8;
  for (int32_t base : bases_) {
    Shape& shape = shapes_[base];
    const uint32_t bits = 8 * ssa_.graph.bytes_of(ssa_.value(base).slot);
    const Type address = lanes_.integer(bits), word = lanes_.integer(32);
    for (uint32_t g = 0; g < kWarpSize / words; ++g) {
      shape.first.push_back(home(address, bits / 8));
      shape.index.push_back(home(lanes_.vector(word, words), 4 * words));
    }
    shape.flags = home(word, 4);
  }
}

Val Emitter::warp_field(size_t offset, Type type) {
  return lanes_.load(type, lanes_.at(warp_, offset), 4);
}
void Emitter::set_warp_field(size_t offset, Val value) {
  lanes_.store(value, lanes_.at(warp_, offset), 4);
}

void Emitter::emit_prologue() {
  const Type bytes = lanes_.pointer(lanes_.integer(8)), word = lanes_.integer(64);
  variables_end_ = warp_field(offsetof(Warp, fuel), word);
  put(variables_end_, fuel_);
  shared_ = warp_field(offsetof(Warp, shared), bytes);
  shared_bytes_ = warp_field(offsetof(Warp, shared_bytes), word);
  ranges_ = warp_field(offsetof(Warp, ranges), bytes);
  params_ = warp_field(offsetof(Warp, params), bytes);
  stop_ = warp_field(offsetof(Warp, stop), bytes);
  for (size_t k = 0; k < ssa_.values.size(); ++k) {
    const Value& value = ssa_.values[k];
    if (value.kind != Value::Kind::kFixed) continue;
    const uint32_t size = ssa_.graph.bytes_of(value.slot);
    const auto v = static_cast<int32_t>(k);
    if (vectors_[k] != nullptr) {
      assign(v, read_frame(value.slot));
      if (shapes_.contains(v)) find_shape(v);
    } else if (!value.form.constant) {
      Val first = lanes_.load(lanes_.integer(8 * size), frame_at(value.slot), size);
      if (value.form.kind == Kind::kLanes) {
        const uint64_t lane = ssa_.patterns[static_cast<size_t>(value.form.id)][0];
        first = lanes_.sub(first, lanes_.scalar_constant(8 * size, lane));
      }
      put(first, scalars_[k]);
    }
  }
  llvm_.BuildBr(lanes_.builder, dispatch_);
  start(dispatch_);
  // The start of the kernel: what is read before it is written is in the frame.
  const BlockRef begin = block("begin");
  dispatch_switch_ = llvm_.BuildSwitch(lanes_.builder, entry_, stopped_, 1);
  llvm_.AddCase(dispatch_switch_, lanes_.scalar_constant(32, 0), begin);
  entries_.push_back(0);
  start(begin);
  for (size_t k = 0; k < ssa_.values.size(); ++k) {
    const Value& value = ssa_.values[k];
    if (value.kind == Value::Kind::kEntry) {
      assign(static_cast<int32_t>(k), read_frame(value.slot));
      if (shapes_.contains(static_cast<int32_t>(k))) find_shape(static_cast<int32_t>(k));
    }
  }
  std::vector<std::pair<int32_t, int32_t>> moves;
  for (int32_t phi : ssa_.phis[0]) moves.emplace_back(phi, ssa_.value(phi).inputs.back());
  assign_phis(moves);
  llvm_.BuildBr(lanes_.builder, blocks_[0]);
}

// Operands.

Operand Emitter::operand_of(int32_t value) {
  const int32_t v = ssa_.find(value);
  const Value& from = ssa_.values[static_cast<size_t>(v)];
  Operand made;
  made.form = from.form;
  made.bytes = ssa_.graph.bytes_of(from.slot);
  made.unsettled = from.unsettled;
  if (from.form.kind == Kind::kUniform && from.form.constant) {
    made.scalar = made.bytes == 0 ? llvm_.ConstInt(lanes_.integer(1), from.form.bits & 1, 0)
                                  : lanes_.scalar_constant(8 * made.bytes, from.form.bits);
  } else if (scalars_[static_cast<size_t>(v)] != nullptr) {
    made.scalar = get(type_of(made.bytes, false), scalars_[static_cast<size_t>(v)]);
  }
  if (vectors_[static_cast<size_t>(v)] != nullptr) {
    made.vector = get(type_of(made.bytes, true), vectors_[static_cast<size_t>(v)]);
    if (made.bytes == 0) made.vector = flags_of(made.vector);
  }
  return made;
}

Val Emitter::scalar_of(const Operand& x) { return x.scalar; }

Val Emitter::part_of(const Operand& x) {
  return x.scalar != nullptr ? x.scalar : lanes_.scalar_constant(8 * x.bytes, 0);
}

Val Emitter::pattern_of(const Operand& x) {
  if (x.vector != nullptr) return x.vector;
  if (x.form.kind == Kind::kLanes) {
    std::vector<Val> all;
    for (uint64_t lane : pattern(x)) all.push_back(lanes_.scalar_constant(8 * x.bytes, lane));
    return llvm_.ConstVector(all.data(), kWarpSize);
  }
  return get(type_of(x.bytes, true), vectors_[static_cast<size_t>(x.form.id)]);
}

Val Emitter::vector_of(const Operand& x) {
  if (x.is_uniform()) return lanes_.splat(x.scalar);
  if (x.bytes == 0) return x.vector;
  const Val lanes = pattern_of(x);
  return x.scalar == nullptr ? lanes : lanes_.add(lanes_.splat(x.scalar), lanes);
}

Val Emitter::settled(Val x, bool wide) {
  lanes_.wide = wide;
  return lanes_.select(lanes_.fcompare(kUno, x, x), lanes_.constant(32, 0x7fffffffu), x);
}
Val Emitter::settled_vector(const Operand& x) {
  if (!x.unsettled) return vector_of(x);
  if (x.is_uniform()) return lanes_.splat(settled(x.scalar, false));
  return settled(vector_of(x), true);
}

Val Emitter::bits_of(const Operand& x) {
  if (!x.is_uniform()) return lanes_.cast(x.vector, lanes_.integer(32));
  return lanes_.select(x.scalar, lanes_.scalar_constant(32, kFullMask),
                       lanes_.scalar_constant(32, 0));
}
Val Emitter::flags_of(Val bits) { return lanes_.cast(bits, lanes_.vector(lanes_.integer(1))); }

Operand Emitter::uniform(Val scalar, uint32_t bytes) {
  Operand made;
  made.form.kind = Kind::kUniform;
  made.scalar = scalar;
  made.bytes = bytes;
  return made;
}
Operand Emitter::general(Val vector, uint32_t bytes) {
  Operand made;
  made.form.kind = Kind::kBase;
  made.form.has_scalar = false;
  made.vector = vector;
  made.bytes = bytes;
  return made;
}

// The result is brought to the form that the value has.
void Emitter::assign(int32_t value, Operand result) {
  const int32_t v = ssa_.find(value);
  const Value& to = ssa_.values[static_cast<size_t>(v)];
  const Form& form = to.form;
  const auto at = static_cast<size_t>(v);
  const bool own = form.kind == Kind::kBase && form.id == v;
  if (result.unsettled && !to.unsettled) {
    if (result.is_uniform()) {
      result.scalar = settled(result.scalar, false);
    } else {
      result = general(settled_vector(result), result.bytes);
    }
  }
  if (!own) {
    if (scalars_[at] != nullptr && !(form.kind == Kind::kUniform && form.constant)) {
      put(part_of(result), scalars_[at]);
    }
    return;
  }
  if (to.kind != Value::Kind::kPhi && form.has_scalar && result.vector != nullptr) {
    put(part_of(result), scalars_[at]);
    put(result.vector, vectors_[at]);
    return;
  }
  if (form.has_scalar) {
    put(lanes_.scalar_constant(8 * result.bytes, 0), scalars_[at]);
  }
  const Val vector = vector_of(result);
  put(result.bytes == 0 ? lanes_.cast(vector, lanes_.integer(32)) : vector, vectors_[at]);
}

// All at once: an input may be a phi of the same block.
void Emitter::assign_phis(const std::vector<std::pair<int32_t, int32_t>>& moves) {
  std::vector<Operand> from;
  for (const auto& [phi, input] : moves) {
    Operand x = operand_of(input);
    const Form& form = ssa_.form(phi);
    const bool own = form.kind == Kind::kBase && form.id == ssa_.find(phi);
    if (own && x.bytes != 0) {
      const bool unsettled = x.unsettled;
      x = general(vector_of(x), x.bytes);
      x.unsettled = unsettled;
    }
    from.push_back(std::move(x));
  }
  for (size_t k = 0; k < moves.size(); ++k) assign(moves[k].first, from[k]);
  for (const auto& [phi, input] : moves) {
    if (shapes_.contains(ssa_.find(phi))) find_shape(ssa_.find(phi));
  }
}

void Emitter::follow_edge(int32_t from, int32_t to) {
  const std::vector<int32_t>& predecessors =
      ssa_.graph.blocks[static_cast<size_t>(to)].predecessors;
  const auto at = std::find(predecessors.begin(), predecessors.end(), from) - predecessors.begin();
  std::vector<std::pair<int32_t, int32_t>> moves;
  for (int32_t phi : ssa_.phis[static_cast<size_t>(to)]) {
    moves.emplace_back(phi, ssa_.value(phi).inputs[static_cast<size_t>(at)]);
  }
  assign_phis(moves);
}

// The frame.

void Emitter::write_frame(int32_t slot, const Operand& x) {
  if (x.bytes == 0) {
    lanes_.store(bits_of(x), frame_at(slot), 4);
    return;
  }
  lanes_.store(settled_vector(x), frame_at(slot), std::min(32 * x.bytes, 64u));
}

Operand Emitter::read_frame(int32_t slot) {
  const uint32_t bytes = ssa_.graph.bytes_of(slot);
  if (bytes == 0) {
    return general(flags_of(lanes_.load(lanes_.integer(32), frame_at(slot), 4)), 0);
  }
  const Type type = lanes_.vector(lanes_.integer(8 * bytes));
  return general(lanes_.load(type, frame_at(slot), std::min(32 * bytes, 64u)), bytes);
}

void Emitter::spend(uint32_t instructions) {
  if (instructions == 0) return;
  const Val now = get(lanes_.integer(64), fuel_);
  put(lanes_.sub(now, lanes_.scalar_constant(64, instructions)), fuel_);
}

void Emitter::leave(uint32_t op, CompiledExit exit) {
  set_warp_field(offsetof(Warp, fuel), get(lanes_.integer(64), fuel_));
  const uint32_t code = op | static_cast<uint32_t>(exit) << kCompiledExitShift;
  llvm_.BuildRet(lanes_.builder, lanes_.scalar_constant(32, code));
}

Val Emitter::call_runtime(size_t index, Type result, std::vector<Val> operands) {
  std::vector<Type> types;
  for (Val operand : operands) types.push_back(llvm_.TypeOf(operand));
  const Type type =
      llvm_.FunctionType(result, types.data(), static_cast<unsigned>(types.size()), 0);
  const Val place = lanes_.at(runtime_, index * sizeof(void*));
  const Val function = lanes_.load(lanes_.pointer(type), place, 8);
  return llvm_.BuildCall2(lanes_.builder, type, function, operands.data(),
                          static_cast<unsigned>(operands.size()), "");
}

}  // namespace openmps::softgpu::tier
