// SPDX-License-Identifier: Apache-2.0
// From the arguments of a copy or fill call to work: which memory each side is, and whether the
// range is inside it. API threads; workers for what kernels launch.
#pragma once

#include "cuda/status.h"
#include "softgpu/device/schedule/copy.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

class Context;
class AddressSpace;
class Driver;

// What the call says a pointer is.
enum class CopySide { kHost, kDevice, kUnified };

// What it is.
struct SideFacts {
  bool mapped = false;    // in the address space: must still be mapped when the copy runs
  bool pageable = false;  // ordinary memory of the program
  bool device = false;
  bool sync_memops = false;
  MemoryPlace place;
  const Context* variable_of = nullptr;  // whose module's variable it is; compared only
};

struct CopyPlan {
  CopyWork work;
  SideFacts source;
  SideFacts destination;
};

// CUDA_ERROR_INVALID_VALUE: a device pointer that is none, or a range that leaves its allocation.
Result<CopyPlan> plan_copy(const AddressSpace& memory, const CopyShape& shape, CopySide source,
                           CopySide destination);

// CUDA_ERROR_INVALID_VALUE: the range is not all inside one piece of device or pinned memory.
Status check_fill_range(const AddressSpace& memory, const FillShape& shape,
                        SideFacts* facts = nullptr);
// Of the alignment and the pitch alone. CUDA_ERROR_INVALID_VALUE.
Status check_fill_shape(const FillShape& shape);
Result<FillWork> plan_fill(const AddressSpace& memory, const FillShape& shape);

// CUDA_MEMCPY3D: nothing is asked of an empty one. Rows that do not fit their pitch, or boxes that
// do not fit their array, are CUDA_ERROR_INVALID_VALUE, what is no array is
// CUDA_ERROR_INVALID_HANDLE.
Status read_copy_parameters(const Driver& driver, const CUDA_MEMCPY3D& parameters, CopyShape* shape,
                            CopySide* source, CopySide* destination);

}  // namespace openmps::softgpu
