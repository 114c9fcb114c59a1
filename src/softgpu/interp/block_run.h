// SPDX-License-Identifier: Apache-2.0
// A block from start to end, and the pool that makes the next block cheap. One thread at a time
// runs a block.
#pragma once

#include <memory>

#include "softgpu/interp/block.h"

namespace openmps::softgpu {

// The pool; any thread.
std::unique_ptr<Block> take_block();
void give_back_block(std::unique_ptr<Block> block);

void prepare(Block& block, const Launch& launch, const uint32_t index[3], uint64_t seed);
// See BlockRun.
BlockState run(Block& block, uint64_t budget, const std::atomic<bool>* stop, uint32_t sm);

}  // namespace openmps::softgpu
