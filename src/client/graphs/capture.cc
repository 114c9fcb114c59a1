// SPDX-License-Identifier: Apache-2.0
// The list of open captures. There are few at a time; everything is a linear search under a lock,
// which is taken inside of Graphs::lock where both are needed.
#include "client/graphs/capture.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "client/check.h"
#include "client/objects.h"

namespace openmps::client {
namespace {

bool contains(const Captures::Edges& edges, const GraphNode* node) {
  return std::any_of(edges.begin(), edges.end(),
                     [node](const GraphEdge& edge) { return edge.node == node; });
}

}  // namespace

uint32_t Captures::open(Capture capture, Edges edges) {
  const MutexLock guard(lock_);
  Open open;
  static_cast<Capture&>(open) = capture;
  open.number = next_number_++;
  open.streams[capture.origin] = std::move(edges);
  captures_.push_back(std::move(open));
  open_count_.store(static_cast<uint32_t>(captures_.size()), std::memory_order_release);
  return captures_.back().number;
}

void Captures::close(uint32_t number) {
  const MutexLock guard(lock_);
  const Open* open = find_locked(number);
  if (open == nullptr) return;
  for (const auto& [stream, edges] : open->streams) {
    uint32_t expected = number;
    stream->capture.compare_exchange_strong(expected, 0);
  }
  std::erase_if(captures_, [number](const Open& c) { return c.number == number; });
  open_count_.store(static_cast<uint32_t>(captures_.size()), std::memory_order_release);
}

void Captures::leave(Stream& stream) {
  const uint32_t number = stream.capture.load(std::memory_order_relaxed);
  Capture capture;
  if (!find(number, &capture)) return;
  const MutexLock graphs_guard(graphs_.lock);
  if (capture.origin == &stream) {
    close(number);
    if (!capture.into_existing && capture.graph != nullptr) graphs_.destroy_locked(capture.graph);
    return;
  }
  const MutexLock guard(lock_);
  Open* open = find_locked(number);
  if (open == nullptr) return;
  const auto found = open->streams.find(&stream);
  if (found == open->streams.end()) return;
  open->left.insert(open->left.end(), found->second.begin(), found->second.end());
  open->streams.erase(found);
}

Captures::Open* Captures::find_locked(uint32_t number) {
  for (Open& open : captures_) {
    if (open.number == number) return &open;
  }
  return nullptr;
}

bool Captures::find(uint32_t number, Capture* capture) {
  if (number == 0) return false;  // every stream that ends asks
  const MutexLock guard(lock_);
  const Open* open = find_locked(number);
  if (open == nullptr) return false;
  *capture = static_cast<const Capture&>(*open);
  return true;
}

void Captures::invalidate(uint32_t number) {
  const MutexLock guard(lock_);
  Open* open = find_locked(number);
  if (open != nullptr) open->invalidated = true;
}

bool Captures::is_target(const Graph* graph) {
  const MutexLock guard(lock_);
  return std::any_of(captures_.begin(), captures_.end(),
                     [graph](const Open& open) { return open.graph == graph; });
}

Captures::Edges Captures::dependencies(uint32_t number, Stream* stream) {
  const MutexLock guard(lock_);
  Open* open = find_locked(number);
  return open == nullptr ? Edges() : open->streams[stream];
}

void Captures::set_dependencies(uint32_t number, Stream* stream, Edges edges) {
  const MutexLock guard(lock_);
  Open* open = find_locked(number);
  if (open != nullptr) open->streams[stream] = std::move(edges);
}

CUresult Captures::record(uint32_t number, Stream* stream, const Event* event) {
  const MutexLock guard(lock_);
  Open* open = find_locked(number);
  if (open == nullptr || open->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  open->events[event] = open->streams[stream];
  return CUDA_SUCCESS;
}

void Captures::depend(uint32_t number, Stream* stream, const Event* event) {
  const MutexLock guard(lock_);
  Open* open = find_locked(number);
  if (open == nullptr) return;
  Edges& edges = open->streams[stream];
  for (const GraphEdge& edge : open->events[event]) {
    if (!contains(edges, edge.node)) edges.push_back(edge);
  }
}

bool Captures::all_joined(uint32_t number) {
  const MutexLock guard(lock_);
  Open* open = find_locked(number);
  if (open == nullptr) return true;
  const Edges& origin = open->streams[open->origin];
  const auto joined = [&origin](const GraphEdge& edge) {
    return !edge.node->dependents.empty() || contains(origin, edge.node);
  };
  if (!std::all_of(open->left.begin(), open->left.end(), joined)) return false;
  return std::all_of(open->streams.begin(), open->streams.end(), [&](const auto& entry) {
    return std::all_of(entry.second.begin(), entry.second.end(), joined);
  });
}

void Captures::forget(const GraphNode* node) {
  if (!any()) return;
  const MutexLock guard(lock_);
  const auto erase = [node](Edges& edges) {
    std::erase_if(edges, [node](const GraphEdge& edge) { return edge.node == node; });
  };
  for (Open& open : captures_) {
    for (auto& [stream, edges] : open.streams) erase(edges);
    for (auto& [event, edges] : open.events) erase(edges);
    erase(open.left);
  }
}

void Captures::forget(const Graph* graph) {
  if (!any()) return;
  const MutexLock guard(lock_);
  for (Open& open : captures_) {
    if (open.graph != graph) continue;
    open.graph = nullptr;
    open.invalidated = true;
  }
}

CUresult Captures::check_unsafe_call(const void* thread, CUstreamCaptureMode thread_mode) {
  if (!any() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const MutexLock guard(lock_);
  bool forbidden = false;
  for (Open& open : captures_) {
    const bool ours = open.thread == thread && open.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global =
        thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && open.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!ours && !global) continue;
    open.invalidated = true;
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

template <typename Concerned>
bool Captures::concern(Concerned&& concerned, bool spoil) {
  const MutexLock guard(lock_);
  bool any = false;
  for (Open& open : captures_) {
    const bool one = std::any_of(open.streams.begin(), open.streams.end(),
                                 [&](const auto& entry) { return concerned(*entry.first); });
    if (one && spoil) open.invalidated = true;
    any = any || one;
  }
  return any;
}

CUresult Captures::check_legacy_stream(const Stream& legacy, bool asked) {
  const auto concerned = [&legacy](const Stream& stream) {
    return stream.kind == wire::StreamKind::kBlocking && stream.context == legacy.context;
  };
  return concern(concerned, !asked) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult Captures::refuse(const Stream& stream) {
  const uint32_t number = stream.capture.load(std::memory_order_relaxed);
  if (number == 0) [[likely]] {
    return CUDA_SUCCESS;
  }
  invalidate(number);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult Captures::refuse(const Context& context) {
  if (!any()) [[likely]] {
    return CUDA_SUCCESS;
  }
  const auto concerned = [&context](const Stream& stream) {
    return context.includes(stream.context);
  };
  return concern(concerned, true) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult Captures::wait(Stream& stream, const Event& event) {
  const uint32_t own = stream.capture.load(std::memory_order_relaxed);
  const uint32_t joined = event.capture.load(std::memory_order_acquire);
  Capture capture;
  if (own != 0 && (!find(own, &capture) || capture.invalidated)) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (joined == 0) {  // the stream captures
    const bool recorded = event.shared || event.recorded.load(std::memory_order_acquire) != 0;
    if (!recorded) return CUDA_SUCCESS;
    invalidate(own);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (!find(joined, &capture) || capture.invalidated) {
    invalidate(own);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream.kind == wire::StreamKind::kLegacy) {
    invalidate(joined);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (own != 0 && own != joined) {
    invalidate(own);
    invalidate(joined);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  const MutexLock guard(graphs_.lock);
  stream.capture.store(joined, std::memory_order_relaxed);
  depend(joined, &stream, &event);
  return CUDA_SUCCESS;
}

CUresult Captures::add(Stream& stream, Work work) {
  const uint32_t number = stream.capture.load(std::memory_order_relaxed);
  const MutexLock guard(graphs_.lock);
  Capture capture;
  if (!find(number, &capture) || capture.invalidated) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (const auto* free = std::get_if<FreeWork>(&work)) {
    OPENMPS_CUDA_CHECK(graphs_.check_free_locked(*capture.graph, free->address));
  }
  Captures::Edges edges = dependencies(number, &stream);
  const auto* kernel = std::get_if<KernelWork>(&work);
  for (GraphEdge& edge : edges) {
    if (kernel == nullptr || !kernel->programmatic) break;
    if (edge.node->type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    edge.data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    edge.data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
  GraphNode* node = nullptr;
  const CUresult result = graphs_.add_node_locked(*capture.graph, std::move(work), edges, &node);
  if (result == CUDA_SUCCESS) set_dependencies(number, &stream, {{node, {}}});
  return result;
}

}  // namespace openmps::client
