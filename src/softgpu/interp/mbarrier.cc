// SPDX-License-Identifier: Apache-2.0
// mbarrier objects: 64 bits of shared memory, of the block's own or of another's of its cluster.
// One thread runs the whole cluster, so they need no atomics. Run by the interpreter.
#include <algorithm>
#include <cstring>

#include "softgpu/interp/address.h"
#include "softgpu/interp/block.h"
#include "softgpu/interp/cluster.h"
#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu {
namespace {

// Counts have 20 bits, transactions one more for the sign.
constexpr uint64_t kCountMask = 0xfffff;

// The opaque 64 bits: expected arrivals, arrivals still missing, the phase, and the transactions
// still missing, which are less than none while their announcement is still to come.
struct Mbarrier {
  uint64_t expected : 20;
  uint64_t pending : 20;
  uint64_t phase : 1;
  int64_t transactions : 23;
};
static_assert(sizeof(Mbarrier) == 8);

void complete_phase(Mbarrier* m) {
  if (m->pending != 0 || m->transactions != 0) return;
  m->phase ^= 1;
  m->pending = m->expected;
}

void arrive_at(Mbarrier* m, uint32_t count) {
  m->pending -= std::min<uint64_t>(count, m->pending);
  complete_phase(m);
}

void drop_from(Mbarrier* m, uint32_t count) {
  m->expected -= std::min<uint64_t>(count, m->expected);
  arrive_at(m, count);
}

void operate(MbarrierOp kind, Mbarrier* m, uint64_t value) {
  const auto count = static_cast<uint32_t>(value);
  switch (kind) {
    case MbarrierOp::kInit:
      *m = {};
      m->expected = m->pending = value & kCountMask;
      break;
    case MbarrierOp::kInval: *m = {}; break;
    case MbarrierOp::kExpectTx: m->transactions += static_cast<int32_t>(value); break;
    case MbarrierOp::kCompleteTx:
      m->transactions -= static_cast<int32_t>(value);
      complete_phase(m);
      break;
    case MbarrierOp::kArrive: arrive_at(m, count); break;
    case MbarrierOp::kArriveDrop: drop_from(m, count); break;
    case MbarrierOp::kArriveExpectTx:
      m->transactions += static_cast<int32_t>(value);
      arrive_at(m, 1);
      break;
    case MbarrierOp::kArriveDropExpectTx:
      m->transactions += static_cast<int32_t>(value);
      drop_from(m, 1);
      break;
    case MbarrierOp::kCopyArrive:
      break;  // raises the count and, copies being done, lowers it again
    case MbarrierOp::kCopyArriveNoinc: arrive_at(m, 1); break;
    case MbarrierOp::kTestWait:
    case MbarrierOp::kTestWaitParity:
    case MbarrierOp::kPendingCount: break;
  }
}

// Whether the phase is over that the token (or the parity) speaks of.
bool is_over(MbarrierOp kind, const Mbarrier& m, uint64_t value) {
  if (kind == MbarrierOp::kTestWaitParity) return (value & 1) != m.phase;
  Mbarrier token;
  std::memcpy(&token, &value, sizeof token);
  return token.phase != m.phase;
}

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

// a: address, generic; b: value; c: which blocks of the cluster, at the same place in each; d: the
// state or the predicate. aux: MbarrierCode.
HANDLER(mbarrier) {
  const MbarrierCode code = MbarrierCode::decode(op->aux);
  const bool tests = code.op == MbarrierOp::kTestWait || code.op == MbarrierOp::kTestWaitParity;
  const auto* addresses = reinterpret_cast<const uint64_t*>(regs + op->a);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    uint64_t value = 1;  // arrivals without a count
    if (code.has_value) {
      value = 0;
      const uint32_t bytes = code.op == MbarrierOp::kTestWait ? 8 : 4;
      std::memcpy(&value, regs + op->b + lane * bytes, bytes);
    }
    SharedPlaces places(
        addresses[lane] + op->imm,
        code.multicast ? reinterpret_cast<uint16_t*>(regs + op->c) + lane : nullptr);
    for (uint64_t address; places.next(&address);) {
      std::byte* at = shared_for(warp, op, lane, address, sizeof(Mbarrier), sizeof(Mbarrier));
      if (!at) return nullptr;
      auto* m = reinterpret_cast<Mbarrier*>(at);
      if (code.has_result && tests) {
        uint32_t& d = *reinterpret_cast<uint32_t*>(regs + op->d);
        d = (d & ~(1u << lane)) | static_cast<uint32_t>(is_over(code.op, *m, value)) << lane;
      } else if (code.has_result) {
        std::memcpy(regs + op->d + lane * sizeof(Mbarrier), at, sizeof(Mbarrier));
      }
      operate(code.op, m, value);
    }
  }
  return op + 1;
}

}  // namespace

void add_mbarrier_handlers(HandlerTable* table) {
  table->handlers[static_cast<size_t>(IrOp::k_mbarrier)] = h_mbarrier;
}

}  // namespace openmps::softgpu
