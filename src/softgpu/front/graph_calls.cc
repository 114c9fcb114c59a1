// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs. Any thread.
#include <algorithm>
#include <cstring>
#include <vector>

#include "softgpu/device/capture.h"
#include "softgpu/device/copy_plan.h"
#include "softgpu/device/graph.h"
#include "softgpu/device/launch.h"
#include "softgpu/device/module.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: the same

namespace {

Status no_result() { return invalid_value("no place for the result"); }

// ---- Look-ups ---------------------------------------------------------------------------------

template <typename Body>
CUresult with_graph(CUgraph handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Graph> graph = driver.graphs.find(handle);
    if (graph == nullptr) return invalid_value("not a graph");
    return body(driver, *graph);
  });
}

// body(Driver&, GraphNode&) with graph_mutex() held.
template <typename Body>
CUresult with_node(CUgraphNode handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<GraphNode> node = driver.graph_nodes.find(handle);
    std::lock_guard lock(graph_mutex());
    if (node == nullptr || node->graph == nullptr) return invalid_value("not a graph node");
    return body(driver, *node);
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

// The nodes behind handles; all of `graph`. They live as long as their graph.
Status find_nodes(Driver& driver, const Graph& graph, const CUgraphNode* handles, size_t count,
                  std::vector<GraphNode*>* nodes) {
  if (count > 0 && handles == nullptr) return invalid_value("no nodes");
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<GraphNode> node = driver.graph_nodes.find(handles[i]);
    if (node == nullptr || node->graph != &graph) return invalid_value("not a node of the graph");
    nodes->push_back(node.get());
  }
  return Status();
}

// CUDA's way to return a list: count only, or as many as there is room for.
template <typename List>
Status deliver_nodes(const List& nodes, CUgraphNode* out, size_t* count) {
  if (count == nullptr) return no_result();
  if (out == nullptr) {
    *count = nodes.size();
    return Status();
  }
  size_t room = *count;
  for (size_t i = 0; i < room; ++i) out[i] = i < nodes.size() ? nodes[i]->handle : nullptr;
  *count = std::min(room, nodes.size());
  return Status();
}

// ---- Node parameters to work ------------------------------------------------------------------

// A null context stands for the current one.
Result<std::shared_ptr<Context>> node_context(Driver& driver, CUcontext handle) {
  Result<std::shared_ptr<Context>> context = context_or_current(driver, handle);
  if (context.ok() && (*context)->execution() == nullptr)
    return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is not active");
  return context;
}

Result<LaunchWork> kernel_work(Driver& driver, const CUDA_KERNEL_NODE_PARAMS& p) {
  Result<std::shared_ptr<Context>> context = node_context(driver, p.ctx);
  if (!context.ok()) return context.status();
  CUfunction handle = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  Result<std::shared_ptr<Function>> function = resolve_function(*context, handle);
  if (!function.ok()) return function.status();
  LaunchShape shape{{p.gridDimX, p.gridDimY, p.gridDimZ},
                    {p.blockDimX, p.blockDimY, p.blockDimZ},
                    p.sharedMemBytes};
  return make_launch(driver, *function, shape, false, all_sms(driver), p.kernelParams, p.extra);
}

CUDA_KERNEL_NODE_PARAMS widen_kernel(const CUDA_KERNEL_NODE_PARAMS_v1& narrow) {
  CUDA_KERNEL_NODE_PARAMS wide{};
  static_assert(sizeof narrow <= sizeof wide);
  memcpy(&wide, &narrow, sizeof narrow);  // the first version is a prefix of the second
  return wide;
}

Result<CopyWork> copy_work(Driver& driver, const CUDA_MEMCPY3D& parameters) {
  CopyShape shape;
  CopySide source;
  CopySide destination;
  OPENMPS_RETURN_IF_ERROR(
      read_copy_parameters(driver, parameters, &shape, &source, &destination));
  return plan_copy(driver, shape, source, destination);
}

