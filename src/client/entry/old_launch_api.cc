// SPDX-License-Identifier: Apache-2.0
// The launch interface from before CUDA 4.0 (cuda/old_launch.h). Implementations behind the
// generated entry points, on the program's threads.

#include "api/client_impl.h"
#include "base/mutex.h"
#include "client/objects.h"
#include "client/session/session.h"

namespace openmps::client {
namespace {

using cuda::OldLaunch;

// Of all functions' settings: they are changed rarely and briefly.
constinit Mutex g_lock{LockRank::kClientOldLaunch};

// `use(launch)` with what cuLaunch* will use.
template <typename Use>
CUresult with_settings(CUfunction handle, Use&& use) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Function* function = session->modules.functions.find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const MutexLock guard(g_lock);
  if (function->old_launch == nullptr) function->old_launch = std::make_unique<OldLaunch>();
  return use(*function->old_launch);
}

CUresult set_parameter(CUfunction handle, int offset, const void* value, size_t bytes) {
  return with_settings(
      handle, [&](OldLaunch& launch) { return launch.set_parameter(offset, value, bytes); });
}

CUresult launch(CUfunction handle, int width, int height, CUstream stream) {
  OldLaunch now;
  OPENMPS_CUDA_CHECK(with_settings(handle, [&now](const OldLaunch& settings) {
    now = settings;
    return CUDA_SUCCESS;
  }));
  return now.launch(handle, width, height, stream, impl::cuLaunchKernel);
}

}  // namespace

namespace impl {

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
