// SPDX-License-Identifier: Apache-2.0
// Memory accesses with an order, atomics, cp.async. See also atomics.h. Other blocks run on other
// threads, so these are the host's own atomics; one block never runs on two threads at once. Run by
// the interpreter.
#include "softgpu/interp/atomics.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "softgpu/interp/address.h"
#include "softgpu/interp/block.h"
#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu {
namespace {

#include "softgpu/interp/lane_math.h"

#define HANDLER(name)                                                            \
  const Op* h_##name([[maybe_unused]] const Op* op, [[maybe_unused]] Warp* warp, \
                     [[maybe_unused]] std::byte* regs, [[maybe_unused]] uint32_t mask)

HANDLER(fence) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  SOFTGPU_NEXT(op + 1);
}

// The addresses of operand `offset`, shared ones as generic addresses.
void generic_addresses(std::byte* regs, int32_t offset, bool shared, u64 imm, u64* out) {
  if (!shared) {
    std::memcpy(out, regs + offset, kWarpSize * sizeof(u64));
    return;
  }
  const u32* from = reinterpret_cast<const u32*>(regs + offset);
  // resolve() adds the offset again; shared addresses wrap at 32 bits.
  for (u32 i = 0; i < kWarpSize; ++i) out[i] = (kSharedWindow | (u32)(from[i] + (u32)imm)) - imm;
}

template <class T>
void copy_atomically(void* to, const void* from) {
  T value;
  __atomic_load(static_cast<const T*>(from), &value, __ATOMIC_RELAXED);
  __atomic_store(static_cast<T*>(to), &value, __ATOMIC_RELAXED);
}

// One access of up to 16 bytes, at once where the processor can: 16 aligned bytes are single-copy
// atomic on every processor with AVX, which decoupled look-back relies on.
void copy_once(void* to, const void* from, u32 bytes) {
  switch (bytes) {
    case 1: return copy_atomically<u8>(to, from);
    case 2: return copy_atomically<u16>(to, from);
    case 4: return copy_atomically<u32>(to, from);
    case 8: return copy_atomically<u64>(to, from);
#if defined(__SSE2__)
    case 16:
      _mm_storeu_si128(static_cast<__m128i*>(to),
                       _mm_loadu_si128(static_cast<const __m128i*>(from)));
      return;
#endif
    default: std::memcpy(to, from, bytes);
  }
}

// a: addresses; aux: ordered_code(); extra: the registers.
HANDLER(load_ordered) {
  const u32 count = op->aux & 15, bytes = op->aux >> 4 & 0xff, lane_bytes = op->aux >> 12 & 0xff;
  const bool is_signed = op->aux >> 20 & 1;
  u64 addresses[kWarpSize];
  std::memcpy(addresses, regs + op->a, sizeof addresses);
  if (!resolve(warp, op, addresses, u64{bytes} * count, false)) return nullptr;
  for (u32 left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    alignas(16) std::byte values[64];
    copy_once(values, warp->pointers[lane], bytes * count);
    for (u32 e = 0; e < count; ++e) {
      u64 words[2] = {0, 0};
      std::memcpy(words, values + e * bytes, bytes);
      const u32 shift = 64 - 8 * (bytes < 8 ? bytes : 8);
      if (is_signed) words[0] = static_cast<u64>(static_cast<s64>(words[0] << shift) >> shift);
      std::memcpy(regs + op->extra[e] + lane * lane_bytes, words, lane_bytes);
    }
  }
  if (op->aux >> 21 & 1) __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return op + 1;
}

HANDLER(store_ordered) {
  const u32 count = op->aux & 15, bytes = op->aux >> 4 & 0xff, lane_bytes = op->aux >> 12 & 0xff;
  u64 addresses[kWarpSize];
  std::memcpy(addresses, regs + op->a, sizeof addresses);
  if (!resolve(warp, op, addresses, u64{bytes} * count, true)) return nullptr;
  if (op->aux >> 21 & 1) __atomic_thread_fence(__ATOMIC_RELEASE);
  for (u32 left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    alignas(16) std::byte values[64];
    for (u32 e = 0; e < count; ++e) {
      std::memcpy(values + e * bytes,
                  regs + op->extra[e] + lane * (lane_bytes < 2 ? 2 : lane_bytes), bytes);
    }
    copy_once(warp->pointers[lane], values, bytes * count);
  }
  return op + 1;
}

