// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs and their parameters. Any thread.
#include "softgpu/device/graphs/conditional.h"
#include "softgpu/device/work/launch.h"
#include "softgpu/front/families.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// A memory operation as the program would ask for it.
CUstreamBatchMemOpParams words_parameters(const WordAction& action) {
  CUstreamBatchMemOpParams parameters{};
  const bool wide = action.bytes == 8;
  switch (action.kind) {
    case WordAction::Kind::kWrite:
    case WordAction::Kind::kRaise:  // of records, which are other nodes
      parameters.operation =
          wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
      parameters.writeValue.address = action.address;
      parameters.writeValue.value64 = action.value;
      break;
    case WordAction::Kind::kWait:
      parameters.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
      parameters.waitValue.address = action.address;
      parameters.waitValue.value64 = action.value;
      parameters.waitValue.flags = action.condition;
      break;
    case WordAction::Kind::kBarrier: parameters.operation = CU_STREAM_MEM_OP_BARRIER; break;
  }
  return parameters;
}

// May it become a child of `parent`, as a clone or as it is?
CUresult check_child_locked(const Graph& child, const Graph& parent, bool moves)
    REQUIRES(graph_mutex) {
  if (child.moved) return CUDA_ERROR_NOT_SUPPORTED;
  if (!moves) return is_unique_locked(child) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
  if (child.is_body || contains_locked(child, parent)) return CUDA_ERROR_INVALID_VALUE;
  return has_conditional_locked(child) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult add_child(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                   const CUDA_CHILD_GRAPH_NODE_PARAMS& parameters) {
  Driver* driver = nullptr;
  Status status = check_entry(&driver);
  if (!status.ok()) return report(status);
  const bool moves = parameters.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  if (!moves && parameters.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::shared_ptr<Graph> child = driver->graphs.find(parameters.graph);
  const std::shared_ptr<Graph> parent = driver->graphs.find(graph);
  if (child == nullptr || parent == nullptr || child == parent) return CUDA_ERROR_INVALID_VALUE;
  {
    const MutexLock lock(graph_mutex);
    const CUresult result = check_child_locked(*child, *parent, moves);
    if (result != CUDA_SUCCESS) return result;
  }
  return add_work(out, graph, dependencies, count, prepare_nothing(),
                  [&](GraphNode& node) REQUIRES(graph_mutex) {
                    node.type = CU_GRAPH_NODE_TYPE_GRAPH;
                    node.child = moves ? child : clone_graph_locked(*driver, *child);
                    child->moved |= moves;
                  });
}

}  // namespace

// ---- Nodes ------------------------------------------------------------------------------------

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &wide);
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  return add_work(phGraphNode, hGraph, dependencies, numDependencies, prepare_nothing());
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  return add_child(phGraphNode, hGraph, dependencies, numDependencies,
                   {childGraph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE});
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return ask_node<RecordWork>(hNode, event_out,
                              [&](const RecordWork& work) { *event_out = work.event->handle; });
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return ask_node<WaitWork>(hNode, event_out,
                            [&](const WaitWork& work) { *event_out = work.event->handle; });
}

// The flags that make no difference here are not remembered.
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return with_node(hNode, [&](Driver& driver, GraphNode& node) -> Status {
    auto* work = std::get_if<WordsWork>(&node.work);
    if (nodeParams_out == nullptr || work == nullptr) {
      return invalid_value("not a node of memory operations");
    }
    Result<std::shared_ptr<Context>> context = node_context(driver, nullptr);
    if (!context.ok()) return context.status();
    node.words_parameters.clear();
    for (const WordAction& action : work->actions) {
      node.words_parameters.push_back(words_parameters(action));
    }
    *nodeParams_out = {(*context)->handle(), static_cast<unsigned>(work->actions.size()),
                       node.words_parameters.data(), 0};
    return Status();
  });
}

