// SPDX-License-Identifier: Apache-2.0
// Loads and stores. One address is accessed once; where the lanes' distances are known when the
// code is made, the words are moved by whole vectors and permuted as it knows; where they were
// found out at the base, by that (emit_shape.cc). What is not of these forms, does not lie in one
// range of memory, or is not aligned is the handler's, faults among it. See emitter.h.
#include <algorithm>
#include <cstddef>

#include "softgpu/interp/warp.h"
#include "softgpu/tier/emitter.h"

namespace openmps::softgpu::tier {
namespace {

// Bytes that a group of lanes may lie in to be loaded by vectors: two registers of AVX-512.
constexpr uint64_t kGroupBytes = 128;
constexpr uint32_t kLeastGroup = 4;  // lanes; below that one by one is as good

// A vector of elements in memory, for a group whose elements are in [least, least + count).
struct Span {
  uint64_t least;
  uint32_t count;
};
Span span_of(const std::vector<uint64_t>& places, uint32_t bytes) {
  const auto [least, most] = std::minmax_element(places.begin(), places.end());
  return {*least, static_cast<uint32_t>((*most - *least) / bytes + 1)};
}

// Whether load_group() has a form for these elements.
bool has_groups(const std::vector<uint64_t>& places, uint32_t bytes) {
  const Span span = span_of(places, bytes);
  if (uint64_t{span.count} * bytes <= kGroupBytes) return true;
  if (places.size() <= kLeastGroup) return false;
  const auto half = places.begin() + static_cast<ptrdiff_t>(places.size() / 2);
  return has_groups({places.begin(), half}, bytes) && has_groups({half, places.end()}, bytes);
}

// Lanes that follow each other in memory, from each of these on: until the next one.
std::vector<uint32_t> runs_of(const std::vector<uint64_t>& places, uint32_t bytes) {
  std::vector<uint32_t> begins{0};
  for (uint32_t i = 1; i < kWarpSize; ++i) {
    if (places[i] != places[i - 1] + bytes) begins.push_back(i);
  }
  return begins;
}
constexpr size_t kMostRuns = 8;  // of stores: runs of at least 4 lanes

std::vector<uint64_t> places_of(const Lanes& lanes, int64_t least, uint64_t offset) {
  std::vector<uint64_t> places;
  for (uint64_t lane : lanes) places.push_back(lane - static_cast<uint64_t>(least) + offset);
  return places;
}

}  // namespace

Emitter::Way Emitter::way_of(Access& access, Val mask) const {
  const MemoryForm& form = access.form;
  const Operand& x = *access.address;
  const bool plain = form.memory_bytes == form.register_bytes;
  if (x.is_uniform()) {
    // Of stores to one place the last lane's counts.
    return form.is_store && (mask != nullptr || form.count > 1) ? Way::kHandler : Way::kScalar;
  }
  if (x.form.kind == Form::Kind::kLanes) {
    const Lanes& lanes = pattern(x);
    // Addresses of 32 bits may wrap: as signed distances from the scalar they don't.
    const auto distance = [&](uint64_t lane) {
      return x.bytes == 4 ? int64_t{static_cast<int32_t>(lane)} : static_cast<int64_t>(lane);
    };
    Lanes signed_lanes{};
    for (uint32_t i = 0; i < kWarpSize; ++i) {
      signed_lanes[i] = static_cast<uint64_t>(distance(lanes[i]));
    }
    access.least = INT64_MAX;
    access.most = INT64_MIN;
    for (uint64_t lane : signed_lanes) {
      access.least = std::min(access.least, static_cast<int64_t>(lane));
      access.most = std::max(access.most, static_cast<int64_t>(lane));
    }
    if (access.most - access.least > (1 << 20)) return Way::kHandler;
    for (uint64_t lane : lanes) {
      if ((lane - lanes[0]) % form.bytes() != 0) return Way::kHandler;
    }
    const std::vector<uint64_t> places = places_of(signed_lanes, access.least, 0);
    if (form.is_store) {
      return form.count == 1 && runs_of(places, form.memory_bytes).size() <= kMostRuns
                 ? Way::kPattern
                 : Way::kHandler;
    }
    return has_groups(places, form.memory_bytes) ? Way::kPattern : Way::kHandler;
  }
  const bool shaped = x.vector == nullptr || x.form.id >= 0;
  if (!shaped || !shapes_.contains(x.form.id) || !plain || form.memory_bytes != 4) {
    return Way::kHandler;
  }
  if (form.is_store && (form.count > 1 || mask != nullptr)) return Way::kHandler;
  return form.count == 1 || form.count == 2 || form.count == 4 ? Way::kShape : Way::kHandler;
}

Val Emitter::pointer_to(const Access& access, Val address) {
  const Type bytes = lanes_.pointer(lanes_.integer(8));
  if (access.form.space == MemorySpace::kShared) return lanes_.at(shared_, address);
  return llvm_.BuildIntToPtr(lanes_.builder, address, bytes, "");
}

// The address, of 64 bits, that is the sum of the op's offset and of `part` of its operand.
Val Emitter::address_of_part(const Access& access, Val part) {
  lanes_.wide = false;
  const uint32_t bits = 8 * access.address->bytes;
  const Val sum = lanes_.add(part, lanes_.scalar_constant(bits, access.offset));
  return bits == 64 ? sum : lanes_.zext(sum, 64);
}

// Whether all [begin, end) can be accessed, in shared memory or in the range that was found last.
Val Emitter::is_inside(const Access& access, const std::vector<Val>& begins,
                       const std::vector<Val>& ends) {
  lanes_.wide = false;
  Val inside = nullptr;
  const auto also = [&](Val condition) {
    inside = inside == nullptr ? condition : lanes_.and_(inside, condition);
  };
  if (access.form.space == MemorySpace::kShared) {
    for (Val end : ends) also(lanes_.compare(kUle, end, shared_bytes_));
    return inside;
  }
  Val low = begins[0], high = ends[0];
  for (size_t g = 1; g < begins.size(); ++g) {
    low = lanes_.select(lanes_.compare(kUlt, begins[g], low), begins[g], low);
    high = lanes_.select(lanes_.compare(kUgt, ends[g], high), ends[g], high);
  }
  const uint32_t slot = access.op % kRangeSlots;
  const size_t place = offsetof(RangeCache, slots) + slot * sizeof(CachedRange);
  const size_t limit =
      access.form.is_store ? offsetof(CachedRange, writable_end) : offsetof(CachedRange, end);
  const Type word = lanes_.integer(64);
  const Val begin = lanes_.load(word, lanes_.at(ranges_, place + offsetof(CachedRange, begin)), 8);
  const Val end = lanes_.load(word, lanes_.at(ranges_, place + limit), 8);
  also(lanes_.compare(kUge, low, begin));
  also(lanes_.compare(kUle, high, end));
  also(lanes_.compare(kUlt, low, high));
  // Another range than last time: look it up.
  const Val result = variable(lanes_.integer(1));
  put(inside, result);
  const BlockRef look = block("look"), known = block("known");
  llvm_.BuildCondBr(lanes_.builder, inside, known, look);
  start(look);
  const Val found =
      call_runtime(offsetof(CompiledRuntime, find_range) / sizeof(void*), lanes_.integer(32),
                   {warp_, low, high, lanes_.scalar_constant(32, access.form.is_store),
                    lanes_.scalar_constant(32, slot)});
  put(lanes_.compare(kNe, found, lanes_.scalar_constant(32, 0)), result);
  llvm_.BuildBr(lanes_.builder, known);
  start(known);
  return get(lanes_.integer(1), result);
}

// i1: the access may go the way `way`.
Val Emitter::check(const Access& access, Way way) {
  const Operand& x = *access.address;
  const uint64_t bytes = access.form.bytes();
  std::vector<Val> begins, ends;
  Val misplaced = nullptr, good = nullptr;
  lanes_.wide = false;
  if (way == Way::kShape) {
    const Shape& shape = shapes_.at(x.form.id);
    const bool two = access.two_windows && !access.form.is_store;
    const uint64_t window = uint64_t{words()} * 4 * (two ? 2 : 1);
    Val length = lanes_.scalar_constant(64, window);
    // What is read behind the last lane and not used: shared memory has room for it.
    if (access.form.space == MemorySpace::kShared && !access.form.is_store) {
      length = lanes_.select(shape_flag(shape, kSame), lanes_.scalar_constant(64, bytes), length);
    }
    length = lanes_.add(length, lanes_.scalar_constant(64, access.more));
    good = shape_flag(shape, access.form.is_store ? kRow : two ? kInTwo : kInOne);
    if (access.form.count == 2) good = lanes_.and_(good, shape_flag(shape, kPairs));
    if (access.form.count == 4) good = lanes_.and_(good, shape_flag(shape, kQuads));
    for (Val first : shape.first) {
      Val part = get(lanes_.integer(8 * x.bytes), first);
      if (x.scalar != nullptr) part = lanes_.add(part, x.scalar);
      begins.push_back(address_of_part(access, part));
      ends.push_back(lanes_.add(begins.back(), length));
    }
  } else {
    begins.push_back(address_of_part(access, part_of(x)));
    uint64_t length = bytes + access.more;
    if (way == Way::kPattern) {
      const Val least = lanes_.scalar_constant(8 * x.bytes, static_cast<uint64_t>(access.least));
      begins[0] = address_of_part(access, lanes_.add(part_of(x), least));
      length += static_cast<uint64_t>(access.most - access.least);
    }
    ends.push_back(lanes_.add(begins[0], lanes_.scalar_constant(64, length)));
  }
  misplaced = begins[0];
  for (Val begin : begins) misplaced = lanes_.or_(misplaced, begin);
  const Val aligned =
      lanes_.compare(kEq, lanes_.and_(misplaced, lanes_.scalar_constant(64, bytes - 1)),
                     lanes_.scalar_constant(64, 0));
  good = good == nullptr ? aligned : lanes_.and_(good, aligned);
  return lanes_.and_(good, is_inside(access, begins, ends));
}

Val Emitter::widened(Val memory, const MemoryForm& form, bool wide) {
  lanes_.wide = wide;
  const uint32_t bits = 8 * form.register_bytes;
  if (form.memory_bytes == form.register_bytes) return memory;
  if (form.memory_bytes > form.register_bytes) return lanes_.trunc(memory, bits);
  return form.is_signed ? lanes_.sext(memory, bits) : lanes_.zext(memory, bits);
}

std::vector<Val> Emitter::load_scalars(const Access& access) {
  const Val base = pointer_to(access, address_of_part(access, access.address->scalar));
  std::vector<Val> made;
  const uint32_t bytes = access.form.memory_bytes;
  for (uint32_t e = 0; e < access.form.count; ++e) {
    const Val at = lanes_.at(base, uint64_t{e} * bytes);
    made.push_back(widened(lanes_.load(lanes_.integer(8 * bytes), at, bytes), access.form, false));
  }
  return made;
}

// The elements at `places`, in bytes from `base`: one or two vectors and a permutation that is
// known, for the largest groups of lanes that lie close together.
Val Emitter::load_group(Val base, const std::vector<uint64_t>& places, uint32_t bytes) {
  const Span span = span_of(places, bytes);
  const Type element = lanes_.integer(8 * bytes);
  const auto count = static_cast<uint32_t>(places.size());
  if (span.count == 1) {
    return lanes_.splat(lanes_.load(element, lanes_.at(base, span.least), bytes), count);
  }
  if (uint64_t{span.count} * bytes > kGroupBytes) {
    const auto half = places.begin() + static_cast<ptrdiff_t>(count / 2);
    const Val low = load_group(base, {places.begin(), half}, bytes);
    const Val high = load_group(base, {half, places.end()}, bytes);
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < count; ++i) all.push_back(i);
    return lanes_.shuffle(low, high, all);
  }
  uint32_t length = kLeastGroup;
  while (length < span.count) length *= 2;
  // Not beyond the last element, where memory may end: the vector begins before the first one.
  uint64_t begin = span.least;
  const uint64_t end = span.least + uint64_t{span.count} * bytes;
  if (length != span.count && end >= uint64_t{length} * bytes) {
    begin = end - uint64_t{length} * bytes;
  }
  std::vector<uint32_t> lanes;
  for (uint64_t place : places) lanes.push_back(static_cast<uint32_t>((place - begin) / bytes));
  const Type type = lanes_.vector(element, length);
  if (length != span.count && begin == span.least) {
    // Nothing is before it either: the part that is there.
    const uint32_t most = span.count;
    Val whole = llvm_.GetUndef(type);
    for (uint32_t i = 0; i < most; ++i) {
      const Val one = lanes_.load(element, lanes_.at(base, begin + uint64_t{i} * bytes), bytes);
      whole =
          llvm_.BuildInsertElement(lanes_.builder, whole, one, lanes_.scalar_constant(32, i), "");
    }
    return lanes_.shuffle(whole, llvm_.GetUndef(type), lanes);
  }
  const Val whole = lanes_.load(type, lanes_.at(base, begin), bytes);
  bool in_order = length == count;
  for (uint32_t i = 0; i < count; ++i) in_order &= lanes[i] == i;
  return in_order ? whole : lanes_.shuffle(whole, llvm_.GetUndef(type), lanes);
}

