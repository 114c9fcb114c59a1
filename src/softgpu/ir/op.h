// SPDX-License-Identifier: Apache-2.0
// The predecoded operation of the warp interpreter, and the list of all of them. The lowering makes
// them, the handlers of interp/ run them. Immutable once made.
#pragma once

#include <cstddef>
#include <cstdint>

namespace openmps::softgpu {

enum class IrOp : uint16_t;
struct Op;
struct Warp;

// Runs `op` for the lanes of the running fragment and returns what to run next, or nullptr when the
// warp gives up the processor. `regs` is the frame of registers; `mask` has the lanes that may be
// written: the active ones and those that nothing can read any more (dead or not in the frame).
using Handler = const Op* (*)(const Op* op, Warp* warp, std::byte* regs, uint32_t mask);

// d, a, b, c, e: byte offsets into the frame. A register's 32 lanes are contiguous; a predicate is
// one uint32_t with a bit per lane.
struct Op {
  Handler handler = nullptr;
  int32_t d = 0;
  int32_t a = 0;
  int32_t b = 0;
  int32_t c = 0;
  int32_t e = 0;
  uint32_t aux = 0;  // small parameters: element counts, kinds; branches: instructions to account
  union {
    uint64_t imm = 0;
    const Op* target;
  };
  // More operands: results first, then values. extra[-1] says how many there are (extra_code()).
  const int32_t* extra = nullptr;
  uint32_t line = 0;  // of the PTX text
  IrOp code{};
  uint16_t sync = 0;  // 1: a loop through here may wait for other lanes or warps
};

// The numbers of an op's extra results and of its extra values.
inline constexpr int32_t extra_code(size_t results, size_t values) {
  return static_cast<int32_t>(results << 16 | values);
}
inline constexpr uint32_t extra_results(const Op& op) {
  return op.extra ? static_cast<uint32_t>(op.extra[-1]) >> 16 : 0;
}
inline constexpr uint32_t extra_values(const Op& op) {
  return op.extra ? static_cast<uint32_t>(op.extra[-1]) & 0xffff : 0;
}

enum class IrOp : uint16_t {
#define UNARY(name, ...) k_##name,
#define BINARY(name, ...) k_##name,
#define TERNARY(name, ...) k_##name,
#define QUATERNARY(name, ...) k_##name,
#define UNARY_SLOW(name, ...) k_##name,
#define BINARY_SLOW(name, ...) k_##name,
#define TERNARY_SLOW(name, ...) k_##name,
#define CARRY(name, ...) k_##name,
#define SELECT(name, ...) k_##name,
#define RSQRT(name, ...) k_##name,
#define COMPARE(name, ...) k_##name,
#define LOAD(memory, lane) \
  k_ld_global_##memory##_##lane, k_ld_shared_##memory##_##lane, k_ld_local_##memory##_##lane,
#define STORE(memory, lane) \
  k_st_global_##memory##_##lane, k_st_shared_##memory##_##lane, k_st_local_##memory##_##lane,
#define PLAIN(name) k_##name,
#include "softgpu/ir/ops_all.def"
  kCount,
};
inline constexpr bool is_conditional_branch(IrOp op) {
  return op == IrOp::k_bra_if || op == IrOp::k_bra_unless || op == IrOp::k_bra_if_back ||
         op == IrOp::k_bra_unless_back;
}
inline constexpr size_t kIrOpCount = static_cast<size_t>(IrOp::kCount);

struct HandlerTable {
  Handler handlers[kIrOpCount];
};

}  // namespace openmps::softgpu
