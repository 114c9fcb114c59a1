// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk and cp.reduce.async.bulk of plain bytes. A copy is done at once, so groups have
// nothing left to wait for; what completes at an mbarrier is an op of its own behind it. Run by the
// interpreter.
#include <cstring>

#include "softgpu/interp/address.h"
#include "softgpu/interp/atomics.h"
#include "softgpu/interp/block.h"
#include "softgpu/interp/cluster.h"
#include "softgpu/ir/bulk_codes.h"

namespace openmps::softgpu {
namespace {

// Of addresses and sizes, by the PTX ISA.
constexpr uint64_t kBulkUnit = 16;

// From shared to shared memory, which an H200 does in a launch of clusters alone.
bool is_between_blocks(uint64_t to, uint64_t from) {
  return (to & ~kWindowMask) == kSharedWindow && (from & ~kWindowMask) == kSharedWindow;
}

// a: to, b: from, both generic; c: bytes; e: ranks, of a multicast; aux: BulkCode.
const Op* h_bulk_copy(const Op* op, Warp* warp, std::byte* regs, uint32_t) {
  const BulkCode code = BulkCode::decode(op->aux);
  const auto* to = reinterpret_cast<const uint64_t*>(regs + op->a);
  const auto* from = reinterpret_cast<const uint64_t*>(regs + op->b);
  const auto* sizes = reinterpret_cast<const uint32_t*>(regs + op->c);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    const uint32_t bytes = sizes[lane];
    if (bytes % kBulkUnit != 0) {
      return warp->block->raise(warp, op, CUDA_ERROR_MISALIGNED_ADDRESS, to[lane],
                                "bulk copy of " + std::to_string(bytes) + " bytes", 1u << lane);
    }
    if (bytes == 0) continue;
    if (is_between_blocks(to[lane], from[lane]) && !warp->block->shape.explicit_cluster) {
      return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_INSTRUCTION, to[lane],
                                "bulk copy from shared to shared memory outside of a cluster",
                                1u << lane);
    }
    const std::byte* source = memory_for(warp, op, lane, from[lane], bytes, kBulkUnit, false);
    if (!source) return nullptr;
    SharedPlaces places(
        to[lane], code.multicast ? reinterpret_cast<uint16_t*>(regs + op->e) + lane : nullptr);
    for (uint64_t address; places.next(&address);) {
      std::byte* target = memory_for(warp, op, lane, address, bytes, kBulkUnit, true);
      if (!target) return nullptr;
      if (code.reduces) {
        update_array(code.op, code.type, target, source, bytes);
      } else {
        std::memmove(target, source, bytes);
      }
    }
  }
  return op + 1;
}

}  // namespace

void add_bulk_handlers(HandlerTable* table) {
  table->handlers[static_cast<size_t>(IrOp::k_bulk_copy)] = h_bulk_copy;
}

}  // namespace openmps::softgpu
