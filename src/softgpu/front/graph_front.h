// SPDX-License-Identifier: Apache-2.0
// What the entry points of graphs share: look-ups of graphs, nodes and executable graphs, and the
// way from node parameters to work. Any thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "cuda/versions.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/graphs/graph.h"
#include "softgpu/device/graphs/graph_exec.h"
#include "softgpu/device/memory/graph_memory.h"
#include "softgpu/device/work/copy_plan.h"
#include "softgpu/device/work/event.h"
#include "softgpu/device/work/launch.h"
#include "softgpu/device/work/module.h"
#include "softgpu/front/front.h"

namespace openmps::softgpu {

// ---- Look-ups ---------------------------------------------------------------------------------

template <typename Body>
CUresult with_graph(CUgraph handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Graph> graph = driver.graphs.find(handle);
    if (graph == nullptr) return invalid_value("not a graph");
    return body(driver, *graph);
  });
}

// body(Driver&, GraphNode&) with graph_mutex held.
template <typename Body>
CUresult with_node(CUgraphNode handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<GraphNode> node = driver.graph_nodes.find(handle);
    const MutexLock lock(graph_mutex);
    if (node == nullptr || node->graph == nullptr) return invalid_value("not a graph node");
    return body(driver, *node);
  });
}

// body(const W&) stores in `out` what it is about the work of a node, if that is a W.
template <typename W, typename Body>
CUresult ask_node(CUgraphNode handle, const void* out, Body&& body) {
  return with_node(handle, [&](Driver&, GraphNode& node) -> Status {
    const auto* work = std::get_if<W>(&node.work);
    if (out == nullptr || work == nullptr) return invalid_value("not a node of that type");
    body(*work);
    return Status();
  });
}

template <typename Body>
CUresult with_exec(CUgraphExec handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<GraphExec> exec = driver.graph_execs.find(handle);
    if (exec == nullptr) return invalid_value("not an executable graph");
    return body(driver, *exec);
  });
}

// Edges from the nodes behind handles; all of `graph`. They live as long as their graph. `data` may
// be null: plain edges.
inline Status find_edges(Driver& driver, const Graph& graph, const CUgraphNode* handles,
                         const CUgraphEdgeData* data, size_t count, std::vector<GraphEdge>* edges) {
  if (count > 0 && handles == nullptr) return invalid_value("no nodes");
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<GraphNode> node = driver.graph_nodes.find(handles[i]);
    if (node == nullptr || node->graph != &graph) return invalid_value("not a node of the graph");
    edges->push_back({node.get(), data == nullptr ? CUgraphEdgeData{} : data[i]});
  }
  return Status();
}

// Edges to a node that is about to be made, which depends on no other node twice.
inline Status find_dependencies(Driver& driver, const Graph& graph, const CUgraphNode* handles,
                                size_t count, std::vector<GraphEdge>* edges) {
  OPENMPS_RETURN_IF_ERROR(find_edges(driver, graph, handles, nullptr, count, edges));
  std::unordered_set<const GraphNode*> seen;
  for (const GraphEdge& edge : *edges) {
    if (!seen.insert(edge.node).second) return invalid_value("a node that is named twice");
  }
  return Status();
}

// CUDA's way to return a list: its length only, or as many elements as the caller's array holds.
template <typename List>
Status deliver_nodes(const List& nodes, CUgraphNode* out, size_t* count) {
  if (count == nullptr) return no_result();
  if (out == nullptr) {
    *count = nodes.size();
    return Status();
  }
  size_t capacity = *count;
  for (size_t i = 0; i < capacity; ++i) out[i] = i < nodes.size() ? nodes[i]->handle : nullptr;
  *count = std::min(capacity, nodes.size());
  return Status();
}

// Returns edges in that way, as the nodes at one end of each.
inline Status deliver_edges(const std::vector<GraphEdge>& edges, CUgraphNode* out,
                            CUgraphEdgeData* data, size_t* count) {
  if (count == nullptr) return no_result();
  const bool plain = std::all_of(edges.begin(), edges.end(),
                                 [](const GraphEdge& edge) { return cuda::is_plain(edge.data); });
  if (out != nullptr && data == nullptr && !plain) {
    return Status(CUDA_ERROR_LOSSY_QUERY, "the kinds of edges would be lost");
  }
  std::vector<GraphNode*> nodes;
  for (const GraphEdge& edge : edges) nodes.push_back(edge.node);
  for (size_t i = 0; data != nullptr && i < std::min(*count, edges.size()); ++i) {
    data[i] = edges[i].data;
  }
  return deliver_nodes(nodes, out, count);
}

