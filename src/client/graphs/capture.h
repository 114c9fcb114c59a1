// SPDX-License-Identifier: Apache-2.0
// Stream capture: which streams take part in which capture, what the next work of each depends on,
// and which calls the modes of the open captures forbid. Captured calls become nodes of a graph in
// this process (graph.h); the worker never learns of a capture. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "client/graphs/graph.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Context;
struct Event;
struct Stream;

struct Capture {
  uint32_t number = 0;  // cuStreamGetCaptureInfo's id
  Stream* origin = nullptr;
  const void* thread = nullptr;  // identity of the thread that began it
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  Graph* graph = nullptr;      // null: the program has destroyed it, which invalidates the capture
  bool into_existing = false;  // the graph was the program's before
  bool invalidated = false;
};

class Captures {
 public:
  using Edges = std::vector<GraphEdge>;

  explicit Captures(Graphs& graphs) : graphs_(graphs) {}

  // Fast answer for the calls that captures forbid: none is open.
  [[nodiscard]] bool any() const { return open_count_.load(std::memory_order_acquire) != 0; }

  // Opens a capture whose first work depends on `edges`; its number.
  uint32_t open(Capture capture, Edges edges);
  // Forgets a capture; the streams that took part are set free.
  void close(uint32_t number);
  // A stream goes away. CUDA leaves destroying a capturing stream undefined; here its capture just
  // ends. Work of a stream that is not the origin must still be joined.
  void leave(Stream& stream);
  [[nodiscard]] bool find(uint32_t number, Capture* capture);
  void invalidate(uint32_t number);
  // Some capture builds this graph.
  [[nodiscard]] bool is_target(const Graph* graph);

  // ---- Dependencies; of a capture that is open, else nothing. ----
  [[nodiscard]] Edges dependencies(uint32_t number, Stream* stream);
  void set_dependencies(uint32_t number, Stream* stream, Edges edges);
  // `event` marks what the stream has come to. Errors: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.
  [[nodiscard]] CUresult record(uint32_t number, Stream* stream, const Event* event);
  // Work of every stream has found its way back to the origin.
  [[nodiscard]] bool all_joined(uint32_t number);
  // A node goes away: nothing depends on it any more.
  void forget(const GraphNode* node);
  // A graph goes away.
  void forget(const Graph* graph);

  // May the calling thread make a call that is unsafe while capturing (cuMemAlloc, ...)? If not,
  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures that forbid it are invalidated, as the
  // driver does.
  [[nodiscard]] CUresult check_unsafe_call(const void* thread, CUstreamCaptureMode thread_mode);
  // The legacy stream is named while blocking streams of its context take part in captures:
  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT. That invalidates them, unless it was only `asked` about.
  [[nodiscard]] CUresult check_legacy_stream(const Stream& legacy, bool asked);

  // ---- What stream calls do in a capturing stream ----
  // A call that can't be captured: of a capturing stream CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and
  // its capture is invalidated.
  [[nodiscard]] CUresult refuse(const Stream& stream);
  // A call that can't be captured, about a whole context: refused if any stream of it captures.
  [[nodiscard]] CUresult refuse(const Context& context);
  // The work becomes a node behind what the stream has come to. Errors:
  // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult add(Stream& stream, Work work);
  // A wait in a capturing stream, or for an event that was recorded in a capture: the stream takes
  // part in that one from now on. Errors: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, _ISOLATION (of an
  // event from outside), _MERGE, _IMPLICIT (the legacy stream); CUDA_ERROR_INVALID_VALUE: the
  // event's capture has ended, or was invalidated. All but the first invalidate the captures
  // concerned.
  [[nodiscard]] CUresult wait(Stream& stream, const Event& event);

 private:
  struct Open : Capture {
    std::unordered_map<Stream*, Edges> streams;  // that take part
    std::unordered_map<const Event*, Edges> events;
    Edges left;  // what streams that went away had come to
  };
  Open* find_locked(uint32_t number) REQUIRES(lock_);
  // Some capture has a stream that is concerned; each such one is invalidated, if asked to.
  template <typename Concerned>
  bool concern(Concerned&& concerned, bool spoil);
  void depend(uint32_t number, Stream* stream, const Event* event);

  Graphs& graphs_;

  std::atomic<uint32_t> open_count_{0};
  Mutex lock_{LockRank::kClientCaptures};
  std::vector<Open> captures_ GUARDED_BY(lock_);
  uint32_t next_number_ GUARDED_BY(lock_) = 1;
};

}  // namespace openmps::client