Result<FillWork> fill_work(Driver& driver, const CUDA_MEMSET_NODE_PARAMS& parameters) {
  FillShape shape;
  shape.destination = parameters.dst;
  shape.value = parameters.value;
  shape.element = parameters.elementSize;
  shape.width = parameters.width;
  shape.height = parameters.height;
  shape.pitch = parameters.pitch;
  if (shape.element != 1 && shape.element != 2 && shape.element != 4)
    return invalid_value("an element has 1, 2 or 4 bytes");
  return plan_fill(driver, shape);
}

Result<HostWork> host_work(const CUDA_HOST_NODE_PARAMS& parameters) {
  if (parameters.fn == nullptr) return invalid_value("no function");
  HostWork work;
  work.function = parameters.fn;
  work.user_data = parameters.userData;
  return work;
}

// ---- Adding and changing nodes ----------------------------------------------------------------

// `remember(GraphNode&)` keeps what Get*Params returns.
template <typename W, typename Remember>
CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                  CUgraphNodeType type, Result<W> work, Remember&& remember) {
  if (!work.ok()) return report(work.status());
  return with_graph(graph, [&](Driver& driver, Graph& object) -> Status {
    if (out == nullptr) return no_result();
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> before;
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, object, dependencies, count, &before));
    std::shared_ptr<GraphNode> node =
        add_node_locked(driver, object, type, Work(std::move(*work)), before);
    remember(*node);
    *out = node->handle;
    return Status();
  });
}

// The driver and the work of a node's parameters, before any graph is looked at.
template <typename W, typename Make>
Result<W> prepare(Make&& make) {
  Driver* driver = nullptr;
  OPENMPS_RETURN_IF_ERROR(check_entry(&driver));
  return make(*driver);
}

template <typename W, typename Remember>
CUresult set_node(CUgraphNode handle, CUgraphNodeType type, Result<W> work, Remember&& remember) {
  if (!work.ok()) return report(work.status());
  return with_node(handle, [&](Driver&, GraphNode& node) -> Status {
    if (node.type != type) return invalid_value("the node is of another type");
    node.work = std::move(*work);
    remember(node);
    return Status();
  });
}

template <typename W>
CUresult set_exec_node(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type, Result<W> work) {
  if (!work.ok()) return report(work.status());
  return with_exec(exec, [&](Driver&, GraphExec& object) -> Status {
    std::lock_guard lock(object.mutex);
    for (GraphExec::Step& step : object.steps) {
      if (step.node != handle || handle == nullptr) continue;
      if (step.type != type) return invalid_value("the node is of another type");
      step.work = std::move(*work);
      return Status();
    }
    return invalid_value("not a node of the executable graph");
  });
}

void remember_nothing(GraphNode&) {}

Result<LaunchWork> prepare_kernel(const CUDA_KERNEL_NODE_PARAMS* params) {
  if (params == nullptr) return invalid_value("no parameters");
  return prepare<LaunchWork>([&](Driver& driver) { return kernel_work(driver, *params); });
}

Result<CopyWork> prepare_copy(const CUDA_MEMCPY3D* params) {
  if (params == nullptr) return invalid_value("no parameters");
  return prepare<CopyWork>([&](Driver& driver) { return copy_work(driver, *params); });
}

Result<FillWork> prepare_fill(const CUDA_MEMSET_NODE_PARAMS* params) {
  if (params == nullptr) return invalid_value("no parameters");
  return prepare<FillWork>([&](Driver& driver) { return fill_work(driver, *params); });
}

Result<HostWork> prepare_host(const CUDA_HOST_NODE_PARAMS* params) {
  if (params == nullptr) return invalid_value("no parameters");
  return host_work(*params);
}

CUresult instantiate_graph(CUgraphExec* out, CUgraph graph, uint64_t flags) {
  return with_graph(graph, [&](Driver& driver, Graph& object) -> Status {
    constexpr uint64_t kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (out == nullptr) return no_result();
    if ((flags & ~kKnown) != 0)
      return Status(CUDA_ERROR_NOT_SUPPORTED, "graphs launched by the device do not exist");
    Result<std::shared_ptr<GraphExec>> exec = instantiate(driver, object, flags);
    if (!exec.ok()) return exec.status();
    *out = (*exec)->handle;
    return Status();
  });
}

}  // namespace

