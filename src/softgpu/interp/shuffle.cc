// SPDX-License-Identifier: Apache-2.0
// The handlers of shfl. Compiled once per instruction set, like lanes.cc, so no header with inline
// functions may be included. Run by the interpreter, on its thread.
#include "softgpu/interp/warp.h"
#include "softgpu/ir/memory_codes.h"

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
    if constexpr (mode == ShuffleMode::kUp) {
      from = sub_words(lane, by);
    } else if constexpr (mode == ShuffleMode::kDown) {
      from = add_words(lane, by);
    } else if constexpr (mode == ShuffleMode::kButterfly) {
      from = lane ^ by;
    } else {
      from = first | (by & ~segment);
    }
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
// has kHasPredicate; e: the member masks if aux has kHasMembers. A lane that does not take part, be
// it switched off, gone or not there, gives 0, as an H200 does. `here`: those that do, `mask`:
// those that may be written.
template <ShuffleMode mode>
INLINE void shuffle_active(const Op* op, std::byte* regs, u32 here, u32 mask) {
  u32 result[kWarpSize];  // the operands may be where the result goes
  const u32* values = (const u32*)(regs + op->a);
  u32 present[kWarpSize];
  if (__builtin_expect(here != kFullMask, 0)) {
    LANES present[i] = here & ((u32)1 << i) ? values[i] : 0;
    values = present;
  }
  const u32 in_range =
      shuffle_lanes<mode>(result, values, (const u32*)(regs + op->b), (const u32*)(regs + op->c));
  u32* d = (u32*)(regs + op->d);
  if (mask == kFullMask) {
    LANES d[i] = result[i];
  } else {
    LANES d[i] = mask & ((u32)1 << i) ? result[i] : d[i];
  }
  if (op->aux & kHasPredicate) {
    u32* predicate = (u32*)(regs + op->extra[0]);
    *predicate = (*predicate & ~mask) | (in_range & mask);
  }
}

// The lanes' masks differ, or some named lane has not come yet. Lanes of several groups that
// shuffle together may read from each other, as on an H200.
template <ShuffleMode mode>
__attribute__((noinline)) const Op* shuffle_groups(const Op* op, Warp* warp) {
  const Op* next;
  if (gather_lanes(warp, op, &next) == Gathered::kWait) return next;
  shuffle_active<mode>(op, warp->regs, warp->active, warp->mask);
  return op + 1;
}

INLINE bool masks_differ(const u32* masks, u32 first, u32 lanes) {
  u32 different = 0;
  LANES different |= (masks[i] ^ first) & (0 - (lanes >> i & 1));
  return different != 0;
}

template <ShuffleMode mode>
INLINE const Op* shuffle(const Op* op, Warp* warp, std::byte* regs, u32 mask) {
  if (op->aux & kHasMembers) {
    const u32* masks = (const u32*)(regs + op->e);
    const u32 members = masks[__builtin_ctz(warp->active)];
    const bool same = (op->aux & kSameMembers) || !masks_differ(masks, members, warp->active);
    if (__builtin_expect(!same || (members & warp->alive & ~warp->active) != 0, 0)) {
      return shuffle_groups<mode>(op, warp);
    }
  }
  shuffle_active<mode>(op, regs, warp->active, mask);
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
