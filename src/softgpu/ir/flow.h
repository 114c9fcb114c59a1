// SPDX-License-Identifier: Apache-2.0
// The control flow of a drafted function: its basic blocks, and where lanes that part meet again.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/ir/draft.h"

namespace openmps::softgpu::ir {

struct BasicBlock {
  uint32_t begin = 0, end = 0;  // drafts
  std::vector<int32_t> successors;
  std::vector<int32_t> predecessors;
  int32_t meet = -1;  // immediate post-dominator
  bool is_meet = false;
};

struct Flow {
  std::vector<BasicBlock> blocks;
  std::vector<int32_t> block_of;  // draft -> block
};

bool ends_block(const Draft& draft);
Flow find_flow(const DraftFunction& function);

}  // namespace openmps::softgpu::ir