// ---- Node parameters to work ------------------------------------------------------------------

// A null context means the current one.
inline Result<std::shared_ptr<Context>> node_context(Driver& driver, CUcontext handle) {
  Result<std::shared_ptr<Context>> context = context_or_current(driver, handle);
  if (context.ok() && (*context)->execution() == nullptr) {
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is not active");
  }
  return context;
}

// As measured on an H200, where a function is named it runs in the context that is current, and
// p.ctx counts for nothing; where a kernel of a library is, in p.ctx.
inline Placement placement_of(Driver& driver, const CUDA_KERNEL_NODE_PARAMS& p,
                              const std::shared_ptr<Context>& context, const Function& function) {
  const auto where = p.func != nullptr ? context_stack::current() : context;
  const bool of_function = where != nullptr && where->execution() == function.module->execution;
  return of_function ? placement_of(*where) : Placement{all_sms(driver.config)};
}

inline Result<LaunchWork> kernel_work(Driver& driver, const CUDA_KERNEL_NODE_PARAMS& p) {
  Result<std::shared_ptr<Context>> context = node_context(driver, p.ctx);
  if (!context.ok()) return context.status();
  CUfunction handle = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  Result<std::shared_ptr<Function>> function = resolve_function(*context, handle);
  if (!function.ok()) return function.status();
  LaunchShape shape{{p.gridDimX, p.gridDimY, p.gridDimZ},
                    {p.blockDimX, p.blockDimY, p.blockDimZ},
                    p.sharedMemBytes};
  return make_launch(driver.config, *function, shape, false,
                     placement_of(driver, p, *context, **function), p.kernelParams, p.extra);
}

inline Result<CopyWork> copy_work(Driver& driver, const CUDA_MEMCPY3D& parameters) {
  CopyShape shape;
  CopySide source;
  CopySide destination;
  OPENMPS_RETURN_IF_ERROR(read_copy_parameters(driver, parameters, &shape, &source, &destination));
  if (shape.empty()) return invalid_value("a node that copies nothing");
  Result<CopyPlan> plan = plan_copy(driver.address_space, shape, source, destination);
  if (!plan.ok()) return plan.status();
  return std::move(plan->work);
}

inline FillShape fill_shape(const CUDA_MEMSET_NODE_PARAMS& parameters) {
  FillShape shape;
  shape.destination = parameters.dst;
  shape.value = parameters.value;
  shape.element = parameters.elementSize;
  shape.width = parameters.width;
  shape.height = parameters.height;
  shape.pitch = parameters.pitch;
  return shape;
}

inline Result<FillWork> fill_work(Driver& driver, const CUDA_MEMSET_NODE_PARAMS& parameters) {
  const FillShape shape = fill_shape(parameters);
  if (shape.element != 1 && shape.element != 2 && shape.element != 4) {
    return invalid_value("an element has 1, 2 or 4 bytes");
  }
  if (shape.empty()) return invalid_value("a node that fills nothing");
  return plan_fill(driver.address_space, shape);
}

inline Result<MarkerWork> prepare_nothing() {
  Driver* driver = nullptr;
  OPENMPS_RETURN_IF_ERROR(check_entry(&driver));
  return MarkerWork{};
}

inline Result<WordsWork> prepare(const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  if (params == nullptr) return invalid_value("no parameters");
  Driver* driver = nullptr;
  OPENMPS_RETURN_IF_ERROR(check_entry(&driver));
  if (params->ctx == nullptr) return invalid_value("no context");
  return words_work(params->paramArray, params->count, params->flags);
}

