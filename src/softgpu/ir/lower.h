// SPDX-License-Identifier: Apache-2.0
// From the parsed module to Code. Called by engine.cc (compile()); any thread.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/ir/code.h"
#include "softgpu/ptx/ast.h"

namespace openmps::softgpu::ir {

struct SharedLayout {
  std::vector<uint32_t> offsets;  // of module.shared
  std::vector<uint64_t> bytes;    // by function: what a kernel needs
};

// Static .shared variables: those that device functions mention come first and at the same place
// in every kernel of the module, the others behind them, at places of their kernel's own.
SharedLayout lay_out_shared(const ptx::Module& module);

// Never fails: what can't be lowered is told in Code::unusable.
std::unique_ptr<Code> lower(const ptx::Module& module, int32_t function,
                            const std::vector<uint32_t>& shared_offsets);

}  // namespace openmps::softgpu::ir
