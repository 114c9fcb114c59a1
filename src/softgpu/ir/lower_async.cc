// SPDX-License-Identifier: Apache-2.0
// Lowering of asynchronous copies, bulk copies and tensor copies, and of the mbarriers at which
// they complete. Part of Builder.
#include "softgpu/ir/builder.h"
#include "softgpu/ir/bulk_codes.h"

namespace openmps::softgpu::ir {

using ptx::Space;
using ptx::Type;

namespace {

MbarrierOp mbarrier_op(const ptx::Instruction& in) {
  if (in.rule->mnemonic == "cp") {
    return in.has("noinc") ? MbarrierOp::kCopyArriveNoinc : MbarrierOp::kCopyArrive;
  }
  if (in.has("init")) return MbarrierOp::kInit;
  if (in.has("inval")) return MbarrierOp::kInval;
  if (in.has("test_wait") || in.has("try_wait")) {
    return in.has("parity") ? MbarrierOp::kTestWaitParity : MbarrierOp::kTestWait;
  }
  if (in.has("arrive_drop")) {
    return in.has("expect_tx") ? MbarrierOp::kArriveDropExpectTx : MbarrierOp::kArriveDrop;
  }
  if (in.has("arrive")) {
    return in.has("expect_tx") ? MbarrierOp::kArriveExpectTx : MbarrierOp::kArrive;
  }
  if (in.has("expect_tx")) return MbarrierOp::kExpectTx;
  return MbarrierOp::kCompleteTx;
}

uint32_t tensor_rank(const ptx::Instruction& in) {
  constexpr const char* kRanks[] = {"1d", "2d", "3d", "4d", "5d"};
  uint32_t rank = 1;
  while (!in.has(kRanks[rank - 1])) ++rank;
  return rank;
}

}  // namespace

// The state holds the count of arrivals still missing in bits 20 to 39 (interp/mbarrier.cc).
bool Builder::lower_pending_count(const Instruction& in) {
  const int32_t state = read(in.operands[1], Lane::u64);
  const int32_t d = result(in.operands[0], 4);
  const int32_t moved = temporary(8), cut = temporary(8);
  emit(IrOp::k_shr_u64, moved, state, constant(20, 4));
  emit(IrOp::k_and_b64, cut, moved, constant(0xfffff, 8));
  emit(IrOp::k_lo_b64, d, cut);
  store_result(in.operands[0], d);
  return true;
}

bool Builder::lower_mbarrier(const Instruction& in) {
  if (in.has("pending_count")) return lower_pending_count(in);
  MbarrierCode code;
  code.op = mbarrier_op(in);
  const bool tests = code.op == MbarrierOp::kTestWait || code.op == MbarrierOp::kTestWaitParity;
  const size_t address_at =
      in.rule->operands.starts_with("D") || in.rule->operands.starts_with("P") ? 1 : 0;
  const Space space = in.has("shared") || in.has("shared::cta") || in.has("shared::cluster")
                          ? Space::kSharedCluster
                          : Space::kGeneric;
  const int32_t address = generic_address(in.operands[address_at], space);
  int32_t value = -1;
  if (in.operands.size() > address_at + 1) {
    value =
        read(in.operands[address_at + 1], code.op == MbarrierOp::kTestWait ? Lane::u64 : Lane::u32);
  }
  int32_t d = -1;
  if (tests) {
    d = in.operands[0].kind == Operand::Kind::kRegister ? register_value(in.operands[0].index)
                                                        : temporary(0);
  } else if (address_at == 1) {
    d = result(in.operands[0], 8);
  }
  code.has_result = d >= 0;
  code.has_value = value >= 0;
  Draft& draft = emit(IrOp::k_mbarrier, d, address, value);
  draft.aux = code.encode();
  draft.waits = true;
  if (address_at == 1 && !tests) store_result(in.operands[0], d);
  return true;
}

// `bytes` have come: at the barrier, or with `ranks` at those at its place in each of these blocks.
void Builder::complete_at(int32_t barrier, int32_t bytes, int32_t ranks) {
  emit(IrOp::k_mbarrier, -1, barrier, bytes, ranks).aux =
      MbarrierCode{MbarrierOp::kCompleteTx, false, true, ranks >= 0}.encode();
}

bool Builder::lower_copy_async(const Instruction& in) {
  const uint64_t bytes = in.operands[2].integer;
  if (in.operands[2].kind != Operand::Kind::kInteger || (bytes != 4 && bytes != 8 && bytes != 16)) {
    return unsupported("cp.async of an odd size");
  }
  Address to, from;
  if (!address_of(in.operands[0], Space::kShared, &to)) return false;
  if (!address_of(in.operands[1], Space::kGlobal, &from)) return false;
  if (to.offset != 0) {
    const int32_t sum = temporary(4);
    emit(IrOp::k_add_b32, sum, to.base, constant(to.offset, 4));
    to.base = sum;
  }
  // Optional: a count of bytes really read, the rest is zero; or a predicate to read none. Behind
  // them the policy.
  int32_t real = -1;
  if (in.operands.size() > (in.has("L2::cache_hint") ? 4u : 3u)) {
    const Operand& limit = in.operands[3];
    const bool is_predicate =
        limit.kind == Operand::Kind::kRegister && values_[register_value(limit.index)].bytes == 0;
    if (is_predicate) {
      real = temporary(4);
      const int32_t ignored = read_predicate(limit);
      emit(IrOp::k_selp_b32, real, constant(0, 4), constant(bytes, 4), ignored);
    } else {
      real = read(limit, Lane::u32);
    }
  }
  Draft& draft = emit(IrOp::k_copy_async, -1, to.base, from.base, real);
  draft.imm = from.offset;
  draft.aux = static_cast<uint32_t>(bytes);
  return true;
}

// st.async and red.async: a store or an atomic, and its bytes' arrival.
bool Builder::lower_store_async(const Instruction& in) {
  const bool reduces = in.rule->mnemonic == "red";
  if (!(reduces ? lower_atomic(in) : lower_store(in))) return false;
  const uint32_t count = in.has("v4") ? 4 : in.has("v2") ? 2 : 1;
  complete_at(generic_address(in.operands[2], Space::kSharedCluster),
              constant(count * ptx::type_bytes(in.type(0)), 4));
  return true;
}

// "[to], [from], size", then "[mbar]" and the ranks of a multicast, or only a policy.
bool Builder::lower_bulk_copy(const Instruction& in) {
  BulkCode code;
  code.multicast = in.has("multicast::cluster");
  code.reduces = in.has("reduce");
  if (code.reduces) {
    code.op = atomic_op_of(in);
    code.type = in.type(0) == Type::kB64 ? AtomicType::kU64 : atomic_type_of(in.type(0));
  }
  const bool at_barrier = in.has("mbarrier::complete_tx::bytes");
  // One of both sides is this block's, or this cluster's; the other may be global memory.
  const bool to_global = !at_barrier;
  const bool from_global = at_barrier && in.has("global");
  const int32_t to =
      generic_address(in.operands[0], to_global ? Space::kGlobal : Space::kSharedCluster);
  const int32_t from =
      generic_address(in.operands[1], from_global ? Space::kGlobal : Space::kSharedCluster);
  const int32_t bytes = read(in.operands[2], Lane::u32);
  const int32_t barrier = at_barrier ? generic_address(in.operands[3], Space::kSharedCluster) : -1;
  if (code.multicast && in.operands.size() < 5) return unsupported("multicast without a mask");
  const int32_t ranks = code.multicast ? read(in.operands[4], Lane::u16) : -1;
  Draft& draft = emit(IrOp::k_bulk_copy, -1, to, from, bytes);
  draft.e = ranks;
  draft.aux = code.encode();
  if (at_barrier) complete_at(barrier, bytes, ranks);
  return true;
}

// Loads: "[to], [map, {coordinates}], [mbar]", then of im2col the offsets, the ranks of a
// multicast, a policy. Stores: "[map, {coordinates}], [from]", a policy. Prefetches: as loads,
// without the brackets that are not the map's.
bool Builder::lower_tensor_copy(const Instruction& in) {
  BulkCode code;
  code.rank = tensor_rank(in);
  code.multicast = in.has("multicast::cluster");
  code.im2col = in.has("im2col") || in.has("im2col_no_offs");
  code.stores = in.has("bulk_group");
  code.prefetches = in.has("prefetch");
  code.reduces = in.has("reduce");
  if (code.reduces) code.op = atomic_op_of(in);
  const bool loads = !code.stores && !code.prefetches;
  Operand where = in.operands[loads ? 1 : 0];
  if (where.items.size() != 1 + code.rank) return unsupported("coordinates of another rank");
  std::vector<int32_t> values;
  for (uint32_t i = 0; i < code.rank; ++i) values.push_back(read(where.items[1 + i], Lane::u32));
  where.items.resize(1);
  const int32_t map = generic_address(where, Space::kGeneric);
  int32_t box = -1;
  if (!code.prefetches) {
    box = generic_address(in.operands[loads ? 0 : 1], Space::kSharedCluster);
  }
  size_t next = loads ? 3 : code.stores ? 2 : 1;
  if (code.im2col && !code.stores) {
    if (code.rank < 3 || in.operands.size() <= next ||
        in.operands[next].items.size() != code.rank - 2) {
      return unsupported("im2col without its offsets");
    }
    for (const Operand& offset : in.operands[next].items) values.push_back(read(offset, Lane::u16));
    ++next;
  }
  if (code.multicast && in.operands.size() <= next) return unsupported("multicast without a mask");
  const int32_t ranks = code.multicast ? read(in.operands[next], Lane::u16) : -1;
  const int32_t bytes = loads ? temporary(4) : -1;
  const int32_t barrier = loads ? generic_address(in.operands[2], Space::kSharedCluster) : -1;
  Draft& draft = emit(IrOp::k_tensor_copy, bytes, map, box, ranks);
  draft.aux = code.encode();
  draft.extra_values = values;
  if (loads) complete_at(barrier, bytes, ranks);
  return true;
}

// A policy is only a hint to others: any number will do.
bool Builder::lower_policy(const Instruction& in) {
  const int32_t d = result(in.operands[0], 8);
  emit(IrOp::k_mov_b64, d, constant(0, 8));
  store_result(in.operands[0], d);
  return true;
}

}  // namespace openmps::softgpu::ir
