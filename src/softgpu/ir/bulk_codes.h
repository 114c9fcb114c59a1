// SPDX-License-Identifier: Apache-2.0
// Small numbers in Op::aux of bulk copies, which lower_async.cc writes and interp/bulk_copy.cc and
// interp/tensor_copy.cc read.
#pragma once

#include <cstdint>

#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu {

struct BulkCode {
  bool multicast = false;  // to the same place in several blocks of the cluster
  bool reduces = false;    // else it copies
  AtomicOp op = AtomicOp::kAdd;
  AtomicType type = AtomicType::kU32;  // of a reduction by bytes; a tensor knows its own
  // Of tensors:
  uint32_t rank = 0;
  bool stores = false;  // shared to global memory
  bool im2col = false;
  bool prefetches = false;  // nothing is copied

  [[nodiscard]] uint32_t encode() const {
    return static_cast<uint32_t>(multicast) | static_cast<uint32_t>(reduces) << 1 |
           static_cast<uint32_t>(op) << 4 | static_cast<uint32_t>(type) << 8 | rank << 12 |
           (stores ? 1u << 15 : 0) | (im2col ? 1u << 16 : 0) | (prefetches ? 1u << 17 : 0);
  }
  static BulkCode decode(uint32_t aux) {
    return {(aux & 1) != 0,
            (aux >> 1 & 1) != 0,
            static_cast<AtomicOp>(aux >> 4 & 15),
            static_cast<AtomicType>(aux >> 8 & 15),
            aux >> 12 & 7,
            (aux >> 15 & 1) != 0,
            (aux >> 16 & 1) != 0,
            (aux >> 17 & 1) != 0};
  }
};

}  // namespace openmps::softgpu
