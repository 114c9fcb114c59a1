// SPDX-License-Identifier: Apache-2.0
// Ids to handles for generated commands. See worker_handles.h.
#include "worker/worker_handles.h"

namespace openmps::worker {

// A kernel of a library is asked for as CUkernel or, after cuKernelGetFunction, as CUfunction; both
// have its id. A function of a module is no kernel.
CUresult Handles::resolve_function(uint32_t id, bool as_kernel, void** handle) {
  Function* function = nullptr;
  if (!modules_.function(id, &function).ok()) return CUDA_ERROR_INVALID_HANDLE;
  if (as_kernel) {
    *handle = function->kernel;
    return function->is_kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  Located located;
  const uint32_t device = function->is_kernel ? device_ : function->device;
  Status status = modules_.locate(*function, device, Modules::Reach::kAnyLane, &located);
  if (status.ok()) status = core_.use(device, located.lane);
  *handle = located.handle;
  return status.code();
}

CUresult Handles::resolve(HandleType type, uint32_t id, void** handle) {
  *handle = nullptr;
  switch (type) {
    case HandleType::context:
      // All contexts of the client on a device are the one shared context.
      *handle = core_.devices.at(device_).context;
      return CUDA_SUCCESS;
    case HandleType::function: return resolve_function(id, false, handle);
    case HandleType::kernel: return resolve_function(id, true, handle);
    case HandleType::stream: {
      Stream* stream = nullptr;
      if (!streams_.get(id, &stream).ok()) return CUDA_ERROR_INVALID_HANDLE;
      const CUresult result = streams_.enter(*stream, Streams::Entry::kWork).code();
      *handle = stream->handle;
      return result;
    }
    case HandleType::event: {
      CUevent event = nullptr;
      if (!events_.handle_of(id, &event).ok()) return CUDA_ERROR_INVALID_HANDLE;
      *handle = event;
      return CUDA_SUCCESS;
    }
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// No generated command makes or destroys objects yet.
CUresult Handles::bind(HandleType, uint32_t, void*) { return CUDA_ERROR_NOT_SUPPORTED; }

void Handles::release(HandleType, uint32_t) {}

CUresult Handles::resolve_device(uint32_t id, CUdevice* device) {
  if (!core_.check_device(id).ok()) return CUDA_ERROR_INVALID_DEVICE;
  *device = core_.devices.at(id).handle;
  return CUDA_SUCCESS;
}

}  // namespace openmps::worker
