// SPDX-License-Identifier: Apache-2.0
// Streams and the one way work gets onto the device: issue(). A stream that is being captured turns
// the same work into graph nodes instead. API threads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda/status.h"
#include "cuda/stream_attributes.h"
#include "softgpu/device/execution_context.h"
#include "softgpu/device/work.h"

namespace openmps::softgpu {

class Context;
class Driver;
struct Capture;
struct GraphNode;
struct GreenContext;

struct Stream {
  CUstream handle = nullptr;
  std::shared_ptr<Context> context;
  std::shared_ptr<ExecutionContext> execution;
  std::shared_ptr<StreamQueue> queue;
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<GreenContext> green;
  std::atomic<bool> detached{false};  // its green context was destroyed: good for nothing any more
  std::mutex attributes_lock;
  cuda::StreamAttributes attributes;

  // Set while the stream is captured; the rest of capture state is guarded by the capture mutex.
  std::atomic<bool> capturing{false};
  std::shared_ptr<Capture> capture;
  std::vector<std::shared_ptr<GraphNode>> capture_dependencies;

  // Default streams are not in the handle table.
  [[nodiscard]] bool is_default() const { return handle == nullptr; }
};

// Every SM of the device.
SmSet all_sms(const Driver& driver);

// A stream without a handle (default streams). Priority is clamped to the legal range. In the view
// of a green context it has that one's SMs, and no barriers with any default stream.
std::shared_ptr<Stream> make_stream(const std::shared_ptr<Context>& context,
                                    const std::shared_ptr<ExecutionContext>& execution,
                                    unsigned flags, int priority);
std::shared_ptr<Stream> make_legacy_stream(const std::shared_ptr<Context>& context,
                                           const std::shared_ptr<ExecutionContext>& execution);
// cuStreamCreateWithPriority: with a handle.
Result<std::shared_ptr<Stream>> create_stream(const std::shared_ptr<Context>& context,
                                              unsigned flags, int priority);
// Work in it goes on. CUDA_ERROR_INVALID_HANDLE for default streams and unknown handles.
Status destroy_stream(Driver& driver, CUstream handle);

// The stream behind a handle, NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included, of
// `context` (the current one). `per_thread_default`: what NULL means. CUDA_ERROR_INVALID_HANDLE,
// CUDA_ERROR_CONTEXT_IS_DESTROYED: of its green context.
Result<std::shared_ptr<Stream>> resolve_stream(const std::shared_ptr<Context>& context,
                                               CUstream handle, bool per_thread_default);

// Queue work on a stream, or add it to the graph that the stream is captured into. `after`:
// operations that it must wait for besides the stream's order. `issued`: the operation, null when
// captured. Errors: capture errors.
Status issue(Stream& stream, const Work& work, OperationPtr* issued = nullptr,
             std::span<const OperationPtr> after = {});

// cuStreamSynchronize: wait for everything in it. The sticky error of the context, if it failed.
Status synchronize_stream(Stream& stream);
Status query_stream(Stream& stream);  // CUDA_ERROR_NOT_READY
Status synchronize_context(Driver& driver, ExecutionContext& execution);

// The sticky error as a Status.
Status sticky_error(const ExecutionContext& execution);

}  // namespace openmps::softgpu
