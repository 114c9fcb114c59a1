// SPDX-License-Identifier: Apache-2.0
// What every entry point of libcuda.so.1 starts with: is there a driver, a current context, and is
// it healthy. Entry points check arguments, call the model and return; they hold no state. Any
// thread.
#pragma once

#include <memory>
#include <new>

#include "api/default_stream.h"
#include "api/prototypes.h"
#include "base/thread_end.h"
#include "cuda/status.h"
#include "cupti/activity.h"
#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/schedule/recorder.h"
#include "softgpu/device/schedule/scheduler.h"

namespace openmps::softgpu {

using cupti::CallKind;

// The calling thread's context, active and without a sticky error; null only for
// with_any_context().
struct Caller {
  Driver& driver;
  std::shared_ptr<Context> context;
  std::shared_ptr<ExecutionContext> execution;

  // The stream that an argument names; the variant of the entry point says what NULL means.
  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy stream while blocking streams are captured.
  Result<std::shared_ptr<Stream>> stream(CUstream handle, bool asked = false) const {
    Result<std::shared_ptr<Stream>> found =
        resolve_stream(context, handle, per_thread_default_stream());
    if (!found.ok() || !(*found)->queue->legacy) return found;
    Status status = driver.captures.check_legacy_use(*(*found)->execution, asked);
    return status.ok() ? found : status;
  }
};

// The code of a status; the sentence goes to stderr when SOFTGPU_DEBUG is set.
CUresult report(const Status& status);

inline Status invalid_handle(const char* what) { return Status(CUDA_ERROR_INVALID_HANDLE, what); }
inline Status no_result() { return invalid_value("no place for the result"); }

// Store a result's value, or the handle of its object, if there is one.
template <typename T, typename Out>
Status deliver(const Result<T>& result, Out* out) {
  if (result.ok()) *out = static_cast<Out>(*result);
  return result.status();
}
template <typename T, typename Handle>
Status deliver_handle(const Result<std::shared_ptr<T>>& result, Handle* out) {
  if (result.ok()) *out = (*result)->handle;
  return result.status();
}

// CUDA_ERROR_DEINITIALIZED (while the process exits), CUDA_ERROR_NOT_INITIALIZED (also in a child
// forked after cuInit), CUDA_ERROR_NOT_PERMITTED (inside a host function).
Status check_entry(Driver** driver);
// The current context. CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED, or the sticky
// error.
Status enter_context(Caller* caller);
// Runs the body of a call on a stream. On a thread without a current context, a stream that the
// program made names the context, as on an H200. Also CUDA_ERROR_INVALID_HANDLE.
Status enter_context(Caller* caller, CUstream stream);
// The context of a handle argument, or the current one for null.
Result<std::shared_ptr<Context>> context_or_current(Driver& driver, CUcontext handle);

// Memory operations of a stream, a capture or a node: all but whether their memory is there, which
// check_words() asks where they run. CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED.
Result<WordsWork> words_work(const CUstreamBatchMemOpParams* params, unsigned count,
                             unsigned flags);

// Run a call that needs cuInit only: body(Driver&) -> Status. A thread that is cancelled meanwhile
// ends after it; one that a function of the program's ends unwinds through it.
template <typename Body>
CUresult with_driver(Body&& body) {
  const CancellationHeld held;
  try {
    Driver* driver = nullptr;
    Status status = check_entry(&driver);
    return report(status.ok() ? body(*driver) : status);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

// Run a call that needs a current context: body(Caller&) -> Status.
template <typename Body>
CUresult with_context(Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    Caller caller{driver, nullptr, nullptr};
    OPENMPS_RETURN_IF_ERROR(enter_context(&caller));
    return body(caller);
  });
}

// Run a call that has no need of a context, as freeing: body(Caller&) -> Status. One that was
// destroyed or failed is an error.
template <typename Body>
CUresult with_any_context(Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    Caller caller{driver, nullptr, nullptr};
    Status status = enter_context(&caller);
    return status.ok() || caller.context == nullptr ? body(caller) : status;
  });
}

// Run a call that names a stream: body(Caller&) -> Status.
template <typename Body>
CUresult with_context_of(CUstream handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    Caller caller{driver, nullptr, nullptr};
    OPENMPS_RETURN_IF_ERROR(enter_context(&caller, handle));
    return body(caller);
  });
}

// Run a call on a stream: body(Caller& caller, Stream&) -> Status. `asked`: it only asks about
// caller.driver.captures.
template <typename Body>
CUresult with_stream(CUstream handle, Body&& body, bool asked = false) {
  return with_context_of(handle, [&](Caller& caller) -> Status {
    Result<std::shared_ptr<Stream>> stream = caller.stream(handle, asked);
    if (!stream.ok()) return stream.status();
    return body(caller, **stream);
  });
}

// The same for a call that gives the stream kernels, copies or fills.
template <typename Body>
CUresult with_stream(CallKind kind, CUstream handle, Body&& body) {
  return recorded_call(kind, [&] { return with_stream(handle, body); });
}

}  // namespace openmps::softgpu
