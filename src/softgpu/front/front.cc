// SPDX-License-Identifier: Apache-2.0
// The checks that all entry points share. See front.h.
#include "softgpu/front/front.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/environment.h"
#include "softgpu/device/lifetime/start.h"

namespace openmps::softgpu {

namespace {

// Code that does not load, and kernels that fault: a program that is right has neither on a GPU.
bool is_failure_of_code(CUresult code) {
  switch (code) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_LAUNCH_FAILED: return true;
    default: return false;
  }
}

bool is_strict() {
  const char* text = environment_variable("SOFTGPU_STRICT");
  return text != nullptr && std::string_view(text) == "1";
}

}  // namespace

CUresult report(const Status& status) {
  if (status.ok() || status.code() == CUDA_ERROR_NOT_READY) return status.code();
  const bool ends = is_failure_of_code(status.code()) && is_strict();
  if (ends || environment_variable("SOFTGPU_DEBUG") != nullptr) {
    fprintf(stderr, "softgpu: error %d: %s\n", static_cast<int>(status.code()),
            status.message().c_str());
  }
  if (ends) abort();
  return status.code();
}

Status check_entry(Driver** driver) {
  if (is_exiting()) return Status(CUDA_ERROR_DEINITIALIZED, "the process exits");
  *driver = started_driver();
  if (*driver == nullptr) return Status(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
  if (in_host_function()) {
    return Status(CUDA_ERROR_NOT_PERMITTED, "a host function must not call CUDA");
  }
  return Status();
}

namespace {

Status enter(const std::shared_ptr<Context>& context, Caller* caller) {
  if (context == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "no context is current");
  caller->context = context;
  caller->execution = context->execution();
  if (caller->execution == nullptr) {
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context was destroyed");
  }
  Status status = sticky_error(*caller->execution);
  // The first call that notices a fault shows what the kernel printed about it.
  if (!status.ok()) caller->execution->flush_output();
  return status;
}

}  // namespace

Status enter_context(Caller* caller) { return enter(context_stack::current(), caller); }

Status enter_context(Caller* caller, CUstream stream) {
  std::shared_ptr<Context> context = context_stack::current();
  if (context == nullptr && !is_default_stream(stream)) {
    const std::shared_ptr<Stream> made = caller->driver.streams.find(stream);
    if (made == nullptr) return invalid_handle("not a stream");
    context = made->context;
  }
  return enter(context, caller);
}

Result<std::shared_ptr<Context>> context_or_current(Driver& driver, CUcontext handle) {
  std::shared_ptr<Context> context =
      handle == nullptr ? context_stack::current() : driver.contexts.find(handle);
  if (context == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "not a context");
  return context;
}

}  // namespace openmps::softgpu

// When the library goes, which is at the latest when the process exits, its place in the shared
// device segment goes too. A forked child has no driver and leaves its parent's alone.
__attribute__((destructor)) static void leave_device() { openmps::softgpu::stop_driver(); }

extern "C" OPENMPS_EXPORT const char openmps_library_kind[] = "softgpu";
