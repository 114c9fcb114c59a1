// SPDX-License-Identifier: Apache-2.0
// Lowering of loads, stores, atomics and of what threads do together. Part of Builder.
#include <algorithm>

#include "softgpu/interp/warp.h"
#include "softgpu/ir/builder.h"
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

AtomicType atomic_type(Type type) {
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

Lane lane_of_bytes(uint32_t bytes) {
  return bytes <= 2 ? Lane::u16 : bytes == 4 ? Lane::u32 : bytes == 8 ? Lane::u64 : Lane::u128;
}

}  // namespace

// .param means kernel parameters or, in the calling convention, variables in local memory.
Space Builder::space_of(const Instruction& in, const Operand& address) const {
  const Space space = written_space(in);
  if (space != Space::kParam) return space;
  const Operand& base = address.items[0];
  if (base.kind == Operand::Kind::kVariable)
    return function_.variables[base.index].space == Space::kParam ? Space::kParam : Space::kLocal;
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
    default: return unusable("address of an unexpected kind");
  }
  // Handlers take those of other blocks as generic addresses.
  if (space == Space::kSharedCluster) {
    const int32_t generic = temporary(8);
    emit(IrOp::k_or_b64, generic, fit(out->base, Lane::u64), constant(kSharedWindow, 8));
    out->base = generic;
  }
  return true;
}

