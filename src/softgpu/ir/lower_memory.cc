// SPDX-License-Identifier: Apache-2.0
// Lowering of loads, stores and atomics. Part of Builder.
#include <algorithm>
#include <utility>

#include "softgpu/ir/builder.h"
#include "softgpu/ir/frame.h"
#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu::ir {

using ptx::Space;
using ptx::Type;

namespace {

Space written_space(const ptx::Instruction& in) {
  if (in.has("shared") || in.has("shared::cta")) return Space::kShared;
  if (in.has("shared::cluster")) return Space::kSharedCluster;
  if (in.has("global")) return Space::kGlobal;
  if (in.has("const")) return Space::kConst;
  if (in.has("local")) return Space::kLocal;
  if (in.has("param") || in.has("param::entry") || in.has("param::func")) return Space::kParam;
  return Space::kGeneric;
}

uint32_t vector_size(const ptx::Instruction& in) {
  return in.has("v8") ? 8 : in.has("v4") ? 4 : in.has("v2") ? 2 : 1;
}

bool is_ordered(const ptx::Instruction& in) {
  return in.has("volatile") || in.has("relaxed") || in.has("acquire") || in.has("release") ||
         in.has("mmio");
}

// Whether an order has to be kept with other threads: what reaches a block's own shared memory runs
// one after the other (BlockRun in engine.h).
bool needs_order(const ptx::Instruction& in, Space space) {
  return is_ordered(in) && space != Space::kShared && space != Space::kLocal &&
         space != Space::kParam;
}

// What registers with values of a type in memory are read as.
Lane memory_lane(Type type) {
  if (type == Type::kF32) return Lane::f32;
  if (type == Type::kF64) return Lane::f64;
  const uint32_t bytes = ptx::type_bytes(type);
  return bytes <= 2 ? Lane::u16 : bytes == 4 ? Lane::u32 : bytes == 8 ? Lane::u64 : Lane::u128;
}

}  // namespace

AtomicType atomic_type_of(Type type) {
  switch (type) {
    case Type::kB16: return AtomicType::kB16;
    case Type::kS32: return AtomicType::kS32;
    case Type::kB64:
    case Type::kU64: return AtomicType::kU64;
    case Type::kS64: return AtomicType::kS64;
    case Type::kF32: return AtomicType::kF32;
    case Type::kF64: return AtomicType::kF64;
    case Type::kF16: return AtomicType::kF16;
    case Type::kBF16: return AtomicType::kBF16;
    case Type::kF16x2: return AtomicType::kF16x2;
    case Type::kBF16x2: return AtomicType::kBF16x2;
    case Type::kB128: return AtomicType::kB128;
    default: return AtomicType::kU32;
  }
}

AtomicOp atomic_op_of(const ptx::Instruction& in) {
  constexpr std::pair<const char*, AtomicOp> kOps[] = {
      {"add", AtomicOp::kAdd}, {"and", AtomicOp::kAnd},       {"or", AtomicOp::kOr},
      {"xor", AtomicOp::kXor}, {"exch", AtomicOp::kExchange}, {"cas", AtomicOp::kCompare},
      {"inc", AtomicOp::kInc}, {"dec", AtomicOp::kDec},       {"min", AtomicOp::kMin},
      {"max", AtomicOp::kMax}};
  for (const auto& [name, code] : kOps) {
    if (in.has(name)) return code;
  }
  return AtomicOp::kAdd;
}

// .param means kernel parameters or, in the calling convention, variables in local memory.
Space Builder::space_of(const Instruction& in, const Operand& address) const {
  const Space space = written_space(in);
  if (space != Space::kParam) return space;
  const Operand& base = address.items[0];
  if (base.kind == Operand::Kind::kVariable) {
    return function_.variables[base.index].space == Space::kParam ? Space::kParam : Space::kLocal;
  }
  return function_.is_kernel && !in.has("param::func") ? Space::kParam : Space::kLocal;
}

bool Builder::address_of(const Operand& operand, Space space, Address* out) {
  Operand base = operand.items[0];
  out->offset = static_cast<uint64_t>(operand.offset);
  const bool is_shared = space == Space::kShared || space == Space::kSharedCluster;
  const Lane lane = is_shared ? Lane::u32 : Lane::u64;
  switch (base.kind) {
    case Operand::Kind::kVariable: {
      out->offset += param_offsets_[base.index] + static_cast<uint64_t>(base.offset);
      const bool is_param = function_.variables[base.index].space == Space::kParam;
      out->base = is_param ? constant(0, 8)
                           : special(FrameValue::kLocalBase, ptx::SpecialRegister::kNone, 8);
      break;
    }
    case Operand::Kind::kGlobal:
    case Operand::Kind::kShared:
      out->offset += static_cast<uint64_t>(base.offset);
      base.offset = 0;
      out->base = read(base, lane);
      break;
    case Operand::Kind::kInteger: out->base = constant(base.integer, lane_bytes(lane)); break;
    case Operand::Kind::kRegister: out->base = read(base, lane); break;
    default: return unsupported("address of an unexpected kind");
  }
  // Handlers take those of other blocks as generic addresses.
  if (space == Space::kSharedCluster) {
    const int32_t generic = temporary(8);
    emit(IrOp::k_or_b64, generic, fit(out->base, Lane::u64), constant(kSharedWindow, 8));
    out->base = generic;
  }
  return true;
}

// A generic address, the offset added; one without a space of its own is that of a symbol's.
int32_t Builder::generic_address(const Operand& operand, Space space) {
  const bool is_shared_symbol = operand.items[0].kind == Operand::Kind::kShared;
  if (space == Space::kShared || (space == Space::kGeneric && is_shared_symbol)) {
    space = Space::kSharedCluster;
  }
  Address address;
  if (!address_of(operand, space, &address)) return constant(0, 8);
  if (address.offset == 0) return address.base;
  const int32_t sum = temporary(8);
  emit(IrOp::k_add_b64, sum, address.base, constant(address.offset, 8));
  return sum;
}

