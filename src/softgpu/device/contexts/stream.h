// SPDX-License-Identifier: Apache-2.0
// Streams: how they are made and found by handle, and waiting for a context. issue.h puts work into
// them. API threads.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cuda/status.h"
#include "cuda/stream_attributes.h"
#include "softgpu/device/contexts/green_context.h"
#include "softgpu/device/schedule/execution_context.h"

namespace openmps::softgpu {

class Context;
class Scheduler;
struct Config;
struct Capture;
struct GraphNode;

struct Stream {
  CUstream handle = nullptr;
  std::shared_ptr<Context> context;
  std::shared_ptr<ExecutionContext> execution;
  std::shared_ptr<StreamQueue> queue;
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<GreenContext> green;
  std::atomic<bool> detached{false};  // its green context was destroyed: calls on it fail
  Mutex attributes_lock{LockRank::kSoftStreamAttributes};
  cuda::StreamAttributes attributes GUARDED_BY(attributes_lock);
  std::shared_ptr<const void> lots;  // of its context (stream_lots.h); null in a default stream

  // True while the stream is captured. The two members below are guarded by the mutex of Captures.
  std::atomic<bool> capturing{false};
  std::shared_ptr<Capture> capture;
  std::vector<std::shared_ptr<GraphNode>> capture_dependencies;

  // Default streams are not in the handle table.
  [[nodiscard]] bool is_default() const { return handle == nullptr; }
};

// Every SM of the device.
SmSet all_sms(const Config& config);
// Where the kernels of what is captured from a stream run, and those of nodes that are added while
// a context is current.
Placement placement_of(const Stream& stream);
Placement placement_of(const Context& context);

// Takes memory for `count` streams from the context's lots (stream_lots.h) as long as the result
// lives. Returns when the memory is there.
std::shared_ptr<const void> take_stream_lots(const Context& context, uint32_t count);

// A stream without a handle (default streams). Priority is clamped to the legal range. In the view
// of a green context the stream has the green context's SMs and no barrier with a default stream.
std::shared_ptr<Stream> make_stream(const std::shared_ptr<Context>& context,
                                    const std::shared_ptr<ExecutionContext>& execution,
                                    unsigned flags, int priority);
std::shared_ptr<Stream> make_legacy_stream(const std::shared_ptr<Context>& context,
                                           const std::shared_ptr<ExecutionContext>& execution);
// cuStreamCreateWithPriority: with a handle.
Result<std::shared_ptr<Stream>> create_stream(const std::shared_ptr<Context>& context,
                                              unsigned flags, int priority);
// The calling thread's default stream in the context; null while that is not active.
std::shared_ptr<Stream> per_thread_stream(const std::shared_ptr<Context>& context);

inline bool is_default_stream(CUstream handle) {
  return handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

// The stream behind a handle, NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included, of
// `context` (the current one). `per_thread_default`: what NULL means. CUDA_ERROR_INVALID_HANDLE,
// CUDA_ERROR_CONTEXT_IS_DESTROYED: of its green context.
Result<std::shared_ptr<Stream>> resolve_stream(const std::shared_ptr<Context>& context,
                                               CUstream handle, bool per_thread_default);

// Waits for everything in the context. Returns the sticky error, if the context has one.
Status synchronize_context(Scheduler& scheduler, ExecutionContext& execution);

// The sticky error as a Status.
Status sticky_error(const ExecutionContext& execution);

}  // namespace openmps::softgpu