// ---- Capture ----------------------------------------------------------------------------------

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_driver([&](Driver&) -> Status {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      return invalid_value("no such capture mode");
    *mode = exchange_thread_mode(*mode);
    return Status();
  });
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return with_context([&](Caller& caller) -> Status {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      return invalid_value("no such capture mode");
    Result<std::shared_ptr<Stream>> stream = caller.stream(hStream);
    if (!stream.ok()) return stream.status();
    return begin_capture(*stream, mode, nullptr, {});
  });
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData*,
                                     size_t numDependencies, CUstreamCaptureMode mode) {
  return with_context([&](Caller& caller) -> Status {
    Result<std::shared_ptr<Stream>> stream = caller.stream(hStream);
    if (!stream.ok()) return stream.status();
    std::shared_ptr<Graph> graph = caller.driver.graphs.find(hGraph);
    if (graph == nullptr) return invalid_value("not a graph");
    std::vector<GraphNode*> nodes;
    OPENMPS_RETURN_IF_ERROR(
        find_nodes(caller.driver, *graph, dependencies, numDependencies, &nodes));
    return begin_capture(*stream, mode, graph, nodes);
  });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (phGraph == nullptr) return no_result();
    return end_capture(stream, phGraph);
  });
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (captureStatus == nullptr) return no_result();
    uint64_t id = 0;
    CUgraph graph = nullptr;
    std::vector<CUgraphNode> nodes;
    if (stream.queue->legacy) OPENMPS_RETURN_IF_ERROR(check_legacy_use(*stream.execution));
    *captureStatus = capture_status(stream, &id, &graph, &nodes);
    return Status();
  });
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  return with_stream(hStream, [&](Caller&, Stream& stream) -> Status {
    if (captureStatus_out == nullptr) return no_result();
    // Valid until this thread's next call, as the interface says.
    static thread_local std::vector<CUgraphNode> nodes;
    static thread_local std::vector<CUgraphEdgeData> edges;
    nodes.clear();
    uint64_t id = 0;
    CUgraph graph = nullptr;
    *captureStatus_out = capture_status(stream, &id, &graph, &nodes);
    if (*captureStatus_out == CU_STREAM_CAPTURE_STATUS_NONE) return Status();
    edges.assign(nodes.size(), CUgraphEdgeData{});
    if (id_out != nullptr) *id_out = id;
    if (graph_out != nullptr) *graph_out = graph;
    if (dependencies_out != nullptr) *dependencies_out = nodes.data();
    if (edgeData_out != nullptr) *edgeData_out = edges.data();
    if (numDependencies_out != nullptr) *numDependencies_out = nodes.size();
    return Status();
  });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                                   nullptr, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, nullptr, nullptr, nullptr,
                                   nullptr);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData*, size_t numDependencies,
                                              unsigned int flags) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return invalid_value("unknown flags");
    uint64_t id = 0;
    CUgraph handle = nullptr;
    std::vector<CUgraphNode> unused;
    if (capture_status(stream, &id, &handle, &unused) == CU_STREAM_CAPTURE_STATUS_NONE)
      return Status(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
    std::shared_ptr<Graph> graph = caller.driver.graphs.find(handle);
    if (graph == nullptr) return invalid_value("the graph was destroyed");
    std::vector<GraphNode*> nodes;
    OPENMPS_RETURN_IF_ERROR(
        find_nodes(caller.driver, *graph, dependencies, numDependencies, &nodes));
    return update_capture_dependencies(stream, nodes, flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  });
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, nullptr, numDependencies,
                                              flags);
}

