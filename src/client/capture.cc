// SPDX-License-Identifier: Apache-2.0
// The list of open captures. There are few at a time; everything is a linear search under a lock,
// which is taken inside of session.graph_lock where both are needed.
#include "client/capture.h"

#include <algorithm>
#include <utility>

#include "client/session.h"

namespace openmps::client {
namespace {

bool contains(const Captures::Edges& edges, const GraphNode* node) {
  return std::any_of(edges.begin(), edges.end(),
                     [node](const GraphEdge& edge) { return edge.node == node; });
}

}  // namespace

uint32_t Captures::open(Capture capture, Edges edges) {
  std::lock_guard guard(lock_);
  Open open;
  static_cast<Capture&>(open) = capture;
  open.number = next_number_++;
  open.streams[capture.origin] = std::move(edges);
  captures_.push_back(std::move(open));
  open_count_.store(static_cast<uint32_t>(captures_.size()), std::memory_order_release);
  return captures_.back().number;
}

void Captures::close(Session& session, uint32_t number) {
  {
    std::lock_guard guard(lock_);
    std::erase_if(captures_, [number](const Open& c) { return c.number == number; });
    open_count_.store(static_cast<uint32_t>(captures_.size()), std::memory_order_release);
  }
  session.streams.for_each([number](Stream& stream) {
    uint32_t expected = number;
    stream.capture.compare_exchange_strong(expected, 0);
  });
}

Captures::Open* Captures::find_locked(uint32_t number) {
  for (Open& open : captures_) {
    if (open.number == number) return &open;
  }
  return nullptr;
}

bool Captures::find(uint32_t number, Capture* capture) {
  std::lock_guard guard(lock_);
  const Open* open = find_locked(number);
  if (open == nullptr) return false;
  *capture = static_cast<const Capture&>(*open);
  return true;
}

void Captures::invalidate(uint32_t number) {
  std::lock_guard guard(lock_);
  Open* open = find_locked(number);
  if (open != nullptr) open->invalidated = true;
}

Captures::Edges Captures::dependencies(uint32_t number, const Stream* stream) {
  std::lock_guard guard(lock_);
  Open* open = find_locked(number);
  return open == nullptr ? Edges() : open->streams[stream];
}

void Captures::set_dependencies(uint32_t number, const Stream* stream, Edges edges) {
  std::lock_guard guard(lock_);
  Open* open = find_locked(number);
  if (open != nullptr) open->streams[stream] = std::move(edges);
}

void Captures::record(uint32_t number, const Stream* stream, const Event* event) {
  std::lock_guard guard(lock_);
  Open* open = find_locked(number);
  if (open != nullptr) open->events[event] = open->streams[stream];
}

void Captures::wait(uint32_t number, const Stream* stream, const Event* event) {
  std::lock_guard guard(lock_);
  Open* open = find_locked(number);
  if (open == nullptr) return;
  Edges& edges = open->streams[stream];
  for (const GraphEdge& edge : open->events[event]) {
    if (!contains(edges, edge.node)) edges.push_back(edge);
  }
}

bool Captures::all_joined(uint32_t number) {
  std::lock_guard guard(lock_);
  Open* open = find_locked(number);
  if (open == nullptr) return true;
  const Edges& origin = open->streams[open->origin];
  for (const auto& [stream, edges] : open->streams) {
    for (const GraphEdge& edge : edges) {
      if (edge.node->dependents.empty() && !contains(origin, edge.node)) return false;
    }
  }
  return true;
}

void Captures::forget(const GraphNode* node) {
  if (!any()) return;
  std::lock_guard guard(lock_);
  const auto erase = [node](Edges& edges) {
    std::erase_if(edges, [node](const GraphEdge& edge) { return edge.node == node; });
  };
  for (Open& open : captures_) {
    for (auto& [stream, edges] : open.streams) erase(edges);
    for (auto& [event, edges] : open.events) erase(edges);
  }
}

CUresult Captures::check_unsafe_call(const void* thread, CUstreamCaptureMode thread_mode) {
  if (!any() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::lock_guard guard(lock_);
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

CUresult Captures::check_legacy_stream(const Stream& legacy) {
  if (!any()) return CUDA_SUCCESS;
  std::lock_guard guard(lock_);
  bool forbidden = false;
  for (Open& open : captures_) {
    const bool blocking = open.origin->kind == wire::StreamKind::kBlocking;
    if (!blocking || open.origin->context != legacy.context) continue;
    open.invalidated = true;
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult capture_work(Session& session, Stream& stream, CUgraphNodeType type, Work work,
                      bool programmatic) {
  const uint32_t number = stream.capture.load(std::memory_order_relaxed);
  const std::lock_guard guard(session.graph_lock);
  Capture capture;
  if (!session.captures.find(number, &capture) || capture.invalidated) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  Captures::Edges edges = session.captures.dependencies(number, &stream);
  for (GraphEdge& edge : edges) {
    if (!programmatic || edge.node->type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    edge.data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    edge.data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
  GraphNode* node = nullptr;
  const CUresult result =
      add_node_locked(session, *capture.graph, type, std::move(work), edges, &node);
  if (result == CUDA_SUCCESS) session.captures.set_dependencies(number, &stream, {{node, {}}});
  return result;
}

}  // namespace openmps::client
