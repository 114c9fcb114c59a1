// SPDX-License-Identifier: Apache-2.0
// The launch interface from before CUDA 4.0: a function keeps what a launch will use. Any thread.
#include <cstring>
#include <mutex>

#include "softgpu/device/module.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: the same

namespace {

constexpr size_t kMaxParameterBytes = 32764;  // of a kernel, since CUDA 12.1

constinit std::mutex settings_mutex;

template <typename Body>
CUresult with_settings(CUfunction handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Function> function = driver.functions.find(handle);
    if (function == nullptr) return invalid_handle("not a function");
    std::lock_guard lock(settings_mutex);
    return body(function->old_launch);
  });
}

CUresult set_parameter(CUfunction handle, int offset, const void* value, size_t bytes) {
  return with_settings(handle, [&](OldLaunch& launch) -> Status {
    const size_t end = static_cast<size_t>(offset) + bytes;
    if (offset < 0 || value == nullptr || end > kMaxParameterBytes)
      return invalid_value("a parameter that no kernel has");
    if (launch.parameters.size() < end) launch.parameters.resize(end);
    if (bytes != 0) memcpy(launch.parameters.data() + offset, value, bytes);
    return Status();
  });
}

CUresult launch(CUfunction handle, int width, int height, CUstream stream) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  OldLaunch now;
  const CUresult found = with_settings(handle, [&](const OldLaunch& settings) {
    now = settings;
    return Status();
  });
  if (found != CUDA_SUCCESS) return found;
  now.parameters.resize(now.size);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, now.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &now.size, CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(handle, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                        now.block[0], now.block[1], now.block[2], now.shared_bytes, stream, nullptr,
                        now.size != 0 ? extra : nullptr);
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return with_settings(hfunc, [&](OldLaunch& launch) -> Status {
    if (x <= 0 || y <= 0 || z <= 0) return invalid_value("an empty block");
    launch.block = {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
    return Status();
  });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return with_settings(hfunc, [&](OldLaunch& launch) {
    launch.shared_bytes = bytes;
    return Status();
  });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return with_settings(hfunc, [&](OldLaunch& launch) -> Status {
    if (numbytes > kMaxParameterBytes) return invalid_value("more parameters than a kernel has");
    launch.size = numbytes;
    return Status();
  });
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