// ---- Graphs -----------------------------------------------------------------------------------

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (phGraph == nullptr || flags != 0) return invalid_value("a bad argument");
    Result<std::shared_ptr<Graph>> graph = create_graph(driver);
    if (!graph.ok()) return graph.status();
    *phGraph = (*graph)->handle;
    return Status();
  });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return with_driver([&](Driver& driver) { return destroy_graph(driver, hGraph); });
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return with_graph(originalGraph, [&](Driver& driver, Graph& graph) -> Status {
    if (phGraphClone == nullptr) return no_result();
    std::lock_guard lock(graph_mutex());
    std::shared_ptr<Graph> copy = clone_graph_locked(driver, graph);
    copy->handle = driver.graphs.add(copy);
    *phGraphClone = copy->handle;
    return Status();
  });
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) {
    std::lock_guard lock(graph_mutex());
    return deliver_nodes(graph.nodes, nodes, numNodes);
  });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) {
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> roots;
    for (const auto& node : graph.nodes)
      if (node->dependencies.empty()) roots.push_back(node.get());
    return deliver_nodes(roots, rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return with_graph(hGraph, [&](Driver&, Graph& graph) -> Status {
    if (numEdges == nullptr || (from == nullptr) != (to == nullptr)) return no_result();
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> sources;
    std::vector<GraphNode*> targets;
    for (const auto& node : graph.nodes) {
      for (GraphNode* dependency : node->dependencies) {
        sources.push_back(dependency);
        targets.push_back(node.get());
      }
    }
    size_t room = *numEdges;
    OPENMPS_RETURN_IF_ERROR(deliver_nodes(sources, from, numEdges));
    return from == nullptr ? Status() : deliver_nodes(targets, to, &room);
  });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    if (type == nullptr) return no_result();
    *type = node.type;
    return Status();
  });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return with_node(hNode, [&](Driver&, GraphNode& node) {
    return deliver_nodes(node.dependencies, dependencies, numDependencies);
  });
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData*, size_t* numDependencies) {
  return cuGraphNodeGetDependencies(hNode, dependencies, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return with_node(hNode, [&](Driver&, GraphNode& node) {
    return deliver_nodes(node.dependents, dependentNodes, numDependentNodes);
  });
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData*, size_t* numDependentNodes) {
  return cuGraphNodeGetDependentNodes(hNode, dependentNodes, numDependentNodes);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return with_node(hNode, [&](Driver& driver, GraphNode& node) -> Status {
    remove_node_locked(driver, node);
    return Status();
  });
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return with_graph(hGraph, [&](Driver& driver, Graph& graph) -> Status {
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> sources;
    std::vector<GraphNode*> targets;
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, graph, from, numDependencies, &sources));
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, graph, to, numDependencies, &targets));
    for (size_t i = 0; i < numDependencies; ++i)
      OPENMPS_RETURN_IF_ERROR(add_dependency_locked(*sources[i], *targets[i]));
    return Status();
  });
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, size_t numDependencies) {
  return cuGraphAddDependencies(hGraph, from, to, numDependencies);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return with_graph(hGraph, [&](Driver& driver, Graph& graph) -> Status {
    std::lock_guard lock(graph_mutex());
    std::vector<GraphNode*> sources;
    std::vector<GraphNode*> targets;
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, graph, from, numDependencies, &sources));
    OPENMPS_RETURN_IF_ERROR(find_nodes(driver, graph, to, numDependencies, &targets));
    for (size_t i = 0; i < numDependencies; ++i)
      OPENMPS_RETURN_IF_ERROR(remove_dependency_locked(*sources[i], *targets[i]));
    return Status();
  });
}

