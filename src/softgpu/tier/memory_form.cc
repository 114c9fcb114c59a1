// SPDX-License-Identifier: Apache-2.0
// See memory_form.h.
#include "softgpu/tier/memory_form.h"

namespace openmps::softgpu::tier {
namespace {

struct LaneType {
  uint32_t bytes;
  bool is_signed;
};
constexpr LaneType k_u8{1, false}, k_s8{1, true}, k_u16{2, false}, k_s16{2, true}, k_u32{4, false},
    k_s32{4, true}, k_u64{8, false}, k_u128{16, false};

constexpr MemoryForm form_of(MemorySpace space, bool is_store, LaneType memory, LaneType lane) {
  return {space, is_store, memory.is_signed, memory.bytes, lane.bytes, 1};
}

// The forms of ops_memory.def, in the order of their numbers.
constexpr MemoryForm kForms[] = {
#define LOAD(memory, lane)                                        \
  form_of(MemorySpace::kGlobal, false, k_##memory, k_##lane),     \
      form_of(MemorySpace::kShared, false, k_##memory, k_##lane), \
      form_of(MemorySpace::kLocal, false, k_##memory, k_##lane),
#define STORE(memory, lane)                                      \
  form_of(MemorySpace::kGlobal, true, k_##memory, k_##lane),     \
      form_of(MemorySpace::kShared, true, k_##memory, k_##lane), \
      form_of(MemorySpace::kLocal, true, k_##memory, k_##lane),
#include "softgpu/ir/ops_memory.def"
#undef LOAD
#undef STORE
};
constexpr IrOp kFirst = IrOp::k_ld_global_u8_u16;

}  // namespace

bool memory_form(const Op& op, MemoryForm* form) {
  if (op.code >= IrOp::k_ld_shared_keep && op.code <= IrOp::k_ld_shared_fma) {
    *form = form_of(MemorySpace::kShared, false, k_u32, k_u32);
    return true;
  }
  const auto at = static_cast<size_t>(op.code) - static_cast<size_t>(kFirst);
  if (op.code < kFirst || at >= sizeof kForms / sizeof kForms[0]) return false;
  *form = kForms[at];
  form->count = op.aux;
  return true;
}

bool is_carry(IrOp op) { return op >= IrOp::k_add_cc_u32 && op <= IrOp::k_subc_cc_u64; }

}  // namespace openmps::softgpu::tier
