// SPDX-License-Identifier: Apache-2.0
// Issuing copies and fills: how those of ordinary (pageable) memory keep their promises, and which
// calls wait. API threads.
#pragma once

#include "cuda/status.h"
#include "softgpu/device/work/copy_plan.h"

namespace openmps::softgpu {

struct Stream;

// Queue a copy, and wait for it if `synchronous`, except between device memory without
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS or CU_CTX_SYNC_MEMOPS: that returns at once, as fills of such
// memory do. An asynchronous copy of pageable memory reads its source before it returns (small
// ones) or is carried out before it returns, as CUDA allows; one between host memory always is, as
// CUDA documents. CUDA_ERROR_INVALID_VALUE: a device pointer that is none, or a range that leaves
// its allocation.
Status issue_copy(Stream& stream, const CopyShape& shape, CopySide source, CopySide destination,
                  bool synchronous);
Status issue_fill(Stream& stream, const FillShape& shape, bool synchronous);

}  // namespace openmps::softgpu
