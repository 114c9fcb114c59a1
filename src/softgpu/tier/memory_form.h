// SPDX-License-Identifier: Apache-2.0
// What a load or store of the IR says by its number: space, widths, signs, elements.
#pragma once

#include <cstdint>

#include "softgpu/ir/op.h"

namespace openmps::softgpu::tier {

enum class MemorySpace : uint8_t { kGlobal, kShared, kLocal };

struct MemoryForm {
  MemorySpace space = MemorySpace::kGlobal;
  bool is_store = false;
  bool is_signed = false;       // what is in memory, widened to the register
  uint32_t memory_bytes = 4;    // of an element
  uint32_t register_bytes = 4;  // of a lane
  uint32_t count = 1;           // elements
  [[nodiscard]] uint32_t bytes() const { return memory_bytes * count; }
};

// False: `op` is no plain load or store.
bool memory_form(const Op& op, MemoryForm* form);
bool is_carry(IrOp op);

}  // namespace openmps::softgpu::tier
