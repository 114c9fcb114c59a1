// SPDX-License-Identifier: Apache-2.0
// How the lanes of a base lie, found out where it is made (Shape in emitter.h), and loads by that.
#include <cstddef>

#include "softgpu/interp/warp.h"
#include "softgpu/tier/emitter.h"

namespace openmps::softgpu::tier {

// The bases of addresses of words.
void Emitter::find_bases() {
  for (int32_t b : ssa_.graph.order) {
    const GraphBlock& block = ssa_.graph.blocks[static_cast<size_t>(b)];
    for (uint32_t i = block.begin; i < block.end; ++i) {
      const Role role = ssa_.graph.facts[i].role;
      MemoryForm form;
      if ((role != Role::kLoad && role != Role::kStore) || !memory_form(ssa_.graph.op(i), &form) ||
          form.memory_bytes != 4 || form.register_bytes != 4 || ssa_.uses[i][0] < 0) {
        continue;
      }
      if (form.is_store && form.count > 1) continue;
      const Form& address = ssa_.form(ssa_.uses[i][0]);
      if (address.kind == Kind::kBase) bases_.insert(address.id);
    }
  }
}

void Emitter::find_shape(int32_t value) {
  const Shape& shape = shapes_.at(value);
  const uint32_t bits = 8 * ssa_.graph.bytes_of(ssa_.value(value).slot);
  const Type word = lanes_.integer(32);
  const uint32_t n = words();
  const Val all = get(type_of(bits / 8, true), vectors_[static_cast<size_t>(value)]);
  const auto none = [&](Val condition) {  // of n lanes
    lanes_.wide = false;
    const Type type = lanes_.integer(n);
    return lanes_.compare(kEq, lanes_.cast(condition, type), lanes_.scalar_constant(n, 0));
  };
  std::vector<Val> row;
  for (uint32_t i = 0; i < n; ++i) row.push_back(lanes_.scalar_constant(32, i));
  const Val steps = llvm_.ConstVector(row.data(), n);
  Val flags = lanes_.scalar_constant(32, kSame | kInOne | kInTwo | kPairs | kQuads | kRow);
  for (uint32_t g = 0; g < kWarpSize / n; ++g) {
    std::vector<uint32_t> lanes;
    for (uint32_t i = 0; i < n; ++i) lanes.push_back(g * n + i);
    const Val group = lanes_.shuffle(all, all, lanes);
    const Val first =
        llvm_.BuildExtractElement(lanes_.builder, group, lanes_.scalar_constant(32, 0), "");
    const Val distance = lanes_.sub(group, lanes_.splat(first, n));
    const auto outside = [&](uint64_t allowed) {
      const Val bad = lanes_.and_(distance, lanes_.splat_constant(bits, ~allowed, n));
      return none(llvm_.BuildICmp(lanes_.builder, kNe, bad, lanes_.splat_constant(bits, 0, n), ""));
    };
    const Type narrow = lanes_.vector(word, n);
    const Val short_distance =
        bits == 64 ? llvm_.BuildTrunc(lanes_.builder, distance, narrow, "") : distance;
    const Val index =
        llvm_.BuildLShr(lanes_.builder, short_distance, lanes_.splat_constant(32, 2, n), "");
    const uint64_t in_one = 4 * (n - 1), in_two = 4 * (2 * n - 1);
    // Vectors of 4 words end within the second register if they begin before its last 4.
    const Val far = none(llvm_.BuildICmp(lanes_.builder, kUgt, distance,
                                         lanes_.splat_constant(bits, 4 * (2 * n - 4), n), ""));
    const Val two = lanes_.and_(outside(in_two), far);
    const Val is_row =
        lanes_.and_(outside(in_one), none(llvm_.BuildICmp(lanes_.builder, kNe, index, steps, "")));
    const auto flag = [&](Val condition, uint32_t bit) {
      return lanes_.select(condition, lanes_.scalar_constant(32, bit),
                           lanes_.scalar_constant(32, 0));
    };
    Val found = flag(outside(0), kSame);
    found = lanes_.or_(found, flag(outside(in_one), kInOne));
    found = lanes_.or_(found, flag(two, kInTwo));
    found = lanes_.or_(found, flag(outside(~uint64_t{7}), kPairs));
    found = lanes_.or_(found, flag(outside(~uint64_t{15}), kQuads));
    found = lanes_.or_(found, flag(is_row, kRow));
    flags = lanes_.and_(flags, found);
    put(first, shape.first[g]);
    put(index, shape.index[g]);
  }
  put(flags, shape.flags);
}

Val Emitter::shape_flag(const Shape& shape, uint32_t flags) {
  lanes_.wide = false;
  const Val found = get(lanes_.integer(32), shape.flags);
  return lanes_.compare(kNe, lanes_.and_(found, lanes_.scalar_constant(32, flags)),
                        lanes_.scalar_constant(32, 0));
}

Val Emitter::permuted(Val words, Val index) {
  return options_.avx512 ? lanes_.intrinsic("llvm.x86.avx512.permvar.si.512", {}, {words, index})
                         : lanes_.intrinsic("llvm.x86.avx2.permd", {}, {words, index});
}

// Of two registers one behind the other.
Val Emitter::permuted_pair(Val low, Val high, Val index) {
  if (options_.avx512) {
    return lanes_.intrinsic("llvm.x86.avx512.vpermi2var.d.512", {}, {low, index, high});
  }
  const Val in_low =
      llvm_.BuildICmp(lanes_.builder, kUlt, index, lanes_.splat_constant(32, words(), words()), "");
  return lanes_.select(in_low, permuted(low, index), permuted(high, index));
}

std::vector<Val> Emitter::load_shape(const Access& access) {
  const Operand& x = *access.address;
  const Shape& shape = shapes_.at(x.form.id);
  const uint32_t n = words(), count = access.form.count;
  const Type window = lanes_.vector(lanes_.integer(32), n);
  std::vector<std::vector<Val>> groups(count);
  const auto begin_of = [&](size_t g) {
    lanes_.wide = false;
    Val part = get(lanes_.integer(8 * x.bytes), shape.first[g]);
    if (x.scalar != nullptr) part = lanes_.add(part, x.scalar);
    return pointer_to(access, address_of_part(access, part));
  };
  for (size_t g = 0; g < shape.first.size(); ++g) {
    const Val begin = begin_of(g);
    const Val index = get(window, shape.index[g]);
    const Val low = lanes_.load(window, begin, 4);
    const Val high =
        access.two_windows ? lanes_.load(window, lanes_.at(begin, uint64_t{4} * n), 4) : nullptr;
    for (uint32_t e = 0; e < count; ++e) {
      const Val at = e == 0 ? index : lanes_.add(index, lanes_.splat_constant(32, e, n));
      groups[e].push_back(access.two_windows ? permuted_pair(low, high, at) : permuted(low, at));
    }
  }
  std::vector<Val> made;
  for (std::vector<Val>& parts : groups) {
    while (parts.size() > 1) {
      std::vector<Val> joined;
      for (size_t k = 0; k < parts.size(); k += 2) {
        std::vector<uint32_t> all;
        const auto length = static_cast<uint32_t>(2 * kWarpSize / parts.size());
        for (uint32_t i = 0; i < length; ++i) all.push_back(i);
        joined.push_back(lanes_.shuffle(parts[k], parts[k + 1], all));
      }
      parts = joined;
    }
    made.push_back(parts[0]);
  }
  return made;
}

}  // namespace openmps::softgpu::tier