// ---- Nodes ------------------------------------------------------------------------------------

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL,
                  prepare_kernel(nodeParams), remember_nothing);
}

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide = widen_kernel(*nodeParams);
  return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &wide);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* copyParams, CUcontext) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY,
                  prepare_copy(copyParams),
                  [&](GraphNode& node) { node.copy_parameters = *copyParams; });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET,
                  prepare_fill(memsetParams),
                  [&](GraphNode& node) { node.fill_parameters = *memsetParams; });
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST,
                  prepare_host(nodeParams), remember_nothing);
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY,
                  Result<MarkerWork>(MarkerWork{}), remember_nothing);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  Driver* driver = nullptr;
  Status status = check_entry(&driver);
  if (!status.ok()) return report(status);
  std::shared_ptr<Graph> child = driver->graphs.find(childGraph);
  if (child == nullptr || childGraph == hGraph) return CUDA_ERROR_INVALID_VALUE;
  // Named, because gcc 12 takes a temporary's unused alternative for read.
  const Result<MarkerWork> marker = MarkerWork{};
  return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH,
                  marker,
                  [&](GraphNode& node) { node.child = clone_graph_locked(*driver, *child); });
}

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData*,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS params{};
      static_assert(sizeof params == sizeof nodeParams->kernel);
      memcpy(&params, &nodeParams->kernel, sizeof params);  // same layout, another version's name
      return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &params);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies,
                                  &nodeParams->memcpy.copyParams, nodeParams->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      CUDA_MEMSET_NODE_PARAMS params{};
      memcpy(&params, &nodeParams->memset, sizeof params);
      return cuGraphAddMemsetNode(phGraphNode, hGraph, dependencies, numDependencies, &params,
                                  nodeParams->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      CUDA_HOST_NODE_PARAMS params{nodeParams->host.fn, nodeParams->host.userData};
      return cuGraphAddHostNode(phGraphNode, hGraph, dependencies, numDependencies, &params);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                                      nodeParams->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    auto* work = std::get_if<LaunchWork>(&node.work);
    if (nodeParams == nullptr || work == nullptr) return invalid_value("not a kernel node");
    // Pointers into the node's own copy of the parameters: valid as long as the node.
    const KernelInfo& info = *work->function->info;
    node.kernel_parameter_pointers.clear();
    for (const ParameterInfo& parameter : info.parameters)
      node.kernel_parameter_pointers.push_back(work->parameters.data() + parameter.offset);
    *nodeParams = CUDA_KERNEL_NODE_PARAMS{};
    nodeParams->func = work->function->handle;
    nodeParams->gridDimX = work->grid[0];
    nodeParams->gridDimY = work->grid[1];
    nodeParams->gridDimZ = work->grid[2];
    nodeParams->blockDimX = work->block[0];
    nodeParams->blockDimY = work->block[1];
    nodeParams->blockDimZ = work->block[2];
    nodeParams->sharedMemBytes = work->dynamic_shared_bytes;
    nodeParams->kernelParams = node.kernel_parameter_pointers.data();
    return Status();
  });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide{};
  CUresult result = cuGraphKernelNodeGetParams_v2(hNode, &wide);
  if (result == CUDA_SUCCESS) memcpy(nodeParams, &wide, sizeof *nodeParams);
  return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return set_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, prepare_kernel(nodeParams), remember_nothing);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide = widen_kernel(*nodeParams);
  return cuGraphKernelNodeSetParams_v2(hNode, &wide);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    auto* work = std::get_if<CopyWork>(&node.work);
    if (nodeParams == nullptr || work == nullptr) return invalid_value("not a copy node");
    *nodeParams = node.copy_parameters;
    if (nodeParams->WidthInBytes != 0) return Status();
    // A captured copy: described by addresses.
    nodeParams->srcMemoryType = nodeParams->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    nodeParams->srcDevice = work->shape.source;
    nodeParams->dstDevice = work->shape.destination;
    nodeParams->srcPitch = work->shape.source_pitch;
    nodeParams->dstPitch = work->shape.destination_pitch;
    nodeParams->WidthInBytes = work->shape.width;
    nodeParams->Height = work->shape.height;
    nodeParams->Depth = work->shape.depth;
    return Status();
  });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  return set_node(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, prepare_copy(nodeParams),
                  [&](GraphNode& node) { node.copy_parameters = *nodeParams; });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    auto* work = std::get_if<FillWork>(&node.work);
    if (nodeParams == nullptr || work == nullptr) return invalid_value("not a fill node");
    nodeParams->dst = work->shape.destination;
    nodeParams->pitch = work->shape.pitch;
    nodeParams->value = work->shape.value;
    nodeParams->elementSize = work->shape.element;
    nodeParams->width = work->shape.width;
    nodeParams->height = work->shape.height;
    return Status();
  });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return set_node(hNode, CU_GRAPH_NODE_TYPE_MEMSET, prepare_fill(nodeParams), remember_nothing);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    auto* work = std::get_if<HostWork>(&node.work);
    if (nodeParams == nullptr || work == nullptr) return invalid_value("not a host node");
    nodeParams->fn = work->function;
    nodeParams->userData = work->user_data;
    return Status();
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return set_node(hNode, CU_GRAPH_NODE_TYPE_HOST, prepare_host(nodeParams), remember_nothing);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return with_node(hNode, [&](Driver& driver, GraphNode& node) -> Status {
    if (phGraph == nullptr || node.child == nullptr) return invalid_value("not a child graph node");
    if (node.child->handle == nullptr) node.child->handle = driver.graphs.add(node.child);
    *phGraph = node.child->handle;
    return Status();
  });
}

