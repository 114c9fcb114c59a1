// SPDX-License-Identifier: Apache-2.0
// Where static .shared variables lie. Called by compile(); any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ir {

struct SharedLayout {
  std::vector<uint32_t> offsets;  // of module.shared
  std::vector<uint64_t> bytes;    // by function: what a kernel needs
};

// Static .shared variables: those that device functions mention come first and at the same place
// in every kernel of the module, the others behind them, at places of their kernel's own.
SharedLayout lay_out_shared(const ptx::Module& module);

}  // namespace openmps::softgpu::ir