std::vector<Val> Emitter::load_pattern(const Access& access) {
  const Operand& x = *access.address;
  lanes_.wide = false;
  const Val least = lanes_.scalar_constant(8 * x.bytes, static_cast<uint64_t>(access.least));
  const Val base = pointer_to(access, address_of_part(access, lanes_.add(part_of(x), least)));
  std::vector<Val> made;
  for (uint32_t e = 0; e < access.form.count; ++e) {
    std::vector<uint64_t> places;
    for (uint64_t lane : pattern(x)) {
      const int64_t distance =
          x.bytes == 4 ? int64_t{static_cast<int32_t>(lane)} : static_cast<int64_t>(lane);
      places.push_back(static_cast<uint64_t>(distance - access.least) +
                       uint64_t{e} * access.form.memory_bytes);
    }
    made.push_back(widened(load_group(base, places, access.form.memory_bytes), access.form, true));
  }
  return made;
}

std::vector<Val> Emitter::load(const Access& access, Way way) {
  return way == Way::kScalar    ? load_scalars(access)
         : way == Way::kPattern ? load_pattern(access)
                                : load_shape(access);
}

// Runs of lanes that follow each other in memory; of runs that overlap, as of lanes, the last wins.
void Emitter::store_runs(const Access& access, const Operand& value, Val mask) {
  const Operand& x = *access.address;
  const uint32_t bytes = access.form.memory_bytes;
  const Val from = settled_vector(value);
  lanes_.wide = true;
  const Val narrow = bytes < access.form.register_bytes ? lanes_.trunc(from, 8 * bytes) : from;
  lanes_.wide = false;
  const Val least = lanes_.scalar_constant(8 * x.bytes, static_cast<uint64_t>(access.least));
  const Val base = pointer_to(access, address_of_part(access, lanes_.add(part_of(x), least)));
  std::vector<uint64_t> places;
  for (uint64_t lane : pattern(x)) {
    const int64_t distance =
        x.bytes == 4 ? int64_t{static_cast<int32_t>(lane)} : static_cast<int64_t>(lane);
    places.push_back(static_cast<uint64_t>(distance - access.least));
  }
  std::vector<uint32_t> begins = runs_of(places, bytes);
  begins.push_back(kWarpSize);
  for (size_t r = 0; r + 1 < begins.size(); ++r) {
    std::vector<uint32_t> lanes;
    for (uint32_t i = begins[r]; i < begins[r + 1]; ++i) lanes.push_back(i);
    const Val part = lanes.size() == kWarpSize ? narrow : lanes_.shuffle(narrow, narrow, lanes);
    const Val to = lanes_.at(base, places[begins[r]]);
    if (mask == nullptr) {
      lanes_.store(part, to, bytes);
      continue;
    }
    const Val flags = flags_of(mask);
    const Val chosen = lanes.size() == kWarpSize ? flags : lanes_.shuffle(flags, flags, lanes);
    const Type type = llvm_.TypeOf(part);
    const Val place = lanes_.cast(to, lanes_.pointer(type));
    lanes_.intrinsic("llvm.masked.store", {type, llvm_.TypeOf(place)},
                     {part, place, lanes_.scalar_constant(32, bytes), chosen});
  }
}