// ---- Executable graphs ------------------------------------------------------------------------

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  return instantiate_graph(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize > 0) logBuffer[0] = '\0';
  return instantiate_graph(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = instantiate_graph(phGraphExec, hGraph, instantiateParams->flags);
  instantiateParams->hErrNode_out = nullptr;
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  return with_exec(hGraphExec, [&](Driver&, GraphExec& exec) -> Status {
    if (flags == nullptr) return no_result();
    *flags = exec.flags;
    return Status();
  });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return with_driver([&](Driver& driver) -> Status {
    return driver.graph_execs.remove(hGraphExec) == nullptr
               ? invalid_value("not an executable graph")
               : Status();
  });
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  return with_stream(hStream, [&](Caller& caller, Stream&) -> Status {
    return caller.driver.graph_execs.find(hGraph) == nullptr
               ? invalid_value("not an executable graph")
               : Status();
  });
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    std::shared_ptr<GraphExec> exec = caller.driver.graph_execs.find(hGraph);
    if (exec == nullptr) return invalid_value("not an executable graph");
    return launch_graph(*exec, stream);
  });
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return set_exec_node(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, prepare_kernel(nodeParams));
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS wide = widen_kernel(*nodeParams);
  return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &wide);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext) {
  return set_exec_node(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, prepare_copy(copyParams));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext) {
  return set_exec_node(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, prepare_fill(memsetParams));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return set_exec_node(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_HOST, prepare_host(nodeParams));
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  return with_exec(hGraphExec, [&](Driver& driver, GraphExec& exec) -> Status {
    std::shared_ptr<Graph> graph = driver.graphs.find(hGraph);
    if (graph == nullptr || resultInfo == nullptr) return invalid_value("a bad argument");
    *resultInfo = CUgraphExecUpdateResultInfo{};
    resultInfo->result = update_exec(exec, *graph, &resultInfo->errorNode);
    return resultInfo->result == CU_GRAPH_EXEC_UPDATE_SUCCESS
               ? Status()
               : Status(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graphs differ");
  });
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  if (updateResult_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  *updateResult_out = info.result;
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  return result;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  return with_exec(hGraphExec, [&](Driver&, GraphExec& exec) -> Status {
    std::lock_guard lock(exec.mutex);
    for (GraphExec::Step& step : exec.steps) {
      if (step.node != hNode) continue;
      step.enabled = isEnabled != 0;
      return Status();
    }
    return invalid_value("not a node of the executable graph");
  });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  return with_exec(hGraphExec, [&](Driver&, GraphExec& exec) -> Status {
    if (isEnabled == nullptr) return no_result();
    std::lock_guard lock(exec.mutex);
    for (GraphExec::Step& step : exec.steps) {
      if (step.node != hNode) continue;
      *isEnabled = step.enabled;
      return Status();
    }
    return invalid_value("not a node of the executable graph");
  });
}
