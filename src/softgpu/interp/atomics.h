// SPDX-License-Identifier: Apache-2.0
// Atomic updates of arrays, for what is not an atomic instruction but works like many of them. Any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softgpu/ir/memory_codes.h"

namespace openmps::softgpu {

uint64_t atomic_bytes(AtomicType type);

// Element by element: at[i] = op(at[i], with[i]). `bytes` is a multiple of the type's.
void update_array(AtomicOp op, AtomicType type, std::byte* at, const std::byte* with,
                  uint64_t bytes);

}  // namespace openmps::softgpu
