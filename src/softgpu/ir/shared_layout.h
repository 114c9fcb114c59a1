// SPDX-License-Identifier: Apache-2.0
// Where static .shared variables lie. Called by compile(); any thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ir {

struct SharedLayout {
  std::map<int32_t, uint32_t> offsets;  // of the static ones among module.shared
  uint64_t bytes = 0;                   // that a kernel needs
};

// By function: where its static .shared variables lie. What only a kernel's own text names has a
// place by itself in each kernel. What functions name has one place in the whole module, since a
// function is lowered once for all kernels that call it; variables that no kernel needs together,
// itself or in functions that it calls, may lie at the same place.
std::vector<SharedLayout> lay_out_shared(const ptx::Module& module);

// What the function's own text names.
ptx::Mentions mentions_of(const ptx::Function& function);

}  // namespace openmps::softgpu::ir
