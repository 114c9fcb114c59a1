// SPDX-License-Identifier: Apache-2.0
// Predicates (one word per warp), special registers that change, kernel parameters. Run by the
// interpreter, on its thread.
#include <cstring>

#include "softgpu/interp/block.h"
#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu {
namespace {

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

uint32_t& word_at(std::byte* regs, int32_t offset) {
  return *reinterpret_cast<uint32_t*>(regs + offset);
}

inline void assign(uint32_t* d, uint32_t value, uint32_t mask) {
  *d = (*d & ~mask) | (value & mask);
}

HANDLER(pred_and) {
  assign(&word_at(regs, op->d), word_at(regs, op->a) & word_at(regs, op->b), mask);
  SOFTGPU_NEXT(op + 1);
}
HANDLER(pred_or) {
  assign(&word_at(regs, op->d), word_at(regs, op->a) | word_at(regs, op->b), mask);
  SOFTGPU_NEXT(op + 1);
}
HANDLER(pred_xor) {
  assign(&word_at(regs, op->d), word_at(regs, op->a) ^ word_at(regs, op->b), mask);
  SOFTGPU_NEXT(op + 1);
}
HANDLER(pred_not) {
  assign(&word_at(regs, op->d), ~word_at(regs, op->a), mask);
  SOFTGPU_NEXT(op + 1);
}
HANDLER(pred_mov) {
  assign(&word_at(regs, op->d), word_at(regs, op->a), mask);
  SOFTGPU_NEXT(op + 1);
}

// %clock counts kClockRate times the time of %globaltimer, so that programs that spin for a time
// take that time.
uint64_t clock_of(uint64_t nanoseconds) {
  constexpr uint64_t kNanosecondsPerMillisecond = 1'000'000;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(nanoseconds) * kClockRate /
                               kNanosecondsPerMillisecond);
}

HANDLER(read_special) {
  using S = ptx::SpecialRegister;
  const auto special = static_cast<S>(op->aux);
  Block& block = *warp->block;
  uint64_t value = 0;
  if (special == S::kSmid) {
    value = block.sm;
  } else if (special == S::kCurrentGraphExec) {
    value = block.graph != nullptr ? block.graph->current_graph() : 0;
  } else {
    value = block.services ? block.services->global_timer_ns() : 0;
    if (special == S::kClock || special == S::kClock64 || special == S::kClockHi) {
      value = clock_of(value);
    }
    if (special == S::kGlobaltimerHi || special == S::kClockHi) value >>= 32;
  }
  warp->fuel -= 1;
  const uint32_t bytes = ptx::special_register_bytes(special);
  for (uint32_t i = 0; i < kWarpSize; ++i) {
    if (mask >> i & 1) std::memcpy(regs + op->d + i * bytes, &value, bytes);
  }
  SOFTGPU_NEXT(op + 1);
}

void write_lane(std::byte* lanes, uint32_t lane, uint32_t lane_bytes, const std::byte* from,
                uint32_t bytes, bool is_signed) {
  uint64_t words[2] = {0, 0};
  std::memcpy(words, from, bytes);
  if (is_signed && bytes < 8) {
    const uint32_t shift = 64 - 8 * bytes;
    words[0] = static_cast<uint64_t>(static_cast<int64_t>(words[0] << shift) >> shift);
  }
  std::memcpy(lanes + lane * lane_bytes, words, lane_bytes);
}

template <class T>
void splat_value(std::byte* lanes, const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  for (uint32_t i = 0; i < kWarpSize; ++i) reinterpret_cast<T*>(lanes)[i] = value;
}

// Parameters that are not indexed: all lanes get one value.
void splat(std::byte* lanes, uint32_t lane_bytes, const std::byte* from, uint32_t bytes,
           bool is_signed) {
  alignas(16) std::byte first[16];
  if (lane_bytes != bytes) {
    write_lane(first, 0, lane_bytes, from, bytes, is_signed);
    from = first;
  }
  if (lane_bytes == 4) {
    splat_value<uint32_t>(lanes, from);
  } else if (lane_bytes == 8) {
    splat_value<uint64_t>(lanes, from);
  } else {
    for (uint32_t i = 0; i < kWarpSize; ++i) std::memcpy(lanes + i * lane_bytes, from, lane_bytes);
  }
}

// a: offset into the kernel's parameters; aux: ordered_code(), kUniformAddress; extra: the
// registers.
HANDLER(load_param) {
  const uint32_t count = op->aux & 15, bytes = op->aux >> 4 & 0xff,
                 lane_bytes = op->aux >> 12 & 0xff;
  const bool is_signed = op->aux >> 20 & 1;
  const auto* offsets = reinterpret_cast<const uint64_t*>(regs + op->a);
  uint64_t differs = 0;
  if (!(op->aux & kUniformAddress)) {
    for (uint32_t i = 0; i < kWarpSize; ++i) differs |= offsets[i] ^ offsets[0];
  }
  const uint64_t first = offsets[0] + op->imm;
  if (differs == 0 && mask == kFullMask && first <= warp->param_bytes &&
      first + uint64_t{count} * bytes <= warp->param_bytes) {
    for (uint32_t e = 0; e < count; ++e) {
      splat(regs + op->extra[e], lane_bytes, warp->params + first + e * bytes, bytes, is_signed);
    }
    SOFTGPU_NEXT(op + 1);
  }
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    const uint64_t at = offsets[lane] + op->imm;
    if (at > warp->param_bytes || at + uint64_t{count} * bytes > warp->param_bytes) {
      return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, at, "parameter out of range",
                                1u << lane);
    }
    for (uint32_t e = 0; e < count; ++e) {
      write_lane(regs + op->extra[e], lane, lane_bytes, warp->params + at + e * bytes, bytes,
                 is_signed);
    }
  }
  return op + 1;
}

}  // namespace

void add_scalar_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[static_cast<size_t>(IrOp::k_##name)] = h_##name
  PUT(pred_and);
  PUT(pred_or);
  PUT(pred_xor);
  PUT(pred_not);
  PUT(pred_mov);
  PUT(read_special);
  PUT(load_param);
#undef PUT
}

}  // namespace openmps::softgpu
