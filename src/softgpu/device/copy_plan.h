// SPDX-License-Identifier: Apache-2.0
// From the arguments of a copy or fill call to work: which memory each side is, whether the range
// is inside it, and how a copy of ordinary (pageable) memory keeps its promises. API threads.
#pragma once

#include "cuda/status.h"
#include "softgpu/device/copy.h"
#include "softgpu/device/stream.h"
#include "softgpu/device/work.h"

namespace openmps::softgpu {

// What the call says a pointer is.
enum class CopySide { kHost, kDevice, kUnified };

// Queue a copy, and wait for it if `synchronous`, except between device memory without
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS or CU_CTX_SYNC_MEMOPS: that returns at once, as fills of such
// memory do. An asynchronous copy of pageable memory reads its source before it returns (small
// ones) or is carried out before it returns, as CUDA allows; one between host memory always is, as
// CUDA documents. CUDA_ERROR_INVALID_VALUE: a device pointer that is none, or a range that leaves
// its allocation.
Status issue_copy(Stream& stream, const CopyShape& shape, CopySide source, CopySide destination,
                  bool synchronous);
// The same checks, for a graph node.
Result<CopyWork> plan_copy(const Driver& driver, const CopyShape& shape, CopySide source,
                           CopySide destination);

Status issue_fill(Stream& stream, const FillShape& shape, bool synchronous);
// CUDA_ERROR_INVALID_VALUE: the range is not all inside one piece of device or pinned memory.
Status check_fill_range(const Driver& driver, const FillShape& shape);
Result<FillWork> plan_fill(const Driver& driver, const FillShape& shape);

// CUDA_MEMCPY3D: rows that do not fit their pitch, or boxes that do not fit their array, are
// CUDA_ERROR_INVALID_VALUE, what is no array is CUDA_ERROR_INVALID_HANDLE.
Status read_copy_parameters(const Driver& driver, const CUDA_MEMCPY3D& parameters, CopyShape* shape,
                            CopySide* source, CopySide* destination);

}  // namespace openmps::softgpu
