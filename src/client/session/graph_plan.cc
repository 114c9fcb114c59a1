// SPDX-License-Identifier: Apache-2.0
// See graph_plan.h.
#include "client/session/graph_plan.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "client/check.h"
#include "client/context/launch_attributes.h"
#include "client/context/work_check.h"

namespace openmps::client {
namespace {

template <typename T>
void append_bytes(Body* body, const T* data, size_t count) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(data);
  body->insert(body->end(), bytes, bytes + count * sizeof(T));
}

template <typename T>
void append_value(Body* body, const T& value) {
  append_bytes(body, &value, 1);
}

// The kinds of nodes that CUDA allows in bodies of conditional nodes. Copies must not use pageable
// memory.
bool may_be_in_body(const GraphNode& node) {
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: return true;
    case CU_GRAPH_NODE_TYPE_MEMCPY: return !is_pageable(std::get<CopyWork>(node.work));
    default: return false;
  }
}

wire::GraphEdge edge_to(uint32_t step) { return {step, 0, 0, 0, {}}; }

CUresult kernel_body(const GraphSources& sources, const KernelWork& work, Body* body) {
  const Function* function = sources.modules.functions.find(work.function);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (work.parameters.size() < function->parameter_bytes) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchConfig named{};
  named.attrs = const_cast<CUlaunchAttribute*>(work.attributes.data());
  named.numAttrs = static_cast<unsigned int>(work.attributes.size());
  LaunchAttributes attributes;
  OPENMPS_CUDA_CHECK(take_attributes(sources.events, &named, &attributes));
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(sources.contexts.look_up(work.context, &context));
  LaunchConfiguration config{work.shape, {attributes.list, attributes.count}};
  config.flags |= attributes.flags;
  append_value(body,
               launch_command(*function, config, static_cast<uint32_t>(work.parameters.size()),
                              context->wire_device));
  append_bytes(body, attributes.list, attributes.count);
  append_bytes(body, work.parameters.data(), work.parameters.size());
  return CUDA_SUCCESS;
}

CUresult copy_body(const GraphSources& sources, CopyWork copy, wire::GraphNodeKind* kind,
                   Body* body) {
  // An array may have been destroyed since the node was made, and its handle reused.
  const CUDA_MEMCPY3D& named = copy.parameters;
  const auto renew = [&sources](Side* side, CUarray array) {
    if (side->place != Place::kArray) return true;
    side->array = sources.arrays.find(array);
    return side->array != nullptr;
  };
  if (!renew(&copy.destination, named.dstArray) || !renew(&copy.source, named.srcArray)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  OPENMPS_CUDA_CHECK(sources.places.check(copy));
  if (is_of_array(copy)) {
    *kind = wire::GraphNodeKind::kArrayCopy;
    append_value(body, array_command(copy, 0));
  } else {
    *kind = wire::GraphNodeKind::kCopy;
    append_value(body, box_command(copy, 0));
  }
  return CUDA_SUCCESS;
}

CUresult event_body(const GraphSources& sources, CUevent handle, Body* body) {
  const Event* event = sources.events.find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  append_value(body, wire::GraphEvent{event->id});
  return CUDA_SUCCESS;
}

// Flushes and barriers are left out: all of the GPU's writes are ordered without them.
void values_body(const WordsWork& work, Body* body) {
  for (const CUstreamBatchMemOpParams& operation : work.operations) {
    append_value(body, wire_value(operation));
  }
}

}  // namespace

CUresult make_body(const GraphSources& sources, const Work& work, wire::GraphNodeKind* kind,
                   Body* body) {
  switch (type_of(work)) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      *kind = wire::GraphNodeKind::kKernel;
      return kernel_body(sources, std::get<KernelWork>(work), body);
    case CU_GRAPH_NODE_TYPE_MEMCPY: return copy_body(sources, std::get<CopyWork>(work), kind, body);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      *kind = wire::GraphNodeKind::kFill;
      append_value(body, fill_command(std::get<FillWork>(work).parameters, 0));
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      *kind = wire::GraphNodeKind::kEventRecord;
      return event_body(sources, std::get<RecordWork>(work).event, body);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      *kind = wire::GraphNodeKind::kEventWait;
      return event_body(sources, std::get<WaitWork>(work).event, body);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      values_body(std::get<WordsWork>(work), body);
      *kind = body->empty() ? wire::GraphNodeKind::kEmpty : wire::GraphNodeKind::kValues;
      return CUDA_SUCCESS;
    default: *kind = wire::GraphNodeKind::kEmpty; return CUDA_SUCCESS;
  }
}

// ---- Pageable memory ----------------------------------------------------------------------------

void run_graph_copy(void* argument) { copy_in_memory(static_cast<GraphHostCall*>(argument)->copy); }

