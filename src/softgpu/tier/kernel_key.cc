// SPDX-License-Identifier: Apache-2.0
// See kernel_key.h.
#include "softgpu/tier/kernel_key.h"

#include <cstddef>

#include "base/text.h"
#include "softgpu/interp/compiled.h"
#include "softgpu/interp/instruction_set.h"

namespace openmps::softgpu::tier {
namespace {

// Counts the changes of what the tier makes of the same ops: to be raised with each of them.
constexpr uint32_t kTierVersion = 1;

// Where machine code finds what, in the interpreter's structures.
void add_layout(Hash* hash) {
  for (size_t offset :
       {offsetof(Warp, active), offsetof(Warp, mask), offsetof(Warp, fuel), offsetof(Warp, spins),
        offsetof(Warp, stop), offsetof(Warp, ranges), offsetof(Warp, shared),
        offsetof(Warp, shared_bytes), offsetof(Warp, params), offsetof(RangeCache, slots),
        sizeof(CachedRange), sizeof(CompiledState), sizeof(CompiledRuntime), kIrOpCount}) {
    hash->add_number(offset);
  }
}

void add_op(Hash* hash, const Code& code, const Op& op) {
  for (int32_t field : {op.d, op.a, op.b, op.c, op.e}) hash->add_number(field);
  hash->add_number(static_cast<uint16_t>(op.code));
  hash->add_number(op.aux);
  hash->add_number(op.sync);
  const bool branches =
      is_conditional_branch(op.code) || op.code == IrOp::k_bra || op.code == IrOp::k_bra_back;
  hash->add_number(branches ? static_cast<uint64_t>(op.target - code.ops.data()) : op.imm);
  const uint32_t extras = op.extra ? extra_results(op) + extra_values(op) : 0;
  hash->add_number(extras);
  for (uint32_t e = 0; e < extras; ++e) hash->add_number(op.extra[e]);
}

void add_code(Hash* hash, const Code& code) {
  hash->add_number(code.ops.size());
  for (const Op& op : code.ops) add_op(hash, code, op);
  hash->add({reinterpret_cast<const char*>(code.image.data()), code.image.size()});
  for (const FrameSlot& slot : code.slots) {
    hash->add_number(slot.offset);
    hash->add_number(slot.bytes);
  }
  for (const SpecialSlot& slot : code.specials) {
    hash->add_number(slot.what);
    hash->add_number(slot.special);
    hash->add_number(slot.offset);
  }
  for (const GlobalReference& reference : code.references) hash->add_number(reference.offset);
  hash->add_number(code.frame_bytes);
}

}  // namespace

std::string KernelKey::name() const {
  return format_text("%016llx%016llx", static_cast<unsigned long long>(first),
                     static_cast<unsigned long long>(second));
}

KernelKey key_of(const Code& code, const LaunchShape& shape) {
  Hash hashes[2];
  hashes[1].add("second");
  for (Hash& hash : hashes) {
    hash.add_number(kTierVersion);
    add_layout(&hash);
    hash.add_number(active_instruction_set());
    hash.add_number(shape.kind);
    hash.add_number(shape.width);
    add_code(&hash, code);
  }
  return {hashes[0].value(), hashes[1].value()};
}

}  // namespace openmps::softgpu::tier
