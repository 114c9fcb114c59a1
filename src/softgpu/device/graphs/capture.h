// SPDX-License-Identifier: Apache-2.0
// Stream capture: streams that build a graph instead of running work, which streams take part, and
// which calls the rules of the three capture modes forbid meanwhile. API threads.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cuda/status.h"
#include "softgpu/device/graphs/graph.h"
#include "softgpu/device/work/work.h"

namespace openmps::softgpu {

class Driver;
class ExecutionContext;
struct Event;
struct Stream;

// One capture sequence: from cuStreamBeginCapture to cuStreamEndCapture.
struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;  // that began it
  std::shared_ptr<ExecutionContext> execution;
  std::shared_ptr<Graph> graph;
  bool to_existing_graph = false;
  bool invalidated = false;
  bool ended = false;
  Stream* origin = nullptr;                      // compared only
  std::vector<std::weak_ptr<Stream>> streams;    // all that take part
  std::vector<std::shared_ptr<GraphNode>> left;  // what streams that were destroyed had come to
};

// All captures in progress. The mutex guards Capture, Stream::capture* and Event::capture* too.
class Captures {
 public:
  explicit Captures(Driver* driver) : driver_(driver) {}

  Status begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
               std::shared_ptr<Graph> into, std::span<const GraphEdge> dependencies);
  // The graph, if anybody wants it (else null). All errors end the capture and its graph but
  // CUDA_ERROR_STREAM_CAPTURE_UNMATCHED (another stream's capture), which invalidates it:
  // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, _UNJOINED, _WRONG_THREAD; CUDA_ERROR_ILLEGAL_STATE:
  // none.
  Status end(Stream& stream, CUgraph* graph);
  // The context goes away: end every capture in it.
  void end_all(const ExecutionContext& execution);
  // The stream is destroyed.
  void leave(Stream& stream);
  CUstreamCaptureStatus status(Stream& stream, uint64_t* id, CUgraph* graph,
                               std::vector<CUgraphNode>* dependencies);
  Status update_dependencies(Stream& stream, std::span<const GraphEdge> edges, bool replace);

  // What stream calls do while the stream is captured.
  Status add(Stream& stream, const Work& work);
  Status record(Stream& stream, Event& event);
  Status wait(Stream& stream, Event& event);
  void invalidate(Stream& stream);
  // A call that can't be captured: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture is
  // invalid.
  Status refuse(Stream& stream);
  // Refuses a call on an event that was last recorded in a captured stream.
  Status refuse(Event& event);

  // The event was last recorded in a captured stream; it no longer counts as that.
  [[nodiscard]] bool has(const Event& event);
  void forget(Event& event);
  // An event that was last recorded in a capture has no completion: CUDA_ERROR_CAPTURED_EVENT, and
  // CUDA_ERROR_INVALID_VALUE once the capture is over. `spoil`: invalidates the capture.
  Status check_not_captured(Event& event, bool spoil);

  // Calls that may synchronise or that act at once (allocation, frees, queries): forbidden while a
  // capture that concerns this thread is going on. Invalidates that capture.
  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
  Status check_unsafe_call();
  // The legacy stream must not be named while a blocking stream of its context is captured, which
  // invalidates the capture unless it was only `asked` about. CUDA_ERROR_STREAM_CAPTURE_IMPLICIT.
  Status check_legacy_use(const ExecutionContext& execution, bool asked = false);
  // cuCtxSynchronize is forbidden while anything in the context is captured.
  Status check_context_use(const ExecutionContext& execution);

 private:
  // No stream takes part any more.
  void finish_locked(const std::shared_ptr<Capture>& capture) REQUIRES(mutex_);
  bool all_joined_locked(const Capture& capture, const Stream& origin) REQUIRES(mutex_);
  Status verdict_locked(const Capture& capture, const Stream& origin) REQUIRES(mutex_);

  Driver* driver_;
  Mutex mutex_{LockRank::kSoftCaptures};
  std::vector<std::shared_ptr<Capture>> active_ GUARDED_BY(mutex_);  // that go on
  std::atomic<uint32_t> active_count_{
      0};  // lets calls skip the lock when no capture is in progress
};

// cuThreadExchangeStreamCaptureMode.
CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode);

}  // namespace openmps::softgpu
