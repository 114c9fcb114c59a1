// SPDX-License-Identifier: Apache-2.0
// The export table by which our libcupti records what happens on the devices. Any thread.
#pragma once

#include "cuda/abi.h"
#include "cupti/activity.h"

namespace openmps::softgpu {

// Null: that is the number of another table.
const cupti::ActivityTable* find_activity_table(const CUuuid& id);

}  // namespace openmps::softgpu