// RecordWork or WaitWork.
template <typename W>
Result<W> prepare_event(CUevent handle) {
  Driver* driver = nullptr;
  OPENMPS_RETURN_IF_ERROR(check_entry(&driver));
  std::shared_ptr<Event> event = driver->events.find(handle);
  if (handle == nullptr) return invalid_value("no event");
  if (event == nullptr) return invalid_handle("not an event");
  return W{std::move(event)};
}
inline Result<RecordWork> prepare(const CUDA_EVENT_RECORD_NODE_PARAMS* params) {
  return prepare_event<RecordWork>(params->event);
}
inline Result<WaitWork> prepare(const CUDA_EVENT_WAIT_NODE_PARAMS* params) {
  return prepare_event<WaitWork>(params->event);
}

inline Result<HostWork> host_work(const CUDA_HOST_NODE_PARAMS& parameters) {
  if (parameters.fn == nullptr) return invalid_value("no function");
  HostWork work;
  work.function = parameters.fn;
  work.user_data = parameters.userData;
  return work;
}

// The address goes to `params`, too. The program's array of accesses is not kept: all memory can be
// reached from every device.
inline Result<AllocationWork> allocation_work(Context& context,
                                              CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  Result<GraphBlockPtr> block = context.driver().graph_memory.allocate(context, params->bytesize);
  if (!block.ok()) return block.status();
  params->dptr = (*block)->address;
  AllocationWork work{*params, std::move(*block)};
  work.parameters.accessDescs = nullptr;
  work.parameters.accessDescCount = 0;
  return work;
}

// ---- Adding and changing nodes ----------------------------------------------------------------

// What Get*Params of a node returns is in its work, but for copies.
inline void remember_nothing(GraphNode&) {}
template <typename Parameters>
void remember(GraphNode&, const Parameters&) {}
inline void remember(GraphNode& node, const CUDA_MEMCPY3D& parameters) {
  node.copy_parameters = parameters;
}

template <typename W, typename Remember = void (*)(GraphNode&)>
CUresult add_work(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                  Result<W> work, Remember&& remember = remember_nothing) {
  if (!work.ok()) return report(work.status());
  return with_graph(graph, [&](Driver& driver, Graph& object) -> Status {
    if (out == nullptr) return no_result();
    const MutexLock lock(graph_mutex);
    std::vector<GraphEdge> before;
    OPENMPS_RETURN_IF_ERROR(find_dependencies(driver, object, dependencies, count, &before));
    if constexpr (std::is_same_v<W, GraphFreeWork> || std::is_same_v<W, AllocationWork>) {
      if (object.moved) return Status(CUDA_ERROR_NOT_SUPPORTED, "memory nodes in a moved graph");
    }
    if constexpr (std::is_same_v<W, GraphFreeWork>) {
      OPENMPS_RETURN_IF_ERROR(check_free_locked(driver, object, work->address));
    }
    std::shared_ptr<GraphNode> node = add_node_locked(driver, object, std::move(*work), before);
    remember(*node);
    *out = node->handle;
    return Status();
  });
}

// The driver and the work of a node's parameters, before any graph is looked at.
template <typename W, typename Make>
Result<W> with_entry(Make&& make) {
  Driver* driver = nullptr;
  OPENMPS_RETURN_IF_ERROR(check_entry(&driver));
  return make(*driver);
}

// Of work that parameters describe in part.
template <typename W>
Status keep_rest(const Driver& driver, const Work& before, W& after) {
  if constexpr (std::is_same_v<W, LaunchWork>) {
    return keep_settings(driver.config, std::get<LaunchWork>(before), after);
  } else {
    return Status();
  }
}

template <typename W, typename Remember = void (*)(GraphNode&)>
CUresult set_work(CUgraphNode handle, Result<W> work, Remember&& remember = remember_nothing) {
  if (!work.ok()) return report(work.status());
  return with_node(handle, [&](Driver& driver, GraphNode& node) -> Status {
    if (!std::holds_alternative<W>(node.work)) return invalid_value("the node is of another type");
    OPENMPS_RETURN_IF_ERROR(keep_rest(driver, node.work, *work));
    node.work = std::move(*work);
    remember(node);
    return Status();
  });
}

// CUDA keeps arrays, memory of the device and of the host apart when an executable graph changes.
inline bool same_kinds_of_memory(const CopyWork& one, const CopyWork& other) {
  const auto arrays = [](const CopyWork& work) {
    const CUDA_MEMCPY3D* named = work.shape.named.get();
    return std::pair(named != nullptr && named->srcMemoryType == CU_MEMORYTYPE_ARRAY,
                     named != nullptr && named->dstMemoryType == CU_MEMORYTYPE_ARRAY);
  };
  return arrays(one) == arrays(other) && one.from_device == other.from_device &&
         one.to_device == other.to_device;
}

