// SPDX-License-Identifier: Apache-2.0
// Stream capture. See capture.h.
#include "softgpu/device/graphs/capture.h"

#include <algorithm>
#include <utility>

#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/work/event.h"

namespace openmps::softgpu {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

Status invalidated() {
  return Status(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture failed earlier");
}

void join_locked(Stream& stream, const std::shared_ptr<Capture>& capture,
                 const std::shared_ptr<Stream>& shared) {
  stream.capture = capture;
  stream.capturing.store(true, std::memory_order_release);
  capture->streams.push_back(shared);
}

}  // namespace

CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

void Captures::finish_locked(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (const auto& weak : capture->streams) {
    std::shared_ptr<Stream> stream = weak.lock();
    if (stream == nullptr || stream->capture != capture) continue;
    stream->capture.reset();
    stream->capture_dependencies.clear();
    stream->capturing.store(false, std::memory_order_release);
  }
  if (std::erase(active_, capture) > 0) --active_count_;
}

Status Captures::begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                       std::shared_ptr<Graph> into, std::span<const GraphEdge> dependencies) {
  if (stream->queue->legacy) {
    return Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy stream can't be captured");
  }
  const MutexLock lock(mutex_);
  if (stream->capture != nullptr) {
    return Status(CUDA_ERROR_ILLEGAL_STATE, "the stream is being captured already");
  }
  for (const auto& other : active_) {
    if (into != nullptr && other->graph == into) {
      return Status(CUDA_ERROR_ILLEGAL_STATE, "a capture is building the graph");
    }
  }
  auto capture = std::make_shared<Capture>();
  capture->id = driver_->new_id();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->execution = stream->execution;
  capture->to_existing_graph = into != nullptr;
  capture->graph = into != nullptr ? std::move(into) : nullptr;
  capture->origin = stream.get();
  if (capture->graph == nullptr) {
    Result<std::shared_ptr<Graph>> graph = create_graph(*driver_);
    if (!graph.ok()) return graph.status();
    capture->graph = *graph;
  }
  for (const GraphEdge& edge : dependencies) {
    stream->capture_dependencies.push_back(driver_->graph_nodes.find(edge.node->handle));
  }
  join_locked(*stream, capture, stream);
  active_.push_back(capture);
  ++active_count_;
  return Status();
}

// Work of a forked stream that nothing joined back would run unobserved.
bool Captures::all_joined_locked(const Capture& capture, const Stream& origin) {
  const auto joined = [&origin](const std::shared_ptr<GraphNode>& node) {
    const auto& end = origin.capture_dependencies;
    return !node->dependents.empty() || std::find(end.begin(), end.end(), node) != end.end();
  };
  const MutexLock graph_lock(graph_mutex);
  if (!std::all_of(capture.left.begin(), capture.left.end(), joined)) return false;
  for (const auto& weak : capture.streams) {
    std::shared_ptr<Stream> stream = weak.lock();
    if (stream == nullptr || stream->capture.get() != &capture) continue;
    const auto& nodes = stream->capture_dependencies;
    if (!std::all_of(nodes.begin(), nodes.end(), joined)) return false;
  }
  return true;
}

Status Captures::verdict_locked(const Capture& capture, const Stream& origin) {
  if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture.thread != std::this_thread::get_id()) {
    return Status(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture");
  }
  if (capture.invalidated) return invalidated();
  if (!all_joined_locked(capture, origin)) {
    return Status(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a forked stream was not joined");
  }
  return Status();
}

Status Captures::end(Stream& stream, CUgraph* graph) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Capture> capture = stream.capture;
  if (graph != nullptr) *graph = nullptr;
  if (capture == nullptr) {
    return Status(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  }
  if (capture->origin != &stream) {
    capture->invalidated = true;
    return Status(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began in another stream");
  }
  Status status = verdict_locked(*capture, stream);
  finish_locked(capture);
  // The graph of a capture that failed goes, also one that was there before (seen on an H200).
  if (!status.ok() || (graph == nullptr && !capture->to_existing_graph)) {
    (void)destroy_graph(*driver_, capture->graph->handle).ok();
  } else if (graph != nullptr) {
    *graph = capture->graph->handle;
  }
  return status;
}

void Captures::leave(Stream& stream) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture == nullptr) return;
  if (capture->origin == &stream) {
    finish_locked(capture);
    if (!capture->to_existing_graph) (void)destroy_graph(*driver_, capture->graph->handle).ok();
    return;
  }
  capture->left.insert(capture->left.end(), stream.capture_dependencies.begin(),
                       stream.capture_dependencies.end());
  stream.capture.reset();
  stream.capture_dependencies.clear();
  stream.capturing.store(false, std::memory_order_release);
}

