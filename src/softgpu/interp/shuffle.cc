// SPDX-License-Identifier: Apache-2.0
// The handlers of shfl. Compiled once per instruction set, like lanes.cc and under the same rule:
// no header with inline functions. Run by the interpreter, on its thread.
#include "softgpu/interp/warp.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace openmps::softgpu::SOFTGPU_ISA {
namespace {

#include "softgpu/interp/lane_math.h"
#include "softgpu/interp/lane_vectors.h"

enum class ShuffleMode { kUp, kDown, kButterfly, kIndex };

// Which lane `lane` reads from and whether that one is in range (else it reads its own): by the
// formula of the PTX manual. `b` and `c` are the lane's operands.
#if SOFTGPU_VECTORS
template <ShuffleMode mode>
INLINE u32 shuffle_lanes(u32* result, const u32* values, const u32* b, const u32* c) {
  const Words five_bits = splat_words(31);
  u32 in_range = 0;
  for (u32 v = 0; v < kVectors; ++v) {
    const Words lane = add_words(word_steps(1), splat_words(v * kVectorLanes));
    const Words control = load_words(c + v * kVectorLanes);
    const Words by = load_words(b + v * kVectorLanes) & five_bits;
    const Words segment = byte_1_of_words(control) & five_bits;
    const Words first = lane & segment;
    const Words last = first | (control & five_bits & ~segment);
    Words from;
    if constexpr (mode == ShuffleMode::kUp)
      from = sub_words(lane, by);
    else if constexpr (mode == ShuffleMode::kDown)
      from = add_words(lane, by);
    else if constexpr (mode == ShuffleMode::kButterfly)
      from = lane ^ by;
    else
      from = first | (by & ~segment);
    const Flags outside =
        mode == ShuffleMode::kUp ? greater_words(last, from) : greater_words(from, last);
    in_range |= (~bits_of_flags(outside) & low_mask(kVectorLanes)) << (v * kVectorLanes);
    store_words(result + v * kVectorLanes, permute_warp(values, choose_words(outside, lane, from)));
  }
  return in_range;
}
#else
template <ShuffleMode mode>
INLINE u32 shuffle_lanes(u32* result, const u32* values, const u32* b, const u32* c) {
  u32 in_range = 0;
  for (u32 lane = 0; lane < kWarpSize; ++lane) {
    const u32 segment = (c[lane] >> 8) & 31, by = b[lane] & 31;
    const u32 first = lane & segment;
    const u32 last = first | (c[lane] & 31 & ~segment);
    const u32 from = mode == ShuffleMode::kUp          ? lane - by
                     : mode == ShuffleMode::kDown      ? lane + by
                     : mode == ShuffleMode::kButterfly ? lane ^ by
                                                       : first | (by & ~segment);
    const bool good = mode == ShuffleMode::kUp ? (s32)from >= (s32)last : from <= last;
    in_range |= (u32)good << lane;
    result[lane] = values[good ? from : lane];
  }
  return in_range;
}
#endif

// a: values, b: lane or distance, c: clamp and segment mask; extra[0]: predicate "in range" if aux
// has bit 9; aux bit 8: e holds the member mask.
template <ShuffleMode mode>
INLINE void shuffle_active(const Op* op, std::byte* regs, u32 mask) {
  u32 result[kWarpSize];  // the operands may be where the result goes
  const u32 in_range = shuffle_lanes<mode>(result, (const u32*)(regs + op->a),
                                           (const u32*)(regs + op->b), (const u32*)(regs + op->c));
  u32* d = (u32*)(regs + op->d);
  if (mask == kFullMask) {
    LANES d[i] = result[i];
  } else {
    LANES d[i] = mask & ((u32)1 << i) ? result[i] : d[i];
  }
  if (op->aux & 0x200) {
    u32* predicate = (u32*)(regs + op->extra[0]);
    *predicate = (*predicate & ~mask) | (in_range & mask);
  }
}

template <ShuffleMode mode>
__attribute__((noinline)) const Op* shuffle_waiting(const Op* op, Warp* warp, u32 members) {
  const Op* next;
  if (!gather_lanes(warp, op, members, &next)) return next;
  shuffle_active<mode>(op, warp->regs, warp->mask);
  return op + 1;
}

template <ShuffleMode mode>
INLINE const Op* shuffle(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if (op->aux & 0x100) {
    const u32 members = ((const u32*)(regs + op->e))[__builtin_ctz(warp->active)];
    if (__builtin_expect((members & warp->alive & ~warp->active) != 0, 0))
      return shuffle_waiting<mode>(op, warp, members);
  }
  shuffle_active<mode>(op, regs, mask);
  SOFTGPU_NEXT(op + 1);
}

#define SHUFFLE(name, mode)                                                 \
  const Op* h_##name(const Op* op, Warp* warp, std::byte* regs, u32 mask) { \
    return shuffle<ShuffleMode::mode>(op, warp, regs, mask);                \
  }
SHUFFLE(shuffle_up, kUp)
SHUFFLE(shuffle_down, kDown)
SHUFFLE(shuffle_butterfly, kButterfly)
SHUFFLE(shuffle_index, kIndex)
#undef SHUFFLE

}  // namespace

void add_shuffle_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[(size_t)IrOp::k_##name] = h_##name
  PUT(shuffle_up);
  PUT(shuffle_down);
  PUT(shuffle_butterfly);
  PUT(shuffle_index);
#undef PUT
}

}  // namespace openmps::softgpu::SOFTGPU_ISA
