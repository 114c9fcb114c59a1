// SPDX-License-Identifier: Apache-2.0
// See graph_exec.h.
#include "client/session/graph_exec.h"

#include <utility>

#include "base/mutex.h"
#include "client/check.h"
#include "client/session/graph_plan.h"

namespace openmps::client {
namespace {

FencePoint last_launch(const GraphExec& exec) {
  return FencePoint::from_bits(exec.last_launch.load(std::memory_order_acquire));
}

CUgraphNode node_of(const GraphPlan& plan, uint32_t step) {
  return step < plan.steps().size() ? plan.steps()[step].node->as<CUgraphNode>() : nullptr;
}

// Null: the node makes none.
GraphHostCall* host_call_of(const GraphExec& exec, const GraphExec::Place& place) {
  const auto& calls = exec.resources->host_calls;
  const bool has_one = place.host_call.has_value() && *place.host_call < calls.size();
  return has_one ? calls[*place.host_call].get() : nullptr;
}

void take_over(GraphExec& exec, GraphPlan& plan) {
  exec.resources = std::make_shared<GraphResources>(std::move(plan.resources()));
  exec.attention.store(exec.resources->needs_attention(), std::memory_order_release);
}

}  // namespace

CUresult GraphExecs::describe(const GraphExec& exec, const Graph& graph, const GraphPlan& plan) {
  const wire::Id kept = graph.conditions.empty() ? 0 : graph.id;
  OPENMPS_CUDA_CHECK(channel_.push(wire::GraphBegin{exec.id, exec.context->wire_device, kept}));
  for (const GraphPlan::Step& step : plan.steps()) {
    OPENMPS_CUDA_CHECK(channel_.push(wire::GraphNode{.exec = exec.id,
                                                     .kind = step.kind,
                                                     .parent = step.parent,
                                                     .sms = step.sms,
                                                     .green = step.green},
                                     {step.edges, step.body}));
  }
  return CUDA_SUCCESS;
}

// Keeps the resources until the launches that use them have ended.
void GraphExecs::retire_resources(const GraphExec& exec,
                                  std::shared_ptr<GraphResources> resources) {
  if (!resources->needs_attention() && resources->user_objects.empty()) return;
  const FencePoint point = last_launch(exec);
  static_cast<void>(fences_.force(point));
  for (const auto& block : resources->allocations) {
    block->last_use.store(point.bits(), std::memory_order_release);
  }
  // Freed memory waits for the point in DeviceMemory, which can wait for it when memory is short.
  resources->allocations.clear();
  if (fences_.reached(point)) return;
  static_cast<void>(sources_.callbacks.watch(point, std::move(resources)));
}

CUresult GraphExecs::set_body(const GraphExec& exec, const GraphExec::Place& place,
                              const Work& work) {
  wire::GraphNodeKind kind = wire::GraphNodeKind::kEmpty;
  Body body;
  OPENMPS_CUDA_CHECK(make_body(sources_, work, &kind, &body));
  // CUDA does not allow an address in place of an array either.
  if (kind != place.kind) return CUDA_ERROR_INVALID_VALUE;
  if (kind == wire::GraphNodeKind::kEmpty) return CUDA_SUCCESS;
  return channel_.call(wire::GraphSetNode{.exec = exec.id, .node = place.step, .kind = kind},
                       {body});
}

// The callback thread executes the host's half of a pageable copy, so that half is changed when no
// launch of the graph runs.
CUresult GraphExecs::set_pageable_copy(GraphExec& exec, const GraphExec::Place& place,
                                       GraphHostCall& call, const CopyWork& copy) {
  const bool was_from = call.copy.source.place == Place::kPageable;
  if (!is_pageable(copy) || (copy.source.place == Place::kPageable) != was_from) {
    return CUDA_ERROR_INVALID_VALUE;  // CUDA forbids a change to another kind of memory
  }
  OPENMPS_CUDA_CHECK(fences_.wait(last_launch(exec)));
  GraphHostCall fresh(sources_.callbacks, sources_.pinned);
  CopyWork direct;
  OPENMPS_CUDA_CHECK(split_copy(sources_, copy, &fresh, &direct));
  if ((direct.box.width == 0) != (place.step == wire::kNoNode)) return CUDA_ERROR_INVALID_VALUE;
  if (place.step != wire::kNoNode) {
    OPENMPS_CUDA_CHECK(set_body(exec, place, Work(direct)));
  }
  std::swap(call.copy, fresh.copy);
  std::swap(call.block, fresh.block);
  return CUDA_SUCCESS;
}

// The events that the graph records are complete when the launch is.
void GraphExecs::mark_events(const GraphResources& resources, FencePoint point) {
  for (const CUevent handle : resources.recorded_events) {
    Event* event = sources_.events.find(handle);
    if (event == nullptr) continue;
    event->recorded.store(point.bits(), std::memory_order_release);
    event->capture.store(0, std::memory_order_release);
  }
}

CUresult GraphExecs::open_allocations(const GraphExec& exec) {
  const GraphResources& resources = *exec.resources;
  const bool frees_itself = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const auto& block : resources.allocations) {
    // CUDA refuses to launch while allocations of the last launch exist.
    if (!frees_itself && memory_.is_open(block->entry.base)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (const auto& block : resources.allocations) memory_.open(block);
  return CUDA_SUCCESS;
}

// A launch that needs more of this process than its command.
CUresult GraphExecs::launch_attended(GraphExec& exec, Stream& stream) {
  const GraphResources& resources = *exec.resources;
  OPENMPS_CUDA_CHECK(open_allocations(exec));
  if (!resources.host_calls.empty()) sources_.callbacks.before_launch();
  FencePoint point;
  {
    const Channel::Order order = channel_.order();
    OPENMPS_CUDA_CHECK(channel_.push(order, wire::GraphLaunch{exec.id, stream.id}));
    fences_.after_work(order, stream);
    OPENMPS_CUDA_CHECK(fences_.cover(order, stream, &point));
  }
  exec.last_launch.store(point.bits(), std::memory_order_release);
  for (const auto& block : resources.allocations) {
    block->last_use.store(point.bits(), std::memory_order_release);
  }
  for (const CUdeviceptr address : resources.frees) memory_.close(address, point);
  mark_events(resources, point);
  if (resources.host_calls.empty()) return CUDA_SUCCESS;
  return sources_.callbacks.watch(point, nullptr);
}

CUresult GraphExecs::instantiate(Context& context, const Graph& graph, uint64_t flags,
                                 GraphExec** made, CUgraphNode* failed) {
  GraphPlan plan(sources_);
  const CUresult planned = plan.add(graph);
  *failed = plan.failed();
  OPENMPS_CUDA_CHECK(planned);
  return make(made, [&](GraphExec& exec) {
    exec.context = context.owner();
    exec.flags = flags;
    wire::GraphInstantiate::Reply reply{wire::kNoNode, 0};
    CUresult result = describe(exec, graph, plan);
    if (result == CUDA_SUCCESS) {
      result = channel_.call(wire::GraphInstantiate{flags, exec.id}, &reply);
    }
    if (result != CUDA_SUCCESS) {
      *failed = node_of(plan, reply.failed_node);
      return result;
    }
    exec.places = std::move(plan.places());
    take_over(exec, plan);
    return CUDA_SUCCESS;
  });
}

CUresult GraphExecs::update(GraphExec& exec, const Graph& graph,
                            CUgraphExecUpdateResultInfo* info) {
  const GraphExec* instance = find(graph.instance);
  // Another executable graph has the memory. *info is not written (measured on an H200).
  if (has_memory(graph) && instance != nullptr && instance != &exec) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  GraphPlan plan(sources_);
  if (plan.add(graph) != CUDA_SUCCESS) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
    info->errorNode = plan.failed();
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  wire::GraphUpdate::Reply reply{CU_GRAPH_EXEC_UPDATE_ERROR, wire::kNoNode};
  OPENMPS_CUDA_CHECK(describe(exec, graph, plan));
  const CUresult result = channel_.call(wire::GraphUpdate{exec.id}, &reply);
  info->result = static_cast<CUgraphExecUpdateResult>(reply.result);
  info->errorNode = node_of(plan, reply.failed_node);
  if (result != CUDA_SUCCESS) return result;
  // Programs name nodes of the first graph, whose host calls have the same numbers in the new one.
  std::shared_ptr<GraphResources> old = std::move(exec.resources);
  take_over(exec, plan);
  retire_resources(exec, std::move(old));
  return CUDA_SUCCESS;
}

CUresult GraphExecs::destroy(GraphExec* exec) {
  if (!retire(exec)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = channel_.push(wire::GraphExecDestroy{exec->id});
  retire_resources(*exec, std::move(exec->resources));
  exec->places.clear();
  recycle(exec);
  return result;
}

CUresult GraphExecs::set_work(GraphExec& exec, CUgraphNode node, const Work& work) {
  const auto found = exec.places.find(reinterpret_cast<uint64_t>(node));
  if (found == exec.places.end() || found->second.type != type_of(work)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const GraphExec::Place& place = found->second;
  GraphHostCall* const call = host_call_of(exec, place);
  // An H200's driver changes only fills of one dimension, as with copies.
  const auto* fill = std::get_if<FillWork>(&work);
  if (fill != nullptr && fill->parameters.height > 1) return CUDA_ERROR_INVALID_VALUE;
  if (const auto* host = std::get_if<HostWork>(&work)) {
    if (call == nullptr) return CUDA_ERROR_INVALID_VALUE;
    OPENMPS_CUDA_CHECK(fences_.wait(last_launch(exec)));
    sources_.callbacks.set_call(
        call->slot, HostCall{host->parameters.fn, nullptr, nullptr, host->parameters.userData});
    return CUDA_SUCCESS;
  }
  if (const auto* copy = std::get_if<CopyWork>(&work)) {
    if (call != nullptr) return set_pageable_copy(exec, place, *call, *copy);
    if (is_pageable(*copy)) return CUDA_ERROR_INVALID_VALUE;
  }
  if (place.step == wire::kNoNode) return CUDA_ERROR_INVALID_VALUE;
  // An H200's driver does not move a kernel to another context.
  const auto* kernel = std::get_if<KernelWork>(&work);
  if (kernel != nullptr && sources_.contexts.differ(kernel->context, place.context)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  OPENMPS_CUDA_CHECK(set_body(exec, place, work));
  if (const auto* record = std::get_if<RecordWork>(&work)) {
    // The event that the worker records from now on. The old event of the node may remain in the
    // list: it only completes later.
    exec.resources->recorded_events.push_back(record->event);
  }
  return CUDA_SUCCESS;
}

CUresult GraphExecs::set_enabled(GraphExec& exec, CUgraphNode node, bool enabled) {
  const auto found = exec.places.find(reinterpret_cast<uint64_t>(node));
  if (found == exec.places.end()) return CUDA_ERROR_INVALID_VALUE;
  GraphExec::Place& place = found->second;
  if (!can_be_disabled(place)) return CUDA_ERROR_INVALID_VALUE;
  if (place.host_call.has_value()) return CUDA_ERROR_NOT_SUPPORTED;  // the host does a half of it
  OPENMPS_CUDA_CHECK(channel_.call(wire::GraphEnableNode{exec.id, place.step, enabled ? 1u : 0u}));
  place.enabled = enabled;
  return CUDA_SUCCESS;
}

CUresult GraphExecs::launch(GraphExec& exec, Stream& stream, Mutex& lock) {
  output_.graph_launched();
  if (managed_.any()) OPENMPS_CUDA_CHECK(managed_.send(stream));
  if (exec.attention.load(std::memory_order_acquire)) {
    const MutexLock guard(lock);
    return launch_attended(exec, stream);
  }
  const Channel::Order order = channel_.order();
  const CUresult result = channel_.push(order, wire::GraphLaunch{exec.id, stream.id});
  exec.last_launch.store(fences_.after_work(order, stream).bits(), std::memory_order_release);
  return result;
}

}  // namespace openmps::client