// Replaces *p by f(*p) atomically and returns the old value.
template <class T, class F>
T update(std::byte* p, F f) {
  auto* at = reinterpret_cast<T*>(p);
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(at, &old, f(old), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class T, class S>
T integer_atomic(AtomicOp kind, std::byte* p, T v, T compare_with) {
  auto* at = reinterpret_cast<T*>(p);
  switch (kind) {
    case AtomicOp::kAdd: return __atomic_fetch_add(at, v, __ATOMIC_SEQ_CST);
    case AtomicOp::kAnd: return __atomic_fetch_and(at, v, __ATOMIC_SEQ_CST);
    case AtomicOp::kOr: return __atomic_fetch_or(at, v, __ATOMIC_SEQ_CST);
    case AtomicOp::kXor: return __atomic_fetch_xor(at, v, __ATOMIC_SEQ_CST);
    case AtomicOp::kExchange: return __atomic_exchange_n(at, v, __ATOMIC_SEQ_CST);
    case AtomicOp::kCompare: {
      T expected = compare_with;
      __atomic_compare_exchange_n(at, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      return expected;
    }
    case AtomicOp::kInc: return update<T>(p, [=](T old) { return old >= v ? T{0} : T(old + 1); });
    case AtomicOp::kDec:
      return update<T>(p, [=](T old) { return old == 0 || old > v ? v : T(old - 1); });
    case AtomicOp::kMin: return update<T>(p, [=](T old) { return (S)old < (S)v ? old : v; });
    case AtomicOp::kMax: return update<T>(p, [=](T old) { return (S)old > (S)v ? old : v; });
  }
  return 0;
}

template <class Bits, class F>
Bits float_atomic(AtomicOp kind, std::byte* p, F f, Bits v) {
  if (kind == AtomicOp::kExchange) {
    return __atomic_exchange_n(reinterpret_cast<Bits*>(p), v, __ATOMIC_SEQ_CST);
  }
  return update<Bits>(p, f);
}

// Additions: a global one makes subnormal numbers zeros, before and after.
u32 float_op(AtomicOp kind, u32 a, u32 b, bool flush) {
  const f32 x = float_of(a), y = float_of(b);
  return bits_of(kind == AtomicOp::kMin   ? min_number(x, y)
                 : kind == AtomicOp::kMax ? max_number(x, y)
                 : flush                  ? canonical(ftz(ftz(x) + ftz(y)))
                                          : canonical(x + y));
}

// A NaN in global memory, or one that is written there, keeps its bits.
u64 double_sum(u64 old, u64 with, bool global) {
  const f64 x = double_of(old), y = double_of(with);
  const f64 sum = last_nan(x + y, x);
  return !global ? bits_of(sum) : x != x ? old : y != y ? with : bits_of(sum);
}

// One half-precision operation.
template <bool kBrain>
u16 half_op(AtomicOp kind, u16 a, u16 b) {
  const f32 x = kBrain ? bf16_to_float(a) : half_to_float(a),
            y = kBrain ? bf16_to_float(b) : half_to_float(b);
  const f32 r = kind == AtomicOp::kMin   ? min_number(x, y)
                : kind == AtomicOp::kMax ? max_number(x, y)
                                         : x + y;
  return kBrain ? float_to_bf16(r) : float_to_half(r);
}
template <bool kBrain>
u32 half2_op(AtomicOp kind, u32 a, u32 b) {
  return pack16(half_op<kBrain>(kind, (u16)a, (u16)b),
                half_op<kBrain>(kind, (u16)(a >> 16), (u16)(b >> 16)));
}

u128 wide_atomic(AtomicOp kind, std::byte* p, u128 v, u128 compare_with) {
#if defined(__x86_64__)
  u128 old, expected = compare_with;
  std::memcpy(&old, p, sizeof old);
  for (;;) {
    if (kind == AtomicOp::kExchange) expected = old;
    u64 low = (u64)expected, high = (u64)(expected >> 64);
    bool done;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(done), "+m"(*reinterpret_cast<u128*>(p)), "+a"(low), "+d"(high)
                     : "b"((u64)v), "c"((u64)(v >> 64))
                     : "memory");
    old = ((u128)high << 64) | low;
    if (done || kind == AtomicOp::kCompare) return old;
  }
#else
  auto* at = reinterpret_cast<u128*>(p);
  u128 expected = kind == AtomicOp::kExchange ? *at : compare_with;
  while (
      !__atomic_compare_exchange_n(at, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
      kind == AtomicOp::kExchange) {
  }
  return expected;
#endif
}

template <class T, class F>
void each_atomic(const Op* op, Warp* warp, std::byte* regs, bool has_result, F f) {
  const T* values = reinterpret_cast<const T*>(regs + op->b);
  const T* others = reinterpret_cast<const T*>(regs + op->c);
  T* d = reinterpret_cast<T*>(regs + op->d);
  for (u32 left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    const T old = f(lane, warp->pointers[lane], values[lane], others[lane]);
    if (has_result) d[lane] = old;
  }
}

// a: addresses, b: values (cas: what to compare with), c: cas's new values.
HANDLER(atomic) {
  const auto kind = static_cast<AtomicOp>(op->aux & 0xff);
  const auto type = static_cast<AtomicType>(op->aux >> 8 & 0xff);
  const bool shared = op->aux >> 16 & 1, has_result = op->aux >> 17 & 1;
  u64 addresses[kWarpSize];
  generic_addresses(regs, op->a, shared, op->imm, addresses);
  for (u32 left = warp->active; left; left &= left - 1) {
    const u64 address = addresses[__builtin_ctz(left)] + op->imm;
    if ((address & ~kWindowMask) == kLocalWindow) {
      return warp->block->raise(warp, op, CUDA_ERROR_INVALID_ADDRESS_SPACE, address,
                                "atomic on local memory", left & -left);
    }
  }
  if (!resolve(warp, op, addresses, atomic_bytes(type), true)) return nullptr;
  const bool cas = kind == AtomicOp::kCompare;
  // Of generic addresses, too.
  auto is_global = [&addresses, op](u32 lane) {
    return (addresses[lane] + op->imm) >> kWindowShift == 0;
  };
  auto integers = [&]<class T, class S>(T, S) {
    each_atomic<T>(op, warp, regs, has_result, [=](u32, std::byte* p, T b, T c) {
      return integer_atomic<T, S>(kind, p, cas ? c : b, b);
    });
  };
  switch (type) {
    case AtomicType::kB16: integers(u16{}, u16{}); break;
    case AtomicType::kU32: integers(u32{}, u32{}); break;
    case AtomicType::kS32: integers(u32{}, s32{}); break;
    case AtomicType::kU64: integers(u64{}, u64{}); break;
    case AtomicType::kS64: integers(u64{}, s64{}); break;
    case AtomicType::kF32:
      each_atomic<u32>(op, warp, regs, has_result, [=](u32 lane, std::byte* p, u32 b, u32) {
        const bool flush = is_global(lane);
        return float_atomic<u32>(
            kind, p, [=](u32 old) { return float_op(kind, old, b, flush); }, b);
      });
      break;
    case AtomicType::kF64:
      each_atomic<u64>(op, warp, regs, has_result, [=](u32 lane, std::byte* p, u64 b, u64) {
        const bool global = is_global(lane);
        return float_atomic<u64>(
            kind, p, [=](u64 old) { return double_sum(old, b, global); }, b);
      });
      break;
    case AtomicType::kF16:
    case AtomicType::kBF16:
      each_atomic<u16>(op, warp, regs, has_result, [=](u32, std::byte* p, u16 b, u16) {
        return float_atomic<u16>(
            kind, p,
            [=](u16 old) {
              return type == AtomicType::kF16 ? half_op<false>(kind, old, b)
                                              : half_op<true>(kind, old, b);
            },
            b);
      });
      break;
    case AtomicType::kF16x2:
    case AtomicType::kBF16x2:
      each_atomic<u32>(op, warp, regs, has_result, [=](u32, std::byte* p, u32 b, u32) {
        return float_atomic<u32>(
            kind, p,
            [=](u32 old) {
              return type == AtomicType::kF16x2 ? half2_op<false>(kind, old, b)
                                                : half2_op<true>(kind, old, b);
            },
            b);
      });
      break;
    case AtomicType::kB128:
      each_atomic<u128>(op, warp, regs, has_result, [=](u32, std::byte* p, u128 b, u128 c) {
        return wide_atomic(kind, p, cas ? c : b, b);
      });
      break;
  }
  return op + 1;
}

template <class T, class F>
void each_element(std::byte* at, const std::byte* with, u64 bytes, F f) {
  for (u64 i = 0; i < bytes; i += sizeof(T)) {
    T value;
    std::memcpy(&value, with + i, sizeof value);
    f(at + i, value);
  }
}

template <u32 bytes>
void copy_and_fill(std::byte* to, const std::byte* from, u32 real) {
  if (real == bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, real);
  std::memset(to + real, 0, bytes - real);
}

// Nearly always all lanes write to the block's own memory, and read from one range.
template <u32 bytes>
const Op* copy_lanes(const Op* op, Warp* warp, std::byte* regs) {
  const u32* to = reinterpret_cast<const u32*>(regs + op->a);
  const u64* from = reinterpret_cast<const u64*>(regs + op->b);
  const u32* sizes = reinterpret_cast<const u32*>(regs + op->c);
  CachedRange range = {};
  for (u32 left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<u32>(__builtin_ctz(left));
    const u64 at = to[lane], source = from[lane] + op->imm;
    const u32 real = op->c ? min_of(bytes, sizes[lane]) : bytes;
    std::byte* target = warp->shared + at;
    if (at % bytes != 0 || at + bytes > warp->shared_bytes) {
      target = memory_for(warp, op, lane, kSharedWindow | at, bytes, bytes, true);
      if (!target) return nullptr;
    }
    const auto* read = reinterpret_cast<const std::byte*>(source);
    if (real > 0 && (source % bytes != 0 || source < range.begin || source + real > range.end)) {
      read = memory_for(warp, op, lane, source, real, bytes, false);
      if (!read) return nullptr;
      if (source >> kWindowShift == 0) range = warp->ranges->recent[0];
    }
    copy_and_fill<bytes>(target, read, real);
  }
  return op + 1;
}

// a: shared address, b: global address, c: bytes to read (else all); aux: size. What is not read is
// zero, and an address of which nothing is read may be any. The copy is done at once, so commit and
// wait have nothing left to do.
HANDLER(copy_async) {
  switch (op->aux) {
    case 4: return copy_lanes<4>(op, warp, regs);
    case 8: return copy_lanes<8>(op, warp, regs);
    default: return copy_lanes<16>(op, warp, regs);
  }
}

}  // namespace

u64 atomic_bytes(AtomicType type) {
  switch (type) {
    case AtomicType::kB16:
    case AtomicType::kF16:
    case AtomicType::kBF16: return 2;
    case AtomicType::kU64:
    case AtomicType::kS64:
    case AtomicType::kF64: return 8;
    case AtomicType::kB128: return 16;
    default: return 4;
  }
}

void update_array(AtomicOp kind, AtomicType type, std::byte* at, const std::byte* with, u64 bytes) {
  auto integers = [&]<class T, class S>(T, S) {
    each_element<T>(at, with, bytes,
                    [=](std::byte* p, T value) { integer_atomic<T, S>(kind, p, value, 0); });
  };
  switch (type) {
    case AtomicType::kB16: return integers(u16{}, u16{});
    case AtomicType::kU32: return integers(u32{}, u32{});
    case AtomicType::kS32: return integers(u32{}, s32{});
    case AtomicType::kU64: return integers(u64{}, u64{});
    case AtomicType::kS64: return integers(u64{}, s64{});
    case AtomicType::kF32:
      return each_element<u32>(at, with, bytes, [=](std::byte* p, u32 value) {
        update<u32>(p, [=](u32 old) { return float_op(kind, old, value, false); });
      });
    case AtomicType::kF64:
      return each_element<u64>(at, with, bytes, [](std::byte* p, u64 value) {
        update<u64>(p, [=](u64 old) { return double_sum(old, value, true); });
      });
    case AtomicType::kF16:
      return each_element<u16>(at, with, bytes, [=](std::byte* p, u16 value) {
        update<u16>(p, [=](u16 old) { return half_op<false>(kind, old, value); });
      });
    case AtomicType::kBF16:
      return each_element<u16>(at, with, bytes, [=](std::byte* p, u16 value) {
        update<u16>(p, [=](u16 old) { return half_op<true>(kind, old, value); });
      });
    case AtomicType::kF16x2:
    case AtomicType::kBF16x2:
    case AtomicType::kB128: return;  // no array has them
  }
}

void add_atomic_handlers(HandlerTable* table) {
#define PUT(name) table->handlers[static_cast<size_t>(IrOp::k_##name)] = h_##name
  PUT(fence);
  PUT(load_ordered);
  PUT(store_ordered);
  PUT(atomic);
  PUT(copy_async);
#undef PUT
}

}  // namespace openmps::softgpu
