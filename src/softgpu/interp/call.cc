// SPDX-License-Identifier: Apache-2.0
// Calls, also of what the interpreter provides. Parameters travel through the lanes' local memory.
// Run by the interpreter, on its thread.
#include "softgpu/interp/call.h"

#include <algorithm>
#include <cstring>

#include "softgpu/interp/address.h"
#include "softgpu/interp/device_printf.h"
#include "softgpu/interp/fragments.h"
#include "softgpu/interp/frames.h"

namespace openmps::softgpu {

namespace {

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

const CallSite& site_of(const Op* op, const Warp* warp) {
  return warp->frame->code->call_sites[op->imm];
}

const Op* enter(WarpState* warp, const Op* op, const CallSite& site, const Code& callee) {
  Frame* caller = warp->frame;
  if (caller->depth >= kMaxCallDepth || site.arguments.size() > callee.parameters.size() ||
      site.results.size() > callee.results.size()) {
    return warp->block->raise(
        warp, op, CUDA_ERROR_LAUNCH_FAILED, 0,
        caller->depth >= kMaxCallDepth ? "stack overflow" : "call with the wrong parameters");
  }
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
  for (size_t i = 0; i < site.arguments.size(); ++i) {
    for (uint32_t left = warp->active; left; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
      std::memcpy(
          warp->block->local_at(warp, lane, frame->local_base + callee.parameters[i].offset),
          warp->block->local_at(warp, lane, caller->local_base + site.arguments[i].offset),
          std::min(site.arguments[i].bytes, callee.parameters[i].bytes));
    }
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
  for (uint32_t i = 0; i < kWarpSize; ++i) {
    if ((warp->active >> i & 1) && targets[i] == target) lanes |= 1u << i;
  }
  const uint64_t number = (target - kFunctionWindow) / 16;
  const Code* callee = target < kFunctionWindow || number > INT32_MAX
                           ? nullptr
                           : warp->block->program->code(static_cast<int32_t>(number));
  if (!callee || callee->is_kernel) {
    return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_INSTRUCTION, target,
                              "call of no function", lanes);
  }
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
  for (size_t i = 0; i < site.results.size(); ++i) {
    for (uint32_t left = warp->active; left; left &= left - 1) {
      const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
      std::memcpy(
          warp->block->local_at(warp, lane, caller->local_base + site.results[i].offset),
          warp->block->local_at(warp, lane, frame->local_base + frame->code->results[i].offset),
          std::min(site.results[i].bytes, frame->code->results[i].bytes));
    }
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
    if (!services || !services->set_condition(handle, value)) {
      return warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, handle,
                                "no conditional handle of this context", 1u << lane);
    }
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
        ": " + function + ": block: [" + comma_separated(block.index) + "], thread: [" +
        comma_separated(block.place_of(warp->index * kWarpSize + lane).data()) + "]";
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
