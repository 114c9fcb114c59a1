// SPDX-License-Identifier: Apache-2.0
// The launch interface from before CUDA 4.0 (cuda/old_launch.h). Any thread.

#include "base/mutex.h"
#include "softgpu/device/work/module.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace
using cuda::OldLaunch;

namespace {

// body(OldLaunch&) -> CUresult.
template <typename Body>
CUresult with_settings(CUfunction handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Function> function = driver.functions.find(handle);
    if (function == nullptr) return invalid_handle("not a function");
    const MutexLock lock(function->old_launch_mutex);
    const CUresult result = body(function->old_launch);
    return result == CUDA_SUCCESS ? Status() : Status(result, "what no launch can have");
  });
}

CUresult set_parameter(CUfunction handle, int offset, const void* value, size_t bytes) {
  return with_settings(
      handle, [&](OldLaunch& launch) { return launch.set_parameter(offset, value, bytes); });
}

CUresult launch(CUfunction handle, int width, int height, CUstream stream) {
  OldLaunch now;
  const CUresult found = with_settings(handle, [&](const OldLaunch& settings) {
    now = settings;
    return CUDA_SUCCESS;
  });
  if (found != CUDA_SUCCESS) return found;
  return now.launch(handle, width, height, stream, cuLaunchKernel);
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return with_settings(hfunc, [&](OldLaunch& launch) { return launch.set_block(x, y, z); });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return with_settings(hfunc, [&](OldLaunch& launch) { return launch.set_shared(bytes); });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return with_settings(hfunc, [&](OldLaunch& launch) { return launch.set_size(numbytes); });
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set_parameter(hfunc, offset, ptr, numbytes);
}

CUresult cuLaunch(CUfunction f) { return launch(f, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return launch(f, grid_width, grid_height, hStream);
}
