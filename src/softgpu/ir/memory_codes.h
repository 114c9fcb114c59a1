// SPDX-License-Identifier: Apache-2.0
// Small numbers in Op::aux that the lowering writes and the handlers of interp/ read.
#pragma once

#include <cstdint>

namespace openmps::softgpu {

// atomic.
enum class AtomicOp : uint8_t {
  kAdd,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompare,
  kInc,
  kDec,
  kMin,
  kMax
};
enum class AtomicType : uint8_t {
  kB16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF32,
  kF64,
  kF16,
  kBF16,
  kF16x2,
  kBF16x2,
  kB128,
};
inline constexpr uint32_t atomic_code(AtomicOp op, AtomicType type, bool shared, bool has_result) {
  return static_cast<uint32_t>(op) | static_cast<uint32_t>(type) << 8 |
         static_cast<uint32_t>(shared) << 16 | static_cast<uint32_t>(has_result) << 17;
}

// load_ordered, store_ordered, load_param.
inline constexpr uint32_t ordered_code(uint32_t count, uint32_t memory_bytes, uint32_t lane_bytes,
                                       bool is_signed, bool fence) {
  return count | memory_bytes << 4 | lane_bytes << 12 | static_cast<uint32_t>(is_signed) << 20 |
         static_cast<uint32_t>(fence) << 21;
}
// In load_param's code: all lanes have the same address.
inline constexpr uint32_t kUniformAddress = 1u << 23;

// Collectives: e holds the member masks; extra[0] is a predicate result; all lanes have one and the
// same mask, a constant.
inline constexpr uint32_t kHasMembers = 0x100;
inline constexpr uint32_t kHasPredicate = 0x200;
inline constexpr uint32_t kSameMembers = 0x400;

enum class ReduxOp : uint8_t { kAdd, kMinU, kMinS, kMaxU, kMaxS, kAnd, kOr, kXor };
enum class BarrierRed : uint8_t { kPopc, kAnd, kOr };
enum class MbarrierOp : uint8_t {
  kInit,
  kInval,
  kExpectTx,
  kCompleteTx,
  kArrive,
  kArriveDrop,
  kArriveExpectTx,
  kArriveDropExpectTx,
  kTestWait,
  kTestWaitParity,
  kPendingCount,
  kCopyArrive,
  kCopyArriveNoinc,
};
struct MbarrierCode {
  MbarrierOp op = MbarrierOp::kInit;
  bool has_result = false;
  bool has_value = false;
  bool multicast = false;

  [[nodiscard]] uint32_t encode() const {
    return static_cast<uint32_t>(op) | static_cast<uint32_t>(has_result) << 8 |
           static_cast<uint32_t>(has_value) << 9 | static_cast<uint32_t>(multicast) << 10;
  }
  static MbarrierCode decode(uint32_t aux) {
    return {static_cast<MbarrierOp>(aux & 0xff), (aux >> 8 & 1) != 0, (aux >> 9 & 1) != 0,
            (aux >> 10 & 1) != 0};
  }
};

}  // namespace openmps::softgpu