// Of a kernel node's attributes those count that change what runs: clusters, cooperative and
// priority.
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  return with_node(hNode, [&](Driver& driver, GraphNode& node) -> Status {
    auto* work = std::get_if<LaunchWork>(&node.work);
    if (value == nullptr || work == nullptr) return invalid_value("not a kernel node");
    if (attr <= CU_LAUNCH_ATTRIBUTE_IGNORE || attr >= CU_LAUNCH_ATTRIBUTE_MAX) {
      return invalid_value("no such attribute");
    }
    if (cuda::check_launch_attribute({attr, {}, *value}, kAttributeLimits) != CUDA_SUCCESS) {
      return invalid_value("no value of that attribute");
    }
    if (attr == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      const auto& cluster = value->clusterDim;
      OPENMPS_RETURN_IF_ERROR(
          set_clusters(driver.config, *work, {cluster.x, cluster.y, cluster.z}, {}));
    }
    if (attr == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
      LaunchWork changed = *work;
      changed.cooperative = value->cooperative != 0;
      OPENMPS_RETURN_IF_ERROR(check_cooperative_node(driver.config, changed));
      work->cooperative = changed.cooperative;
    }
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      work->has_priority = true;
      work->priority = value->priority;
    }
    if (attr == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
      return make_updatable(driver, *work, const_cast<CUkernelNodeAttrValue*>(value));
    }
    std::erase_if(node.attributes, [&](const auto& other) { return other.id == attr; });
    CUlaunchAttribute& stored = node.attributes.emplace_back();
    stored.id = attr;
    stored.value = *value;
    return Status();
  });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    if (value_out == nullptr || !std::holds_alternative<LaunchWork>(node.work) ||
        attr <= CU_LAUNCH_ATTRIBUTE_IGNORE || attr >= CU_LAUNCH_ATTRIBUTE_MAX) {
      return invalid_value("not a kernel node, or no such attribute");
    }
    memset(value_out, 0, sizeof *value_out);
    if (attr == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
      const auto& work = std::get<LaunchWork>(node.work);
      value_out->deviceUpdatableKernelNode.deviceUpdatable = work.device_node != nullptr;
      value_out->deviceUpdatableKernelNode.devNode = work.device_handle;
    }
    for (const CUlaunchAttribute& stored : node.attributes) {
      if (stored.id == attr) *value_out = stored.value;
    }
    return Status();
  });
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return with_node(dst, [&](Driver& driver, GraphNode& node) -> Status {
    std::shared_ptr<GraphNode> from = driver.graph_nodes.find(src);
    auto* target = std::get_if<LaunchWork>(&node.work);
    auto* source = from == nullptr ? nullptr : std::get_if<LaunchWork>(&from->work);
    if (target == nullptr || source == nullptr) return invalid_value("not a kernel node");
    if (target->device_node != nullptr || source->device_node != nullptr) {
      return Status(CUDA_ERROR_NOT_SUPPORTED, "kernels change one of the nodes");
    }
    LaunchWork changed = *target;
    changed.cooperative = source->cooperative;
    changed.has_priority = source->has_priority;
    changed.priority = source->priority;
    OPENMPS_RETURN_IF_ERROR(
        set_clusters(driver.config, changed,
                     source->explicit_cluster ? source->cluster : cuda::Dimensions{}, {}));
    OPENMPS_RETURN_IF_ERROR(check_cooperative_node(driver.config, changed));
    node.attributes = from->attributes;
    *target = std::move(changed);
    return Status();
  });
}

// ---- Memory -----------------------------------------------------------------------------------

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return ask_node<AllocationWork>(
      hNode, params_out, [&](const AllocationWork& work) { *params_out = work.parameters; });
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return ask_node<GraphFreeWork>(hNode, dptr_out,
                                 [&](const GraphFreeWork& work) { *dptr_out = work.address; });
}

// ---- Conditional nodes ------------------------------------------------------------------------

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  return with_graph(hGraph, [&](Driver& driver, Graph& graph) -> Status {
    if (pHandle_out == nullptr) return no_result();
    Result<std::shared_ptr<Context>> context = node_context(driver, ctx);
    if (!context.ok()) return context.status();
    return deliver(create_condition(driver, graph, **context, defaultLaunchValue, flags),
                   pHandle_out);
  });
}

