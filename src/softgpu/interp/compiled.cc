// SPDX-License-Identifier: Apache-2.0
// See compiled.h. Run by the interpreter, on its thread.
#include "softgpu/interp/compiled.h"

#include "softgpu/interp/block.h"
#include "softgpu/interp/fragments.h"

namespace openmps::softgpu {
namespace {

uint32_t call_handler(Warp* warp, uint32_t index) {
  const Op* op = &warp->frame->code->compiled->single[2 * size_t{index}];
  return op->handler(op, warp, warp->regs, warp->mask) == op + 1 ? 1 : 0;
}

uint32_t range_found(Warp* warp, uint64_t begin, uint64_t end, uint32_t write, uint32_t slot) {
  return find_range(warp, begin, end, write != 0, slot) ? 1 : 0;
}

uint32_t part(Warp* warp, const uint32_t* places, uint32_t count) {
  WarpState* state = state_of(warp);
  const Op* ops = warp->frame->code->ops.data();
  state->active = kFullMask;
  Record* record = open_record(state, ops + places[0]);
  record->arrived = places[1];
  bool first = true;
  for (uint32_t i = 1; i < count; ++i) {
    const uint32_t lanes = places[2 * i + 1];
    if (lanes == 0) continue;
    if (first) {
      state->active = lanes;
      state->pc = ops + places[2 * i];
      first = false;
      continue;
    }
    Fragment fragment;
    fragment.frame = state->frame;
    fragment.record = state->record;
    fragment.pc = ops + places[2 * i];
    fragment.mask = lanes;
    state->fragments.push_back(fragment);
  }
  update_mask(state);
  return 0;
}

}  // namespace

const CompiledRuntime kCompiledRuntime = {call_handler, range_found, part};

const Op* return_to_compiled(const Op* op, Warp*, std::byte*, uint32_t) { return op; }

const Op* enter_compiled(const Op* op, Warp* warp, std::byte* regs, uint32_t mask) {
  WarpState* state = state_of(warp);
  const Code& code = *warp->frame->code;
  const CompiledKernel& compiled = *code.compiled;
  const auto index = static_cast<uint32_t>(op - code.ops.data());
  auto* place = reinterpret_cast<CompiledState*>(state->compiled_state.data());
  const bool expected = place->resume_at == index;
  place->resume_at = UINT32_MAX;
  if (!expected || warp->active != kFullMask || warp->record != nullptr) {
    return compiled.handlers[index](op, warp, regs, mask);
  }
  const uint32_t left = compiled.function(warp, regs, reinterpret_cast<std::byte*>(place),
                                          &kCompiledRuntime, place->resume);
  const Op* next = code.ops.data() + (left & kCompiledOpMask);
  switch (static_cast<CompiledExit>(left >> kCompiledExitShift)) {
    case CompiledExit::kInterpret:
      return compiled.handlers[static_cast<size_t>(next - code.ops.data())](next, warp, warp->regs,
                                                                            warp->mask);
    case CompiledExit::kPoll:
      if (state->spins >= kSpinLimit) return give_way(state, next);
      warp->pc = next;
      return nullptr;
    default: return nullptr;
  }
}

}  // namespace openmps::softgpu
