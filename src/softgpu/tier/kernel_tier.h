// SPDX-License-Identifier: Apache-2.0
// Which kernels are compiled, and when: those that have run long enough, by a thread of its own;
// blocks that start later run them. Any thread.
#pragma once

#include <memory>

#include "softgpu/interp/compiled.h"

namespace openmps::softgpu::tier {

// Null: this process compiles nothing.
std::shared_ptr<KernelTier> make_tier(const Code& kernel);

}  // namespace openmps::softgpu::tier
