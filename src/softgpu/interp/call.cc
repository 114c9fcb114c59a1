// SPDX-License-Identifier: Apache-2.0
// Frames and calls. A call gets a frame of its own for the fragment that calls, so the lanes of a
// warp may be in different functions and at different depths. Parameters travel through the lanes'
// local memory. Run by the interpreter, on its thread.
#include "softgpu/interp/block.h"

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
    case SpecialRegister::kDynamicSharedSize: return block.shape.dynamic_shared;
    case SpecialRegister::kTotalSharedSize:
      return (block.static_shared + block.shape.dynamic_shared + 127) & ~127u;
    case SpecialRegister::kAggregateSharedSize:
      return block.static_shared + block.shape.dynamic_shared + kReservedSharedCap;
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
  for (uint32_t lane = 0; lane < kWarpSize; ++lane)
    reinterpret_cast<T*>(to)[lane] = static_cast<T>(value(lane));
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
  for (uint32_t lane = 0; lane < kWarpSize && warp->local_bytes; ++lane)
    std::memcpy(moved.data() + lane * grown, warp->local + lane * warp->local_bytes,
                warp->local_bytes);
  warp->local_memory = std::move(moved);
  warp->local = warp->local_memory.data();
  warp->local_bytes = grown;
  return true;
}

}  // namespace

void fill_frame(WarpState* warp, Frame* frame, Fill fill) {
  const Code& code = *frame->code;
  if (fill == Fill::kAll) {
    const auto& image = warp->block->program->images[static_cast<size_t>(code.function)];
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
    for (auto& candidate : warp->free_frames)
      if (candidate->memory.size() >= code->frame_bytes) {
        storage = candidate;
        std::swap(candidate, warp->free_frames.back());
        warp->free_frames.pop_back();
        break;
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
  for (const auto& storage : warp->frames)
    if (&storage->frame == frame) {
      warp->free_frames.push_back(storage.get());
      return;
    }
}

// `lanes` have exited: they are in none of the frames from `frame` up any more.
void leave_frames(WarpState* warp, Frame* frame, uint32_t lanes) {
  while (frame) {
    Frame* parent = frame->parent;
    frame->lanes &= ~lanes;
    if (frame->lanes == 0) free_frame(warp, frame);
    frame = parent;
  }
}

namespace {

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

const CallSite& site_of(const Op* op, const Warp* warp) {
  return warp->frame->code->call_sites[op->imm];
}

const Op* enter(WarpState* warp, const Op* op, const CallSite& site, const Code& callee) {
  Frame* caller = warp->frame;
  if (!callee.unusable.empty())
    return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_INSTRUCTION, 0,
                              "call of " + callee.name + ": " + callee.unusable);
  if (caller->depth >= kMaxCallDepth || site.arguments.size() > callee.parameters.size() ||
      site.results.size() > callee.results.size())
    return warp->block->raise(
        warp, op, CUDA_ERROR_LAUNCH_FAILED, 0,
        caller->depth >= kMaxCallDepth ? "stack overflow" : "call with the wrong parameters");
  const uint64_t local_base = caller->local_base + caller->code->local_bytes;
  if (callee.recursive && warp->block->services != nullptr &&
      local_base + callee.local_bytes > warp->block->services->stack_bytes()) [[unlikely]]
    return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, 0,
                              "recursion needs more stack than the context's limit");
  Frame* frame = make_frame(warp, &callee, local_base);
  if (!frame) return warp->block->raise(warp, op, CUDA_ERROR_LAUNCH_FAILED, 0, "stack overflow");
  frame->parent = caller;
  frame->return_to = op + 1;
  frame->site = &site;
  frame->lanes = warp->active;
  frame->depth = caller->depth + 1;
  fill_frame(warp, frame, Fill::kAll);
  for (size_t i = 0; i < site.arguments.size(); ++i)
    for (uint32_t left = warp->active; left; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
      std::memcpy(
          warp->block->local_at(warp, lane, frame->local_base + callee.parameters[i].offset),
          warp->block->local_at(warp, lane, caller->local_base + site.arguments[i].offset),
          std::min(site.arguments[i].bytes, callee.parameters[i].bytes));
    }
  warp->frame = frame;
  warp->regs = frame->regs;
  update_mask(warp);
  return callee.ops.data();
}

// Recursion needs no back edge, so calls poll too. True: come back to this op later.
bool out_of_fuel(Warp* warp, const Op* op) {
  if (--warp->fuel > 0 && !warp->stop->load(std::memory_order_relaxed)) return false;
  warp->pc = op;
  return true;
}

HANDLER(call) {
  if (out_of_fuel(warp, op)) return nullptr;
  const CallSite& site = site_of(op, warp);
  return enter(state_of(warp), op, site, warp->block->code_of(site.callee));
}

// a: the function's address. Lanes with other targets follow later.
HANDLER(call_indirect) {
  if (out_of_fuel(warp, op)) return nullptr;
  WarpState* state = state_of(warp);
  const auto* targets = reinterpret_cast<const uint64_t*>(regs + op->a);
  const uint64_t target = targets[__builtin_ctz(warp->active)];
  uint32_t lanes = 0;
  for (uint32_t i = 0; i < kWarpSize; ++i)
    if ((warp->active >> i & 1) && targets[i] == target) lanes |= 1u << i;
  const uint64_t number = (target - kFunctionWindow) / 16;
  const Code* callee = target < kFunctionWindow || number > INT32_MAX
                           ? nullptr
                           : warp->block->program->code(static_cast<int32_t>(number));
  if (!callee || callee->is_kernel)
    return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_INSTRUCTION, target,
                              "call of no function", lanes);
  if (lanes != warp->active) {
    open_record(state, op + op->e);
    Fragment rest;
    rest.frame = warp->frame;
    rest.record = warp->record;
    rest.pc = op;
    rest.mask = warp->active & ~lanes;
    state->fragments.insert(state->fragments.begin(), rest);
    warp->active = lanes;
  }
  return enter(state, op, site_of(op, warp), *callee);
}