CUstreamCaptureStatus Captures::status(Stream& stream, uint64_t* id, CUgraph* graph,
                                       std::vector<CUgraphNode>* dependencies) {
  const MutexLock lock(mutex_);
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  *id = stream.capture->id;
  *graph = stream.capture->graph->handle;
  for (const auto& node : stream.capture_dependencies) dependencies->push_back(node->handle);
  return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

Status Captures::update_dependencies(Stream& stream, std::span<const GraphEdge> edges,
                                     bool replace) {
  const MutexLock lock(mutex_);
  if (stream.capture == nullptr) {
    return Status(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
  }
  if (stream.capture->invalidated) return invalidated();
  if (replace) stream.capture_dependencies.clear();
  for (const GraphEdge& edge : edges) {
    stream.capture_dependencies.push_back(driver_->graph_nodes.find(edge.node->handle));
  }
  return Status();
}

Status Captures::add(Stream& stream, const Work& work) {
  const MutexLock lock(mutex_);
  if (stream.capture == nullptr) {
    return Status(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture has just ended");
  }
  if (stream.capture->invalidated) return invalidated();
  const MutexLock graph_lock(graph_mutex);
  if (const auto* free = std::get_if<GraphFreeWork>(&work)) {
    OPENMPS_RETURN_IF_ERROR(check_free_locked(*driver_, *stream.capture->graph, free->address));
  }
  std::vector<GraphEdge> dependencies;
  for (const auto& node : stream.capture_dependencies) dependencies.push_back({node.get(), {}});
  std::shared_ptr<GraphNode> node =
      add_node_locked(*driver_, *stream.capture->graph, work, dependencies);
  stream.capture_dependencies = {node};
  return Status();
}

Status Captures::record(Stream& stream, Event& event) {
  const MutexLock lock(mutex_);
  if (stream.capture == nullptr) return invalidated();
  if (stream.capture->invalidated) return invalidated();
  event.capture = stream.capture;
  event.capture_nodes = stream.capture_dependencies;
  return Status();
}

Status Captures::wait(Stream& stream, Event& event) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Capture> capture = event.capture;
  if (stream.capture != nullptr && stream.capture->invalidated) return invalidated();
  if (capture == nullptr) {
    const bool recorded = event.shared != nullptr || last_record(event) != nullptr;
    if (stream.capture == nullptr || !recorded) return Status();
    // Captured work can't wait for work outside its graph.
    stream.capture->invalidated = true;
    return Status(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "the event was not recorded in the capture");
  }
  if (capture->ended || capture->invalidated) {
    if (stream.capture != nullptr) stream.capture->invalidated = true;
    return Status(CUDA_ERROR_INVALID_VALUE, "the event's capture is over");
  }
  if (stream.queue->legacy) {
    capture->invalidated = true;
    return Status(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream can't join a capture");
  }
  if (stream.capture != nullptr && stream.capture != capture) {
    stream.capture->invalidated = capture->invalidated = true;
    return Status(CUDA_ERROR_STREAM_CAPTURE_MERGE, "the wait would merge two captures");
  }
  if (stream.capture == nullptr) {
    std::shared_ptr<Stream> shared = driver_->streams.find(stream.handle);
    if (shared == nullptr) shared = per_thread_stream(stream.context);
    join_locked(stream, capture, shared);
  }
  for (const auto& node : event.capture_nodes) {
    if (std::find(stream.capture_dependencies.begin(), stream.capture_dependencies.end(), node) ==
        stream.capture_dependencies.end()) {
      stream.capture_dependencies.push_back(node);
    }
  }
  return Status();
}

Status Captures::refuse(Stream& stream) {
  if (!stream.capturing.load(std::memory_order_acquire)) return Status();
  invalidate(stream);
  return Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is being captured");
}

Status Captures::refuse(Event& event) {
  const MutexLock lock(mutex_);
  if (event.capture == nullptr) return Status();
  event.capture->invalidated = true;
  return Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the event is of a capture");
}

bool Captures::has(const Event& event) {
  const MutexLock lock(mutex_);
  return event.capture != nullptr;
}

void Captures::forget(Event& event) {
  const MutexLock lock(mutex_);
  event.capture.reset();
  event.capture_nodes.clear();
}

Status Captures::check_not_captured(Event& event, bool spoil) {
  const MutexLock lock(mutex_);
  if (event.capture == nullptr) return Status();
  if (event.capture->ended || event.capture->invalidated) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the event's capture is over");
  }
  if (spoil) event.capture->invalidated = true;
  return Status(CUDA_ERROR_CAPTURED_EVENT, "the event was last recorded in a captured stream");
}

void Captures::invalidate(Stream& stream) {
  const MutexLock lock(mutex_);
  if (stream.capture != nullptr) stream.capture->invalidated = true;
}

void Captures::end_all(const ExecutionContext& execution) {
  if (active_count_ == 0) return;
  const MutexLock lock(mutex_);
  auto captures = active_;
  for (const auto& capture : captures) {
    if (capture->execution.get() != &execution) continue;
    capture->invalidated = true;
    finish_locked(capture);
  }
}

Status Captures::check_unsafe_call() {
  if (active_count_.load(std::memory_order_relaxed) == 0) return Status();
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return Status();
  const MutexLock lock(mutex_);
  bool forbidden = false;
  for (const auto& capture : active_) {
    bool mine = capture->thread == std::this_thread::get_id() &&
                capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    bool global = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                  capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!mine && !global) continue;
    capture->invalidated = true;
    forbidden = true;
  }
  return forbidden ? Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                            "the call is not permitted while a stream is captured")
                   : Status();
}

Status Captures::check_legacy_use(const ExecutionContext& execution, bool asked) {
  if (active_count_.load(std::memory_order_relaxed) == 0) return Status();
  const MutexLock lock(mutex_);
  bool forbidden = false;
  for (const auto& capture : active_) {
    if (capture->execution.get() != &execution) continue;
    for (const auto& weak : capture->streams) {
      std::shared_ptr<Stream> stream = weak.lock();
      if (stream == nullptr || stream->capture != capture || !stream->queue->blocking) continue;
      if (!asked) capture->invalidated = true;
      forbidden = true;
    }
  }
  return forbidden ? Status(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                            "the legacy stream would wait for a captured stream")
                   : Status();
}

Status Captures::check_context_use(const ExecutionContext& execution) {
  if (active_count_.load(std::memory_order_relaxed) == 0) return Status();
  const MutexLock lock(mutex_);
  bool forbidden = false;
  for (const auto& capture : active_) {
    if (capture->execution.get() != &execution) continue;
    capture->invalidated = true;
    forbidden = true;
  }
  return forbidden ? Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                            "a stream of the context is being captured")
                   : Status();
}

}  // namespace openmps::softgpu