CUresult split_copy(const GraphSources& sources, const CopyWork& copy, GraphHostCall* call,
                    CopyWork* direct) {
  const Box& box = copy.box;
  call->copy = static_cast<const Copy&>(copy);
  *direct = copy;
  const bool from = copy.source.place == Place::kPageable;
  const bool to = copy.destination.place == Place::kPageable;
  if ((from || copy.source.place == Place::kPinned) &&
      (to || copy.destination.place == Place::kPinned)) {
    direct->box.width = 0;  // the host does all of a copy between host memory
    return CUDA_SUCCESS;
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(box.width, box.height, &bytes) ||
      __builtin_mul_overflow(bytes, box.depth, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  OPENMPS_CUDA_CHECK(sources.pinned.allocate(nullptr, bytes, 0, &call->block));
  const Side block{.address = reinterpret_cast<uint64_t>(call->block),
                   .place = Place::kPinned,
                   .pitch = box.width,
                   .slice = box.width * box.height};
  (from ? call->copy.destination : call->copy.source) = block;
  (from ? direct->source : direct->destination) = block;
  return CUDA_SUCCESS;
}

// ---- The plan -----------------------------------------------------------------------------------

CUresult GraphPlan::add(const Graph& graph) {
  Edges leaves;
  return flatten(graph, {}, &leaves);
}

uint32_t GraphPlan::append(const GraphNode& node, wire::GraphNodeKind kind, Edges edges,
                           Body body) {
  // Only a kernel may begin before the nodes that it depends on have ended.
  if (kind != wire::GraphNodeKind::kKernel) {
    for (wire::GraphEdge& edge : edges) edge = edge_to(edge.node);
  }
  Step step{.kind = kind,
            .parent = parent_,
            .edges = std::move(edges),
            .body = std::move(body),
            .node = &node};
  Context* context = nullptr;
  const auto* kernel = std::get_if<KernelWork>(&node.work);
  if (kernel != nullptr && sources_.contexts.look_up(kernel->context, &context) == CUDA_SUCCESS) {
    step.sms = context->sms;
    step.green = context->green_id();
  }
  steps_.push_back(std::move(step));
  return static_cast<uint32_t>(steps_.size() - 1);
}

// A node with more edges than a command holds gets edges from empty nodes, each of which has a part
// of the edges.
GraphPlan::Edges GraphPlan::narrow(const GraphNode& node, Edges edges) {
  while (edges.size() > wire::kMaxGraphEdges) {
    Edges joined;
    for (size_t first = 0; first < edges.size(); first += wire::kMaxGraphEdges) {
      const size_t last = std::min<size_t>(edges.size(), first + wire::kMaxGraphEdges);
      const auto at = [&edges](size_t i) { return edges.begin() + static_cast<ptrdiff_t>(i); };
      joined.push_back(
          edge_to(append(node, wire::GraphNodeKind::kEmpty, Edges(at(first), at(last)), {})));
    }
    edges = std::move(joined);
  }
  return edges;
}

CUresult GraphPlan::flatten(const Graph& graph, const Edges& before, Edges* leaves) {
  std::copy(graph.user_objects.begin(), graph.user_objects.end(),
            std::back_inserter(resources_.user_objects));
  CUresult result = CUDA_SUCCESS;
  const auto to_edge = [](uint32_t step, const CUgraphEdgeData& data) {
    return wire::GraphEdge{step, data.from_port, data.to_port, data.type, {}};
  };
  const auto visit = [&](const GraphNode& node, Edges edges) -> std::optional<cuda::Steps> {
    uint32_t end = 0;
    result = add_node(node, narrow(node, std::move(edges)), &end);
    if (result == CUDA_SUCCESS) return cuda::Steps{end};
    if (failed_ == nullptr) failed_ = node.as<CUgraphNode>();
    return std::nullopt;
  };
  const std::optional<cuda::Steps> ends = flatten_nodes(graph.nodes, before, to_edge, visit);
  if (ends.has_value()) {
    std::transform(ends->begin(), ends->end(), std::back_inserter(*leaves), edge_to);
  }
  return result;
}

CUresult GraphPlan::add_node(const GraphNode& node, Edges edges, uint32_t* end) {
  GraphPlace& place = places_[node.handle];
  place.type = node.type;
  if (parent_ != 0 && !may_be_in_body(node)) return CUDA_ERROR_NOT_SUPPORTED;
  if (const auto* conditional = std::get_if<ConditionalWork>(&node.work)) {
    return add_conditional(node, *conditional, std::move(edges), end);
  }
  if (const auto* child = std::get_if<ChildWork>(&node.work)) {
    return add_child(node, *child->graph, std::move(edges), end);
  }
  if (const auto* copy = std::get_if<CopyWork>(&node.work); copy != nullptr && is_pageable(*copy)) {
    return add_copy(node, *copy, std::move(edges), end);
  }
  if (const auto* host = std::get_if<HostWork>(&node.work)) {
    auto call = std::make_unique<GraphHostCall>(sources_.callbacks, sources_.pinned);
    const CUDA_HOST_NODE_PARAMS& function = host->parameters;
    OPENMPS_CUDA_CHECK(sources_.callbacks.open_slot(
        HostCall{function.fn, nullptr, nullptr, function.userData}, &call->slot));
    return add_host_call(node, std::move(call), std::move(edges), end);
  }
  if (const auto* record = std::get_if<RecordWork>(&node.work)) {
    resources_.recorded_events.push_back(record->event);
  }
  if (const auto* allocation = std::get_if<AllocationWork>(&node.work)) {
    resources_.allocations.push_back(allocation->block);
  }
  if (const auto* free = std::get_if<FreeWork>(&node.work)) {
    resources_.frees.push_back(free->address);
  }
  if (const auto* kernel = std::get_if<KernelWork>(&node.work)) place.context = kernel->context;
  wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
  Body body;
  OPENMPS_CUDA_CHECK(make_body(sources_, node.work, &kind, &body));
  place.kind = kind;
  *end = place.step = append(node, kind, std::move(edges), std::move(body));
  return CUDA_SUCCESS;
}

CUresult GraphPlan::add_child(const GraphNode& node, const Graph& child, Edges edges,
                              uint32_t* end) {
  // An empty node before the child and one behind it keep the number of edges linear.
  if (edges.size() > 1 && !child.nodes.empty()) {
    edges = {edge_to(append(node, wire::GraphNodeKind::kEmpty, std::move(edges), {}))};
  }
  Edges leaves;
  OPENMPS_CUDA_CHECK(flatten(child, edges, &leaves));
  if (leaves.size() == 1) {
    *end = leaves.front().node;
  } else {
    *end = append(node, wire::GraphNodeKind::kEmpty,
                  narrow(node, leaves.empty() ? std::move(edges) : std::move(leaves)), {});
  }
  return CUDA_SUCCESS;
}

CUresult GraphPlan::add_conditional(const GraphNode& node, const ConditionalWork& conditional,
                                    Edges edges, uint32_t* end) {
  const wire::GraphConditional described{conditional.handle,
                                         static_cast<uint32_t>(conditional.type),
                                         static_cast<uint32_t>(conditional.bodies.size())};
  Body body;
  append_value(&body, described);
  *end = places_[node.handle].step =
      append(node, wire::GraphNodeKind::kConditional, std::move(edges), std::move(body));
  const uint32_t around = parent_;
  uint32_t number = bodies_ + 1;
  bodies_ += described.bodies;
  for (const Graph* inside : conditional.bodies) {
    parent_ = number++;
    Edges leaves;
    OPENMPS_CUDA_CHECK(flatten(*inside, {}, &leaves));
  }
  parent_ = around;
  return CUDA_SUCCESS;
}

CUresult GraphPlan::add_host_call(const GraphNode& node, std::unique_ptr<GraphHostCall> call,
                                  Edges edges, uint32_t* end) {
  Body body;
  append_value(&body, wire::HostFunction{0, call->slot, 0, wire::kNoFence, 0});
  places_[node.handle].host_call = resources_.host_calls.size();
  resources_.host_calls.push_back(std::move(call));
  *end = append(node, wire::GraphNodeKind::kHostCall, std::move(edges), std::move(body));
  return CUDA_SUCCESS;
}

CUresult GraphPlan::add_copy(const GraphNode& node, const CopyWork& copy, Edges edges,
                             uint32_t* end) {
  auto call = std::make_unique<GraphHostCall>(sources_.callbacks, sources_.pinned);
  CopyWork direct;
  OPENMPS_CUDA_CHECK(sources_.callbacks.open_slot(
      HostCall{run_graph_copy, nullptr, nullptr, call.get()}, &call->slot));
  OPENMPS_CUDA_CHECK(split_copy(sources_, copy, call.get(), &direct));
  if (direct.box.width == 0) return add_host_call(node, std::move(call), std::move(edges), end);
  wire::GraphNodeKind kind = wire::GraphNodeKind::kCopy;
  Body body;
  OPENMPS_CUDA_CHECK(copy_body(sources_, direct, &kind, &body));
  GraphPlace& place = places_[node.handle];
  place.kind = kind;
  if (copy.source.place == Place::kPageable) {
    OPENMPS_CUDA_CHECK(add_host_call(node, std::move(call), std::move(edges), end));
    *end = place.step = append(node, kind, {edge_to(*end)}, std::move(body));
    return CUDA_SUCCESS;
  }
  place.step = append(node, kind, std::move(edges), std::move(body));
  return add_host_call(node, std::move(call), {edge_to(place.step)}, end);
}

}  // namespace openmps::client