namespace {

CUresult add_conditional(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                         size_t count, CUDA_CONDITIONAL_NODE_PARAMS* parameters) {
  return with_graph(graph, [&](Driver& driver, Graph& object) -> Status {
    if (out == nullptr) return no_result();
    const MutexLock lock(graph_mutex);
    std::vector<GraphEdge> before;
    OPENMPS_RETURN_IF_ERROR(find_dependencies(driver, object, dependencies, count, &before));
    Result<std::shared_ptr<GraphNode>> node =
        add_conditional_locked(driver, object, *parameters, before);
    if (!node.ok()) return node.status();
    parameters->phGraph_out = (*node)->body_handles.data();
    *out = (*node)->handle;
    return Status();
  });
}

CUresult add_any(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                 size_t numDependencies, CUgraphNodeParams* nodeParams) {
  const auto add = [&](const auto& parameters) {
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, &parameters);
  };
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return add(cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(nodeParams->kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY: return add(nodeParams->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return add(cuda::as_version<CUDA_MEMSET_NODE_PARAMS>(nodeParams->memset));
    case CU_GRAPH_NODE_TYPE_HOST:
      return add(cuda::as_version<CUDA_HOST_NODE_PARAMS>(nodeParams->host));
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return add_child(phGraphNode, hGraph, dependencies, numDependencies, nodeParams->graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return add(nodeParams->eventRecord);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return add(nodeParams->eventWait);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      auto params = cuda::as_version<CUDA_MEM_ALLOC_NODE_PARAMS>(nodeParams->alloc);
      const CUresult result = add_node(phGraphNode, hGraph, dependencies, numDependencies, &params);
      nodeParams->alloc.dptr = params.dptr;
      return result;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE: return add(nodeParams->free);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return add(cuda::as_version<CUDA_BATCH_MEM_OP_NODE_PARAMS>(nodeParams->memOp));
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return add_conditional(phGraphNode, hGraph, dependencies, numDependencies,
                             &nodeParams->conditional);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr || nodeParams->reserved2 != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = add_any(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
  if (result != CUDA_SUCCESS || dependencyData == nullptr) return result;
  return with_node(*phGraphNode, [&](Driver& driver, GraphNode& node) -> Status {
    for (size_t i = 0; i < numDependencies; ++i) {
      set_data(*driver.graph_nodes.find(dependencies[i]), node, dependencyData[i]);
    }
    return Status();
  });
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (hNode == nullptr || nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto set = [&](const auto& parameters) { return set_node(hNode, &parameters); };
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return set(cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(nodeParams->kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY: return set(nodeParams->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return set(cuda::as_version<CUDA_MEMSET_NODE_PARAMS>(nodeParams->memset));
    case CU_GRAPH_NODE_TYPE_HOST:
      return set(cuda::as_version<CUDA_HOST_NODE_PARAMS>(nodeParams->host));
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return set(nodeParams->eventRecord);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return set(nodeParams->eventWait);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    auto* work = std::get_if<LaunchWork>(&node.work);
    if (nodeParams == nullptr || work == nullptr) return invalid_value("not a kernel node");
    // Pointers into the node's own copy of the parameters: valid as long as the node.
    const KernelInfo& info = *work->function->info;
    node.kernel_parameter_pointers.clear();
    for (const ParameterInfo& parameter : info.parameters) {
      node.kernel_parameter_pointers.push_back(work->parameters.data() + parameter.offset);
    }
    *nodeParams = CUDA_KERNEL_NODE_PARAMS{};
    nodeParams->func = work->function->handle;
    const CUcontext view = work->place.view;
    nodeParams->ctx = view != nullptr ? view : work->function->module->context->owner().handle();
    // A kernel of a library is named both ways, however the node was made, as on an H200.
    if (const std::shared_ptr<Library> library = work->function->module->library.lock()) {
      nodeParams->kern = library->kernels[work->function->index]->handle;
    }
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
  if (result == CUDA_SUCCESS) *nodeParams = cuda::as_version<CUDA_KERNEL_NODE_PARAMS_v1>(wide);
  return result;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return cuGraphKernelNodeSetParams_v2(hNode, &wide);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return with_node(hNode, [&](Driver&, GraphNode& node) -> Status {
    auto* work = std::get_if<CopyWork>(&node.work);
    if (nodeParams == nullptr || work == nullptr) return invalid_value("not a copy node");
    *nodeParams = node.copy_parameters;
    if (work->shape.named != nullptr) *nodeParams = *work->shape.named;
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

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return ask_node<FillWork>(hNode, nodeParams, [&](const FillWork& work) {
    nodeParams->dst = work.shape.destination;
    nodeParams->pitch = work.shape.pitch;
    nodeParams->value = work.shape.value;
    nodeParams->elementSize = work.shape.element;
    nodeParams->width = work.shape.width;
    nodeParams->height = work.shape.height;
  });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return ask_node<HostWork>(hNode, nodeParams, [&](const HostWork& work) {
    nodeParams->fn = work.function;
    nodeParams->userData = work.user_data;
  });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return with_node(hNode, [&](Driver& driver, GraphNode& node) -> Status {
    if (phGraph == nullptr || node.child == nullptr) return invalid_value("not a child graph node");
    if (node.child->handle == nullptr) node.child->handle = driver.graphs.add(node.child);
    *phGraph = node.child->handle;
    return Status();
  });
}