void Emitter::store(const Access& access, Way way, const std::vector<Operand>& values, Val mask) {
  const uint32_t bytes = access.form.memory_bytes;
  if (way == Way::kPattern) {
    store_runs(access, values[0], mask);
    return;
  }
  lanes_.wide = false;
  if (way == Way::kScalar) {
    const Operand& value = values[0];
    Val last = value.is_uniform() ? value.scalar
                                  : llvm_.BuildExtractElement(lanes_.builder, settled_vector(value),
                                                              lanes_.scalar_constant(32, 31), "");
    if (value.is_uniform() && value.unsettled) last = settled(last, false);
    if (bytes < access.form.register_bytes) last = lanes_.trunc(last, 8 * bytes);
    lanes_.store(last, pointer_to(access, address_of_part(access, access.address->scalar)), bytes);
    return;
  }
  const Shape& shape = shapes_.at(access.address->form.id);
  const Val from = settled_vector(values[0]);
  for (uint32_t g = 0; g < shape.first.size(); ++g) {
    Val part = get(lanes_.integer(8 * access.address->bytes), shape.first[g]);
    if (access.address->scalar != nullptr) part = lanes_.add(part, access.address->scalar);
    std::vector<uint32_t> lanes;
    for (uint32_t i = 0; i < words(); ++i) lanes.push_back(g * words() + i);
    lanes_.store(lanes_.shuffle(from, from, lanes),
                 pointer_to(access, address_of_part(access, part)), 4);
  }
}