bool Builder::lower_load(const Instruction& in) {
  const Space space = space_of(in, in.operands[1]);
  Address address;
  if (!address_of(in.operands[1], space, &address)) return false;
  const uint32_t count = vector_size(in);
  const Operand& to = in.operands[0];
  std::vector<Operand> members = to.kind == Operand::Kind::kVector ? to.items : std::vector{to};
  if (members.size() != count) return unsupported("vector of the wrong size");
  const Type type = in.type(0);
  const uint32_t bytes = ptx::type_bytes(type);
  const bool sign = ptx::is_signed(type) && !ptx::is_float(type);
  // All members are loaded into lanes of one width; almost always that of the registers.
  uint32_t width = 0;
  for (const Operand& member : members) {
    if (member.kind == Operand::Kind::kRegister) {
      width = std::max(width, values_[register_value(member.index)].bytes);
    }
  }
  width = std::max({width, bytes, 2u});
  if (bytes < 16 && width > 8) width = 8;
  std::vector<int32_t> results;
  for (const Operand& member : members) results.push_back(result(member, width));
  const bool ordered = needs_order(in, space);
  const uint32_t lane_bits = 8 * width;
  Draft* draft;
  if (ordered || space == Space::kParam) {
    draft = &emit(ordered ? IrOp::k_load_ordered : IrOp::k_load_param, -1, address.base);
    draft->aux = ordered_code(count, bytes, width, sign, in.has("acquire"));
    if (!ordered && values_[address.base].kind == Value::Kind::kConstant) {
      draft->aux |= kUniformAddress;
    }
    draft->extra_results = results;
  } else {
    const char* where = space == Space::kShared  ? "shared"
                        : space == Space::kLocal ? "local"
                                                 : "global";
    const std::string name = std::string("ld_") + where + (sign && width > bytes ? "_s" : "_u") +
                             std::to_string(8 * bytes) + "_u" + std::to_string(lane_bits);
    if (!emit_named(name, count == 1 ? results[0] : -1, address.base)) return false;
    draft = &drafts_.back();
    draft->aux = count;
    if (count > 1) draft->extra_results = results;
  }
  draft->waits = is_ordered(in) && space != Space::kLocal && space != Space::kParam;
  draft->imm = address.offset;
  for (size_t i = 0; i < members.size(); ++i) store_result(members[i], results[i], sign);
  return true;
}

bool Builder::lower_store(const Instruction& in) {
  const Space space = space_of(in, in.operands[0]);
  if (space == Space::kParam || space == Space::kConst) {
    return unsupported("store to a read-only space");
  }
  Address address;
  if (!address_of(in.operands[0], space, &address)) return false;
  const uint32_t count = vector_size(in);
  const Operand& from = in.operands[1];
  std::vector<Operand> members =
      from.kind == Operand::Kind::kVector ? from.items : std::vector{from};
  if (members.size() != count) return unsupported("vector of the wrong size");
  const Type type = in.type(0);
  const uint32_t bytes = ptx::type_bytes(type);
  const Lane lane = memory_lane(type);
  std::vector<int32_t> sources;
  for (const Operand& member : members) sources.push_back(read(member, lane));
  Draft* draft;
  if (needs_order(in, space)) {
    draft = &emit(IrOp::k_store_ordered, -1, address.base);
    draft->aux = ordered_code(count, bytes, lane_bytes(lane), false, in.has("release"));
    draft->extra_values = sources;
  } else {
    const char* where = space == Space::kShared  ? "shared"
                        : space == Space::kLocal ? "local"
                                                 : "global";
    const std::string name = std::string("st_") + where + "_u" + std::to_string(8 * bytes) + "_u" +
                             std::to_string(8 * std::max(2u, lane_bytes(lane)));
    if (!emit_named(name, -1, address.base, count == 1 ? sources[0] : -1)) return false;
    draft = &drafts_.back();
    draft->aux = count;
    if (count > 1) draft->extra_values = sources;
  }
  draft->imm = address.offset;
  return true;
}

bool Builder::lower_atomic(const Instruction& in) {
  const bool has_result = in.rule->mnemonic == "atom";
  const Operand& where = in.operands[has_result ? 1 : 0];
  const size_t first = has_result ? 2 : 1;
  const Space space = written_space(in);
  Address address;
  if (!address_of(where, space, &address)) return false;
  const AtomicOp op = atomic_op_of(in);
  const Type type = in.type(0);
  const uint32_t bytes = ptx::type_bytes(type);
  const Lane lane = memory_lane(type);
  const int32_t value = read(in.operands[first], lane);
  // The mbarrier, or the policy of the cache, follows the values.
  const size_t more = in.has("async") || in.has("L2::cache_hint") ? 1 : 0;
  const size_t values = in.operands.size() - first - more;
  if (values != (op == AtomicOp::kCompare ? 2 : 1)) return unsupported("wrong number of operands");
  const int32_t third = op == AtomicOp::kCompare ? read(in.operands[first + 1], lane) : -1;
  const int32_t d = has_result ? result(in.operands[0], bytes) : -1;
  Draft& draft = emit(IrOp::k_atomic, d, address.base, value, third);
  draft.imm = address.offset;
  draft.aux = atomic_code(op, atomic_type_of(type), space == Space::kShared, has_result);
  draft.waits = true;
  if (has_result) store_result(in.operands[0], d);
  return true;
}

}  // namespace openmps::softgpu::ir
