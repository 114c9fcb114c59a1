// SPDX-License-Identifier: Apache-2.0
// The launch interface from before CUDA 4.0: a function keeps its block size, its dynamic shared
// memory and its parameters until cuLaunch* uses them. Implementations behind the generated entry
// points, on the program's threads.
#include <string.h>

#include <mutex>
#include <vector>

#include "api/client_impl.h"
#include "client/objects.h"
#include "client/session.h"

namespace openmps::client {
namespace {

// Of all functions' settings: they are changed rarely and briefly.
constinit std::mutex g_lock;

// `change(launch)` with what cuLaunch* will use.
template <typename Change>
CUresult with_settings(CUfunction handle, Change&& change) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Function* function = session->functions.find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard guard(g_lock);
  if (function->old_launch == nullptr) function->old_launch = std::make_unique<OldLaunch>();
  return change(*function->old_launch);
}

CUresult set_parameter(CUfunction handle, int offset, const void* value, size_t bytes) {
  return with_settings(handle, [&](OldLaunch& launch) {
    const size_t end = static_cast<size_t>(offset) + bytes;
    if (offset < 0 || value == nullptr || end > wire::kMaxKernelParameterBytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (launch.parameters.size() < end) launch.parameters.resize(end);
    if (bytes != 0) memcpy(launch.parameters.data() + offset, value, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult launch(CUfunction handle, int width, int height, CUstream stream) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  OldLaunch now;
  OPENMPS_CUDA_CHECK(with_settings(handle, [&now](const OldLaunch& settings) {
    now = settings;
    return CUDA_SUCCESS;
  }));
  now.parameters.resize(now.size);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, now.parameters.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &now.size, CU_LAUNCH_PARAM_END};
  return impl::cuLaunchKernel(handle, static_cast<unsigned>(width), static_cast<unsigned>(height),
                              1, now.block[0], now.block[1], now.block[2], now.shared_bytes, stream,
                              nullptr, now.size != 0 ? extra : nullptr);
}

}  // namespace

namespace impl {

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return with_settings(hfunc, [&](OldLaunch& launch) {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    launch.block = {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return with_settings(hfunc, [&](OldLaunch& launch) {
    launch.shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return with_settings(hfunc, [&](OldLaunch& launch) {
    if (numbytes > wire::kMaxKernelParameterBytes) return CUDA_ERROR_INVALID_VALUE;
    launch.size = numbytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_parameter(hfunc, offset, &value, sizeof(value));
}
CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_parameter(hfunc, offset, &value, sizeof(value));
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

}  // namespace impl
}  // namespace openmps::client
