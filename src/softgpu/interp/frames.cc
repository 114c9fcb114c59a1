// SPDX-License-Identifier: Apache-2.0
// See frames.h.
#include "softgpu/interp/frames.h"

#include <algorithm>
#include <cstring>

namespace openmps::softgpu {

using ptx::SpecialRegister;

namespace {

// The value of a special register in `lane`.
uint64_t special_value(const WarpState* warp, SpecialRegister special, uint32_t lane) {
  const Block& block = *warp->block;
  const uint32_t thread = warp->index * kWarpSize + lane;
  const uint32_t bit = 1u << lane;
  switch (special) {
    case SpecialRegister::kTidX: return thread % block.shape.block[0];
    case SpecialRegister::kTidY: return thread / block.shape.block[0] % block.shape.block[1];
    case SpecialRegister::kTidZ: return thread / (block.shape.block[0] * block.shape.block[1]);
    case SpecialRegister::kNtidX: return block.shape.block[0];
    case SpecialRegister::kNtidY: return block.shape.block[1];
    case SpecialRegister::kNtidZ: return block.shape.block[2];
    case SpecialRegister::kCtaidX: return block.index[0];
    case SpecialRegister::kCtaidY: return block.index[1];
    case SpecialRegister::kCtaidZ: return block.index[2];
    case SpecialRegister::kNctaidX: return block.shape.grid[0];
    case SpecialRegister::kNctaidY: return block.shape.grid[1];
    case SpecialRegister::kNctaidZ: return block.shape.grid[2];
    case SpecialRegister::kLaneid: return lane;
    case SpecialRegister::kWarpid: return warp->index;
    case SpecialRegister::kNwarpid: return block.warp_count;
    case SpecialRegister::kNsmid: return block.shape.sm_count;
    case SpecialRegister::kWarpSize: return kWarpSize;
    case SpecialRegister::kLanemaskEq: return bit;
    case SpecialRegister::kLanemaskLt: return bit - 1;
    case SpecialRegister::kLanemaskLe: return bit | (bit - 1);
    case SpecialRegister::kLanemaskGt: return ~(bit | (bit - 1));
    case SpecialRegister::kLanemaskGe: return ~(bit - 1);
    case SpecialRegister::kDynamicSharedSize: return block.shape.dynamic_shared_bytes;
    case SpecialRegister::kTotalSharedSize:
      return (block.static_shared + block.shape.dynamic_shared_bytes + 127) & ~127u;
    case SpecialRegister::kAggregateSharedSize:
      return block.static_shared + block.shape.dynamic_shared_bytes + kReservedSharedCap;
    case SpecialRegister::kReservedSharedBegin: return block.reserved_shared;
    case SpecialRegister::kReservedSharedEnd: return block.reserved_shared + kReservedSharedBytes;
    case SpecialRegister::kReservedSharedCap: return block.reserved_shared + kReservedSharedCap;
    case SpecialRegister::kEnvreg1: return block.shape.grid_workspace >> 32;
    case SpecialRegister::kEnvreg2: return block.shape.grid_workspace & 0xffffffffu;
    case SpecialRegister::kClusteridX: return block.index[0] / block.shape.cluster[0];
    case SpecialRegister::kClusteridY: return block.index[1] / block.shape.cluster[1];
    case SpecialRegister::kClusteridZ: return block.index[2] / block.shape.cluster[2];
    case SpecialRegister::kNclusteridX: return block.shape.grid[0] / block.shape.cluster[0];
    case SpecialRegister::kNclusteridY: return block.shape.grid[1] / block.shape.cluster[1];
    case SpecialRegister::kNclusteridZ: return block.shape.grid[2] / block.shape.cluster[2];
    case SpecialRegister::kClusterCtaidX: return block.index[0] % block.shape.cluster[0];
    case SpecialRegister::kClusterCtaidY: return block.index[1] % block.shape.cluster[1];
    case SpecialRegister::kClusterCtaidZ: return block.index[2] % block.shape.cluster[2];
    case SpecialRegister::kClusterNctaidX: return block.shape.cluster[0];
    case SpecialRegister::kClusterNctaidY: return block.shape.cluster[1];
    case SpecialRegister::kClusterNctaidZ: return block.shape.cluster[2];
    case SpecialRegister::kClusterCtarank: return block.cluster_rank();
    case SpecialRegister::kClusterNctarank:
      return block.shape.cluster[0] * block.shape.cluster[1] * block.shape.cluster[2];
    case SpecialRegister::kIsExplicitCluster: return block.shape.explicit_cluster ? 1 : 0;
    default: return 0;
  }
}

template <class T, class F>
void fill_lanes(std::byte* to, F value) {
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    reinterpret_cast<T*>(to)[lane] = static_cast<T>(value(lane));
  }
}

bool is_block_place(const SpecialSlot& slot) {
  return slot.what == FrameValue::kSpecial && ptx::is_block_place(slot.special);
}

// Bring the lanes' local memory to at least `bytes` each; addresses are offsets, so it may move.
bool grow_local(WarpState* warp, uint64_t bytes) {
  if (bytes <= warp->local_bytes) return true;
  if (bytes > kMaxLocalBytes) return false;
  const uint64_t grown = std::min(std::max(bytes, 2 * warp->local_bytes), kMaxLocalBytes);
  std::vector<std::byte> moved(grown * kWarpSize);
  for (uint32_t lane = 0; lane < kWarpSize && warp->local_bytes; ++lane) {
    std::memcpy(moved.data() + lane * grown, warp->local + lane * warp->local_bytes,
                warp->local_bytes);
  }
  warp->local_memory = std::move(moved);
  warp->local = warp->local_memory.data();
  warp->local_bytes = grown;
  return true;
}

}  // namespace

