// SPDX-License-Identifier: Apache-2.0
// Loads of lanes that lie anywhere in one range of memory, by the processor's gathers. See
// emitter.h.
#include <cstddef>

#include "softgpu/interp/warp.h"
#include "softgpu/tier/emitter.h"

namespace openmps::softgpu::tier {

// The gathers of AVX2 are slower than 32 loads.
bool Emitter::can_gather(const Access& access) const {
  const MemoryForm& form = access.form;
  return options_.avx512 && !form.is_store && form.space != MemorySpace::kLocal &&
         form.memory_bytes == form.register_bytes &&
         (form.memory_bytes == 4 || form.memory_bytes == 8);
}

// i1: all of `mask`, or all lanes, are aligned and in the range that was found last, or in shared
// memory.
Val Emitter::gather_check(const Access& access, Val addresses, Val mask) {
  const Type word = lanes_.integer(64);
  const uint64_t bytes = access.form.bytes();
  lanes_.wide = false;
  Val low = lanes_.scalar_constant(64, 0), high = shared_bytes_;
  if (access.form.space == MemorySpace::kGlobal) {
    const uint32_t slot = access.op % kRangeSlots;
    const size_t place = offsetof(RangeCache, slots) + slot * sizeof(CachedRange);
    low = lanes_.load(word, lanes_.at(ranges_, place + offsetof(CachedRange, begin)), 8);
    high = lanes_.load(word, lanes_.at(ranges_, place + offsetof(CachedRange, end)), 8);
  }
  // Distances from the range's begin that leave room for the access.
  const Val size = lanes_.sub(high, low);
  const Val room = lanes_.sub(size, lanes_.scalar_constant(64, bytes));
  // A range that has been forgotten ends at 0, wherever it begins.
  const Val enough = lanes_.compare(kUge, high, lanes_.add(low, lanes_.scalar_constant(64, bytes)));
  lanes_.wide = true;
  const Val distance = lanes_.sub(addresses, lanes_.splat(low));
  const Val outside = lanes_.compare(kUgt, distance, lanes_.splat(room));
  const Val misaligned = lanes_.compare(kNe, lanes_.and_(addresses, lanes_.constant(64, bytes - 1)),
                                        lanes_.constant(64, 0));
  Val bad = lanes_.cast(lanes_.or_(outside, misaligned), lanes_.integer(32));
  lanes_.wide = false;
  if (mask != nullptr) bad = lanes_.and_(bad, mask);
  return lanes_.and_(enough, lanes_.compare(kEq, bad, lanes_.scalar_constant(32, 0)));
}

std::vector<Operand> Emitter::gather_or_call(const Access& access,
                                             const std::vector<Operand>& operands, Val mask) {
  const MemoryForm& form = access.form;
  const bool is_global = form.space == MemorySpace::kGlobal;
  lanes_.wide = true;
  Val addresses = lanes_.add(vector_of(*access.address),
                             lanes_.constant(8 * access.address->bytes, access.offset));
  if (!is_global) addresses = lanes_.zext(addresses, 64);
  std::vector<Val> places;
  for (uint32_t e = 0; e < form.count; ++e) {
    places.push_back(variable(type_of(form.register_bytes, true)));
  }
  const BlockRef fast = block("gather"), slow = block("call"), done = block("gathered");
  llvm_.BuildCondBr(lanes_.builder, gather_check(access, addresses, mask), fast, slow);
  start(fast);
  const Type element = lanes_.integer(8 * form.memory_bytes);
  const Type pointers = lanes_.vector(lanes_.pointer(element)), values = lanes_.vector(element);
  lanes_.wide = true;
  Val begin = addresses;
  if (!is_global) {
    const Val base = llvm_.BuildPtrToInt(lanes_.builder, shared_, lanes_.integer(64), "");
    begin = lanes_.add(addresses, lanes_.splat(base));
  }
  const Val all =
      mask == nullptr ? llvm_.ConstAllOnes(lanes_.vector(lanes_.integer(1))) : flags_of(mask);
  for (uint32_t e = 0; e < form.count; ++e) {
    lanes_.wide = true;
    const Val at = lanes_.add(begin, lanes_.constant(64, uint64_t{e} * form.memory_bytes));
    const Val from = llvm_.BuildIntToPtr(lanes_.builder, at, pointers, "");
    put(lanes_.intrinsic(
            "llvm.masked.gather", {values, pointers},
            {from, lanes_.scalar_constant(32, form.memory_bytes), all, llvm_.ConstNull(values)}),
        places[e]);
  }
  llvm_.BuildBr(lanes_.builder, done);
  start(slow);
  if (is_global) {  // the next time, the range of the first lane is known
    lanes_.wide = false;
    const Val first =
        llvm_.BuildExtractElement(lanes_.builder, addresses, lanes_.scalar_constant(32, 0), "");
    call_runtime(
        offsetof(CompiledRuntime, find_range) / sizeof(void*), lanes_.integer(32),
        {warp_, first, lanes_.add(first, lanes_.scalar_constant(64, form.bytes())),
         lanes_.scalar_constant(32, 0), lanes_.scalar_constant(32, access.op % kRangeSlots)});
  }
  const std::vector<Operand> called = call_handler(access.op, operands, mask);
  for (uint32_t e = 0; e < form.count; ++e) put(vector_of(called[e]), places[e]);
  llvm_.BuildBr(lanes_.builder, done);
  start(done);
  std::vector<Operand> made;
  for (Val place : places) {
    made.push_back(general(get(type_of(form.register_bytes, true), place), form.register_bytes));
  }
  return made;
}

}  // namespace openmps::softgpu::tier