bool Builder::lower_load(const Instruction& in) {
  const Space space = space_of(in, in.operands[1]);
  Address address;
  if (!address_of(in.operands[1], space, &address)) return false;
  const uint32_t count = vector_size(in);
  const Operand& to = in.operands[0];
  std::vector<Operand> members = to.kind == Operand::Kind::kVector ? to.items : std::vector{to};
  if (members.size() != count) return unusable("vector of the wrong size");
  const Type type = in.type(0);
  const uint32_t bytes = ptx::type_bytes(type);
  const bool sign = ptx::is_signed(type) && !ptx::is_float(type);
  // All members are loaded into lanes of one width; almost always that of the registers.
  uint32_t width = 0;
  for (const Operand& member : members)
    if (member.kind == Operand::Kind::kRegister)
      width = std::max(width, values_[register_value(member.index)].bytes);
  width = std::max({width, bytes, 2u});
  if (bytes < 16 && width > 8) width = 8;
  std::vector<int32_t> results;
  for (const Operand& member : members) results.push_back(result(member, width));
  const bool ordered = is_ordered(in) && space != Space::kLocal && space != Space::kParam;
  const uint32_t lane_bits = 8 * width;
  Draft* draft;
  if (ordered || space == Space::kParam) {
    draft = &emit(ordered ? IrOp::k_load_ordered : IrOp::k_load_param, -1, address.base);
    draft->aux =
        ordered_code(count, bytes, width, sign, in.has("acquire"), space == Space::kShared);
    if (!ordered && values_[address.base].kind == Value::Kind::kConstant)
      draft->aux |= kUniformAddress;
    draft->extra_results = results;
    draft->waits = ordered;
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
  draft->imm = address.offset;
  for (size_t i = 0; i < members.size(); ++i) store_result(members[i], results[i], sign);
  return true;
}

bool Builder::lower_store(const Instruction& in) {
  const Space space = space_of(in, in.operands[0]);
  if (space == Space::kParam || space == Space::kConst)
    return unusable("store to a read-only space");
  Address address;
  if (!address_of(in.operands[0], space, &address)) return false;
  const uint32_t count = vector_size(in);
  const Operand& from = in.operands[1];
  std::vector<Operand> members =
      from.kind == Operand::Kind::kVector ? from.items : std::vector{from};
  if (members.size() != count) return unusable("vector of the wrong size");
  const Type type = in.type(0);
  const uint32_t bytes = ptx::type_bytes(type);
  const Lane lane = type == Type::kF32   ? Lane::f32
                    : type == Type::kF64 ? Lane::f64
                                         : lane_of_bytes(bytes);
  std::vector<int32_t> sources;
  for (const Operand& member : members) sources.push_back(read(member, lane));
  Draft* draft;
  if (is_ordered(in) && space != Space::kLocal) {
    draft = &emit(IrOp::k_store_ordered, -1, address.base);
    draft->aux = ordered_code(count, bytes, lane_bytes(lane), false, in.has("release"),
                              space == Space::kShared);
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
  AtomicOp op = AtomicOp::kAdd;
  constexpr std::pair<const char*, AtomicOp> kOps[] = {
      {"add", AtomicOp::kAdd}, {"and", AtomicOp::kAnd},       {"or", AtomicOp::kOr},
      {"xor", AtomicOp::kXor}, {"exch", AtomicOp::kExchange}, {"cas", AtomicOp::kCompare},
      {"inc", AtomicOp::kInc}, {"dec", AtomicOp::kDec},       {"min", AtomicOp::kMin},
      {"max", AtomicOp::kMax}};
  for (const auto& [name, code] : kOps)
    if (in.has(name)) op = code;
  const Type type = in.type(0);
  const uint32_t bytes = ptx::type_bytes(type);
  const Lane lane = type == Type::kF32   ? Lane::f32
                    : type == Type::kF64 ? Lane::f64
                                         : lane_of_bytes(bytes);
  const int32_t value = read(in.operands[first], lane);
  if ((op == AtomicOp::kCompare) != (in.operands.size() > first + 1))
    return unusable("wrong number of operands");
  const int32_t third = op == AtomicOp::kCompare ? read(in.operands[first + 1], lane) : -1;
  const int32_t d = has_result ? result(in.operands[0], bytes) : -1;
  Draft& draft = emit(IrOp::k_atomic, d, address.base, value, third);
  draft.imm = address.offset;
  draft.aux = atomic_code(op, atomic_type(type), space == Space::kShared, has_result);
  draft.waits = true;
  if (has_result) store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_copy_async(const Instruction& in) {
  Address to, from;
  if (!address_of(in.operands[0], Space::kShared, &to)) return false;
  if (!address_of(in.operands[1], Space::kGlobal, &from)) return false;
  const uint64_t bytes = in.operands[2].integer;
  if (in.operands[2].kind != Operand::Kind::kInteger || (bytes != 4 && bytes != 8 && bytes != 16))
    return unusable("cp.async of an odd size");
  // An optional count of bytes really read; the rest is zero. (A predicate there is not modelled.)
  int32_t real = -1;
  if (in.operands.size() > 3) {
    if (in.has("L2::cache_hint")) return unusable("cp.async with a cache policy");
    real = read(in.operands[3], Lane::u32);
  }
  Draft& draft = emit(IrOp::k_copy_async, -1, to.base, from.base, real);
  draft.imm = from.offset;
  draft.aux = static_cast<uint32_t>(bytes) | static_cast<uint32_t>(to.offset) << 8;
  if (to.offset >= (1u << 24)) return unusable("cp.async with a large offset");
  return true;
}

bool Builder::lower_mbarrier(const Instruction& in) {
  MbarrierOp op;
  size_t address_at = 0;
  if (in.rule->mnemonic == "cp")
    op = in.has("noinc") ? MbarrierOp::kCopyArriveNoinc : MbarrierOp::kCopyArrive;
  else if (in.has("init"))
    op = MbarrierOp::kInit;
  else if (in.has("inval"))
    op = MbarrierOp::kInval;
  else if (in.has("test_wait") || in.has("try_wait"))
    op = in.has("parity") ? MbarrierOp::kTestWaitParity : MbarrierOp::kTestWait, address_at = 1;
  else if (in.has("arrive_drop"))
    op = MbarrierOp::kArriveDrop, address_at = 1;
  else if (in.has("arrive"))
    op = in.has("expect_tx") ? MbarrierOp::kArriveExpectTx : MbarrierOp::kArrive, address_at = 1;
  else if (in.has("expect_tx"))
    op = MbarrierOp::kExpectTx;
  else if (in.has("complete_tx"))
    op = MbarrierOp::kCompleteTx;
  else if (in.has("pending_count"))
    op = MbarrierOp::kPendingCount;
  else
    return unusable("mbarrier operation");
  if (in.has("arrive_drop") && in.has("expect_tx"))
    return unusable("mbarrier.arrive_drop.expect_tx");
  if (op == MbarrierOp::kPendingCount) {
    const int32_t state = read(in.operands[1], Lane::u64);
    const int32_t d = result(in.operands[0], 4);
    // The state holds the count of arrivals still missing in bits 20 to 39 (interp/barrier.cc).
    const int32_t moved = temporary(8), cut = temporary(8);
    emit(IrOp::k_shr_u64, moved, state, constant(20, 4));
    emit(IrOp::k_and_b64, cut, moved, constant(0xfffff, 8));
    emit(IrOp::k_lo_b64, d, cut);
    store_result(in.operands[0], d);
    return true;
  }
  Address address;
  if (!address_of(in.operands[address_at], Space::kShared, &address)) return false;
  int32_t value = -1;
  const bool is_token = op == MbarrierOp::kTestWait;
  if (in.operands.size() > address_at + 1)
    value = read(in.operands[address_at + 1], is_token ? Lane::u64 : Lane::u32);
  int32_t d = -1;
  const bool waits = op == MbarrierOp::kTestWait || op == MbarrierOp::kTestWaitParity;
  if (waits)
    d = in.operands[0].kind == Operand::Kind::kRegister ? register_value(in.operands[0].index)
                                                        : temporary(0);
  else if (address_at == 1)
    d = result(in.operands[0], 8);
  Draft& draft = emit(IrOp::k_mbarrier, d, address.base, value);
  draft.imm = address.offset;
  draft.aux = static_cast<uint32_t>(op) | (d >= 0 ? 0x100u : 0) | (value >= 0 ? 0x200u : 0);
  draft.waits = true;
  if (address_at == 1 && !waits) store_result(in.operands[0], d);
  return true;
}

uint32_t Builder::members_code(int32_t members) const {
  if (members < 0) return 0;
  const bool same = values_[static_cast<size_t>(members)].kind == Value::Kind::kConstant;
  return kHasMembers | (same ? kSameMembers : 0);
}

bool Builder::lower_collective(const Instruction& in) {
  using L = ptx::Lowering;
  const int32_t all = constant(kFullMask, 4);
  // Where the predicate (if any) and the number results go.
  auto predicate_result = [this](const Operand& operand) {
    return operand.kind == Operand::Kind::kRegister ? register_value(operand.index) : temporary(0);
  };
  switch (in.rule->lowering) {
    case L::kShuffle: {
      const IrOp op = in.has("up")     ? IrOp::k_shuffle_up
                      : in.has("down") ? IrOp::k_shuffle_down
                      : in.has("bfly") ? IrOp::k_shuffle_butterfly
                                       : IrOp::k_shuffle_index;
      const int32_t a = read(in.operands[1], Lane::u32), b = read(in.operands[2], Lane::u32);
      const int32_t c = read(in.operands[3], Lane::u32);
      const int32_t members = in.operands.size() > 4 ? read(in.operands[4], Lane::u32) : -1;
      const int32_t d = result(in.operands[0], 4);
      Draft& draft = emit(op, d, a, b, c);
      draft.e = members;
      draft.aux = members_code(members);
      if (in.operands[0].pair >= 0) {
        draft.extra_results.push_back(register_value(in.operands[0].pair));
        draft.aux |= kHasPredicate;
      }
      store_result(in.operands[0], d);
      return true;
    }
    case L::kVote: {
      const int32_t p = read_predicate(in.operands[1]);
      const int32_t members = in.operands.size() > 2 ? read(in.operands[2], Lane::u32) : -1;
      const bool ballot = in.has("ballot");
      const int32_t d = ballot ? result(in.operands[0], 4) : predicate_result(in.operands[0]);
      Draft& draft = emit(ballot          ? IrOp::k_vote_ballot
                          : in.has("all") ? IrOp::k_vote_all
                          : in.has("any") ? IrOp::k_vote_any
                                          : IrOp::k_vote_uni,
                          d, p);
      draft.e = members;
      draft.aux = members_code(members);
      if (ballot) store_result(in.operands[0], d);
      return true;
    }
    case L::kMatch: {
      const bool wide = in.type(0) == Type::kB64, any = in.has("any");
      const int32_t a = read(in.operands[1], wide ? Lane::u64 : Lane::u32);
      const int32_t members = read(in.operands[2], Lane::u32);
      const int32_t d = result(in.operands[0], 4);
      Draft& draft = emit(any ? (wide ? IrOp::k_match_any_b64 : IrOp::k_match_any_b32)
                              : (wide ? IrOp::k_match_all_b64 : IrOp::k_match_all_b32),
                          d, a);
      draft.e = members;
      draft.aux = members_code(members);
      if (in.operands[0].pair >= 0) {
        draft.extra_results.push_back(register_value(in.operands[0].pair));
        draft.aux |= kHasPredicate;
      }
      store_result(in.operands[0], d);
      return true;
    }
    case L::kRedux: {
      const bool is_signed = in.type(0) == Type::kS32;
      const ReduxOp op = in.has("add")   ? ReduxOp::kAdd
                         : in.has("min") ? (is_signed ? ReduxOp::kMinS : ReduxOp::kMinU)
                         : in.has("max") ? (is_signed ? ReduxOp::kMaxS : ReduxOp::kMaxU)
                         : in.has("and") ? ReduxOp::kAnd
                         : in.has("or")  ? ReduxOp::kOr
                                         : ReduxOp::kXor;
      const int32_t a = read(in.operands[1], Lane::u32), members = read(in.operands[2], Lane::u32);
      const int32_t d = result(in.operands[0], 4);
      Draft& draft = emit(IrOp::k_redux, d, a);
      draft.e = members;
      draft.aux = members_code(members) | static_cast<uint32_t>(op);
      store_result(in.operands[0], d);
      return true;
    }
    case L::kActiveMask: {
      const int32_t d = result(in.operands[0], 4);
      emit(IrOp::k_activemask, d);
      store_result(in.operands[0], d);
      return true;
    }
    case L::kElect: {
      const int32_t members = read(in.operands[1], Lane::u32);
      const int32_t d = result(in.operands[0], 4);
      Draft& draft = emit(IrOp::k_elect, d);
      draft.e = members;
      draft.aux = members_code(members);
      if (in.operands[0].pair >= 0) {
        draft.extra_results.push_back(register_value(in.operands[0].pair));
        draft.aux |= kHasPredicate;
      }
      store_result(in.operands[0], d);
      return true;
    }
    default: {  // bar.warp.sync
      Draft& draft = emit(IrOp::k_warp_barrier);
      draft.e = in.operands.empty() ? all : read(in.operands[0], Lane::u32);
      draft.aux = members_code(draft.e);
      return true;
    }
  }
}

bool Builder::lower_barrier(const Instruction& in) {
  const bool red = in.has("red");
  const size_t first = red ? 1 : 0;
  const int32_t id = read(in.operands[first], Lane::u32);
  int32_t count = -1, p = -1;
  if (red) {
    // "d, a, p" or "d, a, count, p".
    p = read_predicate(in.operands.back());
    if (in.operands.size() > 3) count = read(in.operands[2], Lane::u32);
  } else if (in.operands.size() > 1) {
    count = read(in.operands[1], Lane::u32);
  }
  if (in.has("arrive")) {
    if (count < 0) return unusable("barrier.arrive without a count");
    emit(IrOp::k_barrier_arrive, -1, id, count).aux = 0x100;
    return true;
  }
  if (!red) {
    emit(IrOp::k_barrier_sync, -1, id, count).aux = count >= 0 ? 0x100 : 0;
    return true;
  }
  const BarrierRed kind = in.has("popc")  ? BarrierRed::kPopc
                          : in.has("and") ? BarrierRed::kAnd
                                          : BarrierRed::kOr;
  const bool popc = kind == BarrierRed::kPopc;
  const int32_t d = popc ? result(in.operands[0], 4)
                    : in.operands[0].kind == Operand::Kind::kRegister
                        ? register_value(in.operands[0].index)
                        : temporary(0);
  emit(IrOp::k_barrier_red, d, id, count, p).aux =
      (count >= 0 ? 0x100u : 0) | static_cast<uint32_t>(kind);
  if (popc) store_result(in.operands[0], d);
  return true;
}

}  // namespace openmps::softgpu::ir