HANDLER(ret) {
  WarpState* state = state_of(warp);
  warp->fuel -= op->aux;
  Frame* frame = warp->frame;
  Frame* caller = frame->parent;
  // Records of this frame that the lanes never met at.
  while (warp->record && warp->record->frame == frame) {
    Record* record = warp->record;
    warp->record = record->parent;
    leave_record(state, record, record->parent, warp->active);
  }
  const CallSite& site = *frame->site;
  for (size_t i = 0; i < site.results.size(); ++i)
    for (uint32_t left = warp->active; left; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
      std::memcpy(
          warp->block->local_at(warp, lane, caller->local_base + site.results[i].offset),
          warp->block->local_at(warp, lane, frame->local_base + frame->code->results[i].offset),
          std::min(site.results[i].bytes, frame->code->results[i].bytes));
    }
  const Op* next = frame->return_to;
  frame->lanes &= ~warp->active;
  if (frame->lanes == 0) free_frame(state, frame);
  warp->frame = caller;
  warp->regs = caller->regs;
  update_mask(warp);
  return next;
}

}  // namespace

uint64_t call_argument(Warp* warp, const CallSite& site, size_t i, uint32_t lane) {
  uint64_t value = 0;
  std::memcpy(&value,
              warp->block->local_at(warp, lane, warp->frame->local_base + site.arguments[i].offset),
              std::min<uint64_t>(8, site.arguments[i].bytes));
  return value;
}

void set_call_result(Warp* warp, const CallSite& site, uint32_t lane, uint64_t value) {
  if (site.results.empty()) return;
  std::memcpy(warp->block->local_at(warp, lane, warp->frame->local_base + site.results[0].offset),
              &value, std::min<uint64_t>(8, site.results[0].bytes));
}

namespace {

HANDLER(call_printf) {
  const CallSite& site = site_of(op, warp);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    std::string text;
    const int count = format_printf(warp, lane, call_argument(warp, site, 0, lane),
                                    call_argument(warp, site, 1, lane), &text);
    if (count >= 0 && warp->block->services) warp->block->services->print(text);
    set_call_result(warp, site, lane, static_cast<uint64_t>(static_cast<int64_t>(count)));
  }
  return op + 1;
}

HANDLER(call_malloc) {
  const CallSite& site = site_of(op, warp);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    DeviceServices* services = warp->block->services;
    set_call_result(
        warp, site, lane,
        services ? services->allocate_device_heap(call_argument(warp, site, 0, lane)) : 0);
  }
  return op + 1;
}

HANDLER(call_free) {
  const CallSite& site = site_of(op, warp);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const uint64_t address =
        call_argument(warp, site, 0, static_cast<uint32_t>(__builtin_ctz(left)));
    if (address && warp->block->services) warp->block->services->free_device_heap(address);
  }
  return op + 1;
}

// handle, value
HANDLER(call_set_condition) {
  const CallSite& site = site_of(op, warp);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    const uint64_t handle = call_argument(warp, site, 0, lane);
    const auto value = static_cast<uint32_t>(call_argument(warp, site, 1, lane));
    DeviceServices* services = warp->block->services;
    if (!services || !services->set_condition(handle, value))
      return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, handle,
                                "no conditional handle of this context", 1u << lane);
  }
  return op + 1;
}

// message, file, line, function, size of a character
HANDLER(call_assertfail) {
  const CallSite& site = site_of(op, warp);
  const Block& block = *warp->block;
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    std::string message, file, function;
    read_string(warp, lane, call_argument(warp, site, 0, lane), &message);
    read_string(warp, lane, call_argument(warp, site, 1, lane), &file);
    read_string(warp, lane, call_argument(warp, site, 3, lane), &function);
    std::string text =
        file + ":" + std::to_string(static_cast<uint32_t>(call_argument(warp, site, 2, lane))) +
        ": " + function + ": block: [" + std::to_string(block.index[0]) + "," +
        std::to_string(block.index[1]) + "," + std::to_string(block.index[2]) + "], thread: [";
    for (SpecialRegister tid :
         {SpecialRegister::kTidX, SpecialRegister::kTidY, SpecialRegister::kTidZ})
      text += std::to_string(special_value(state_of(warp), tid, lane)) +
              (tid == SpecialRegister::kTidZ ? "]" : ",");
    text += " Assertion `" + message + "` failed.\n";
    if (block.services) block.services->print_failure(text);
  }
  return warp->block->raise(warp, op, CUDA_ERROR_ASSERT, 0, "assertion failed");
}

}  // namespace

void add_call_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[static_cast<size_t>(IrOp::k_##name)] = h_##name
  PUT(call);
  PUT(call_indirect);
  PUT(ret);
  PUT(call_printf);
  PUT(call_malloc);
  PUT(call_free);
  PUT(call_assertfail);
  PUT(call_set_condition);
#undef PUT
}

}  // namespace openmps::softgpu