void fill_frame(WarpState* warp, Frame* frame, Fill fill) {
  const Code& code = *frame->code;
  if (fill == Fill::kAll) {
    const auto& placed = warp->block->program->images[static_cast<size_t>(code.function)];
    const auto& image = code.references.empty() ? code.image : placed;
    std::memcpy(frame->regs, image.data(), image.size());
  }
  for (const SpecialSlot& slot : code.specials) {
    if (fill == Fill::kBlockPlace && !is_block_place(slot)) continue;
    std::byte* to = frame->regs + slot.offset;
    if (slot.what == FrameValue::kSpecial && slot.special >= SpecialRegister::kTidX) {
      auto value = [&](uint32_t lane) { return special_value(warp, slot.special, lane); };
      slot.bytes == 8 ? fill_lanes<uint64_t>(to, value) : fill_lanes<uint32_t>(to, value);
      continue;
    }
    const uint64_t same = slot.what == FrameValue::kLocalBase ? frame->local_base
                          : slot.what == FrameValue::kDynamicShared
                              ? warp->block->static_shared
                              : special_value(warp, slot.special, 0);
    auto value = [=](uint32_t) { return same; };
    slot.bytes == 8 ? fill_lanes<uint64_t>(to, value) : fill_lanes<uint32_t>(to, value);
  }
}

Frame* make_frame(WarpState* warp, const Code* code, uint64_t local_base) {
  WarpState::FrameStorage* storage = nullptr;
  if (code->is_kernel) {
    storage = &warp->root;
  } else {
    for (auto& candidate : warp->free_frames) {
      if (candidate->memory.size() >= code->frame_bytes) {
        storage = candidate;
        std::swap(candidate, warp->free_frames.back());
        warp->free_frames.pop_back();
        break;
      }
    }
    if (!storage) {
      warp->frames.push_back(std::make_unique<WarpState::FrameStorage>());
      storage = warp->frames.back().get();
    }
  }
  storage->memory.reserve(code->frame_bytes);
  storage->frame = Frame{};
  storage->frame.code = code;
  storage->frame.regs = storage->memory.data();
  storage->frame.local_base = local_base;
  if (!grow_local(warp, local_base + code->local_bytes)) return nullptr;
  return &storage->frame;
}

void free_frame(WarpState* warp, Frame* frame) {
  if (!frame->parent) return;  // the kernel's own
  for (const auto& storage : warp->frames) {
    if (&storage->frame == frame) {
      warp->free_frames.push_back(storage.get());
      return;
    }
  }
}

void leave_frames(WarpState* warp, Frame* frame, uint32_t lanes) {
  while (frame) {
    Frame* parent = frame->parent;
    frame->lanes &= ~lanes;
    if (frame->lanes == 0) free_frame(warp, frame);
    frame = parent;
  }
}

}  // namespace openmps::softgpu