template <typename W>
CUresult set_exec_work(CUgraphExec exec, CUgraphNode handle, Result<W> work) {
  if (!work.ok()) return report(work.status());
  return with_exec(exec, [&](Driver& driver, GraphExec& object) -> Status {
    const MutexLock lock(object.mutex);
    GraphStep* step = find_step(object.steps, handle);
    if (step == nullptr) return invalid_value("not a node of the executable graph");
    if (!std::holds_alternative<W>(step->work)) return invalid_value("the node is of another type");
    if constexpr (std::is_same_v<W, CopyWork>) {
      if (!same_kinds_of_memory(std::get<CopyWork>(step->work), *work)) {
        return invalid_value("memory can't become another kind of memory");
      }
    }
    if (!same_context(step->work, *work)) return invalid_value("a kernel of another context");
    // Like copies (cuGraphExecMemcpyNodeSetParams).
    if constexpr (std::is_same_v<W, FillWork>) {
      if (work->shape.height > 1) return invalid_value("only fills of one dimension change");
    }
    OPENMPS_RETURN_IF_ERROR(keep_rest(driver, step->work, *work));
    step->work = std::move(*work);
    set_device_nodes({*step});
    object.uploaded = false;
    return Status();
  });
}

inline Result<LaunchWork> prepare(const CUDA_KERNEL_NODE_PARAMS* params) {
  if (params == nullptr) return invalid_value("no parameters");
  return with_entry<LaunchWork>([&](Driver& driver) { return kernel_work(driver, *params); });
}

inline Result<CopyWork> prepare(const CUDA_MEMCPY3D* params) {
  if (params == nullptr) return invalid_value("no parameters");
  return with_entry<CopyWork>([&](Driver& driver) { return copy_work(driver, *params); });
}

inline Result<FillWork> prepare(const CUDA_MEMSET_NODE_PARAMS* params) {
  if (params == nullptr) return invalid_value("no parameters");
  return with_entry<FillWork>([&](Driver& driver) { return fill_work(driver, *params); });
}

inline Result<HostWork> prepare(const CUDA_HOST_NODE_PARAMS* params) {
  if (params == nullptr) return invalid_value("no parameters");
  return host_work(*params);
}

// Memory of the device that the parameters name.
inline Result<AllocationWork> prepare(CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  if (params == nullptr || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return invalid_value("an allocation node has memory of a device");
  }
  if (params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "memory of graphs can't be exported");
  }
  return with_entry<AllocationWork>([&](Driver& driver) -> Result<AllocationWork> {
    const Device* device = driver.device(params->poolProps.location.id);
    if (device == nullptr) return invalid_value("no such device");
    Result<std::shared_ptr<Context>> context = node_context(driver, device->primary->handle());
    if (!context.ok()) return context.status();
    return allocation_work(**context, params);
  });
}

inline Result<GraphFreeWork> prepare(const CUDA_MEM_FREE_NODE_PARAMS* params) {
  return with_entry<GraphFreeWork>(
      [&](Driver&) -> Result<GraphFreeWork> { return GraphFreeWork{params->dptr}; });
}

inline CUresult instantiate_graph(CUgraphExec* out, CUgraph graph, uint64_t flags) {
  return with_graph(graph, [&](Driver& driver, Graph& object) -> Status {
    constexpr uint64_t kKnown =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (out == nullptr) return no_result();
    Caller caller{driver, nullptr, nullptr};
    OPENMPS_RETURN_IF_ERROR(enter_context(&caller));
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
    if ((flags & ~kKnown) != 0) return invalid_value("unknown flags");
    Result<std::shared_ptr<GraphExec>> made = instantiate(driver, object, flags);
    if (made.ok()) {
      GraphExec& exec = **made;
      const uint32_t branches = [&] {
        const MutexLock lock(exec.mutex);
        return branches_of(exec.steps);
      }();
      exec.lots = take_stream_lots(*caller.context, branches);
    }
    return deliver_handle(std::move(made), out);
  });
}

}  // namespace openmps::softgpu