bool Emitter::describe(uint32_t i, const Operand* address, Val mask, Access* access,
                       Way* way) const {
  access->op = i;
  if (!memory_form(ssa_.graph.op(i), &access->form)) return false;
  access->offset = ssa_.graph.op(i).imm;
  access->address = address;
  *way = way_of(*access, mask);
  return *way != Way::kHandler;
}

// At one address in a window each lane may have memory of its own, so that what is loaded is not
// uniform: the interpreter goes on.
void Emitter::leave_windows(uint32_t i, const Operand& address) {
  lanes_.wide = false;
  const Val sum = address_of_part(
      {.op = i, .form = {}, .offset = ssa_.graph.op(i).imm, .address = &address}, address.scalar);
  const Val window = lanes_.lshr(sum, lanes_.scalar_constant(64, kWindowShift));
  const BlockRef out = block("window"), go_on = block("plain");
  llvm_.BuildCondBr(lanes_.builder, lanes_.compare(kNe, window, lanes_.scalar_constant(64, 0)), out,
                    go_on);
  start(out);
  flush(live_before(ssa_.graph, block_at_hand_, i));
  leave(i, CompiledExit::kInterpret);
  start(go_on);
}

std::vector<Operand> Emitter::access_memory(uint32_t i, const std::vector<Operand>& operands,
                                            Val mask) {
  Access access;
  Way way = Way::kHandler;
  if (!describe(i, operands.data(), mask, &access, &way)) {
    return can_gather(access) ? gather_or_call(access, operands, mask)
                              : call_handler(i, operands, mask);
  }
  const bool is_load = !access.form.is_store;
  const bool scalar = is_load && way == Way::kScalar && mask == nullptr;
  const uint32_t bytes = access.form.register_bytes;
  std::vector<Val> places;
  for (uint32_t e = 0; is_load && e < access.form.count; ++e) {
    places.push_back(variable(type_of(bytes, !scalar)));
  }
  const BlockRef fast = block("fast"), slow = block("slow"), done = block("done");
  llvm_.BuildCondBr(lanes_.builder, check(access, way), fast, slow);
  start(fast);
  if (is_load) {
    const std::vector<Val> made = load(access, way);
    for (size_t e = 0; e < made.size(); ++e) {
      const bool splats = way == Way::kScalar && !scalar;
      put(splats ? lanes_.splat(made[e]) : made[e], places[e]);
    }
  } else {
    store(access, way, {operands.begin() + 1, operands.end()}, mask);
  }
  llvm_.BuildBr(lanes_.builder, done);
  start(slow);
  if (scalar && access.form.space == MemorySpace::kGlobal) leave_windows(i, operands[0]);
  const bool gathers = way == Way::kShape && can_gather(access);
  const std::vector<Operand> by_handler =
      gathers ? gather_or_call(access, operands, mask) : call_handler(i, operands, mask);
  for (size_t e = 0; e < places.size(); ++e) {
    Val value = vector_of(by_handler[e]);
    if (scalar) {
      value = llvm_.BuildExtractElement(lanes_.builder, value, lanes_.scalar_constant(32, 0), "");
    }
    put(value, places[e]);
  }
  llvm_.BuildBr(lanes_.builder, done);
  start(done);
  std::vector<Operand> made;
  for (Val place : places) {
    const Val value = get(type_of(bytes, !scalar), place);
    made.push_back(scalar ? uniform(value, bytes) : general(value, bytes));
  }
  return made;
}

}  // namespace openmps::softgpu::tier
