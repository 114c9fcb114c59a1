// SPDX-License-Identifier: Apache-2.0
// Executable graphs. Any thread.
#include <memory>
#include <optional>

#include "softgpu/device/issue/graph_launch.h"
#include "softgpu/device/issue/issue.h"
#include "softgpu/device/schedule/quiescence.h"
#include "softgpu/front/families.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

bool can_be_disabled(const GraphStep& step) {
  return step.type == CU_GRAPH_NODE_TYPE_KERNEL || step.type == CU_GRAPH_NODE_TYPE_MEMSET ||
         step.type == CU_GRAPH_NODE_TYPE_MEMCPY;
}

}  // namespace

// ---- Executable graphs ------------------------------------------------------------------------

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  // That takes a stream, which only the parameters of another call name.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
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
  const bool for_device =
      (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  const bool refused = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE;
  instantiateParams->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                  : for_device && refused
                                      ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
                                      : CUDA_GRAPH_INSTANTIATE_ERROR;
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
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
    std::optional<Quiescence> quiescence;
    const std::shared_ptr<Context> context = context_stack::current();
    const auto execution = context != nullptr ? context->execution() : nullptr;
    if (driver.config.destroying_waits && execution != nullptr) {
      quiescence.emplace(driver.scheduler, *execution);
    }
    return driver.graph_execs.remove(hGraphExec) == nullptr
               ? invalid_value("not an executable graph")
               : Status();
  });
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    const std::shared_ptr<GraphExec> exec = caller.driver.graph_execs.find(hGraph);
    if (exec == nullptr) return invalid_value("not an executable graph");
    const MutexLock lock(exec->mutex);
    exec->uploaded = true;
    return Status();
  });
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  const auto launch = [&](Caller& caller, Stream& stream) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    std::shared_ptr<GraphExec> exec = caller.driver.graph_execs.find(hGraph);
    if (exec == nullptr) return invalid_value("not an executable graph");
    OPENMPS_RETURN_IF_ERROR(launch_graph(*exec, stream));
    return launched(stream);
  };
  return with_stream(CallKind::kGraphLaunch, hStream, launch);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &wide);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext) {
  // Only copies of one dimension can be changed (CUDA's documentation, and an H200).
  if (copyParams != nullptr && (copyParams->Height > 1 || copyParams->Depth > 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return set_exec_node(hGraphExec, hNode, copyParams);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  if (hGraphExec == nullptr || hNode == nullptr || nodeParams == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto set = [&](const auto& parameters) {
    return set_exec_node(hGraphExec, hNode, &parameters);
  };
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return set(cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(nodeParams->kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return cuGraphExecMemcpyNodeSetParams(hGraphExec, hNode, &nodeParams->memcpy.copyParams,
                                            nodeParams->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return set(cuda::as_version<CUDA_MEMSET_NODE_PARAMS>(nodeParams->memset));
    case CU_GRAPH_NODE_TYPE_HOST:
      return set(cuda::as_version<CUDA_HOST_NODE_PARAMS>(nodeParams->host));
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD: return set(nodeParams->eventRecord);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: return set(nodeParams->eventWait);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// The nodes of the child that the exec knows, in their order, get the work of those of another.
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
  return with_exec(hGraphExec, [&](Driver& driver, GraphExec& exec) -> Status {
    std::shared_ptr<GraphNode> node = driver.graph_nodes.find(hNode);
    std::shared_ptr<Graph> fresh = driver.graphs.find(childGraph);
    if (node == nullptr || node->child == nullptr || fresh == nullptr) {
      return invalid_value("not a child graph node, or not a graph");
    }
    const MutexLock lock(exec.mutex);
    const MutexLock graph_lock(graph_mutex);
    const auto& old = node->child->nodes;
    if (old.size() != fresh->nodes.size()) return invalid_value("the graphs differ");
    for (size_t i = 0; i < old.size(); ++i) {
      if (old[i]->type != fresh->nodes[i]->type || old[i]->child != nullptr ||
          old[i]->dependencies.size() != fresh->nodes[i]->dependencies.size()) {
        return invalid_value("the graphs differ");
      }
    }
    for (size_t i = 0; i < old.size(); ++i) {
      const GraphStep* step = find_step(exec.steps, old[i]->handle);
      if (step != nullptr && !same_context(step->work, fresh->nodes[i]->work)) {
        return Status(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "a kernel of another context");
      }
    }
    for (size_t i = 0; i < old.size(); ++i) {
      if (GraphStep* step = find_step(exec.steps, old[i]->handle)) {
        step->work = fresh->nodes[i]->work;
      }
    }
    return Status();
  });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  return with_exec(hGraphExec, [&](Driver& driver, GraphExec& exec) -> Status {
    std::shared_ptr<Graph> graph = driver.graphs.find(hGraph);
    if (graph == nullptr || graph->moved) return invalid_value("not a graph of its own");
    CUgraphExecUpdateResultInfo info{};
    Status status = update_exec(exec, *graph, &info);
    if (resultInfo != nullptr) *resultInfo = info;
    return status;
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
    const MutexLock lock(exec.mutex);
    GraphStep* step = find_step(exec.steps, hNode);
    if (step == nullptr || !can_be_disabled(*step)) {
      return invalid_value("not a node of the executable graph that can be switched off");
    }
    step->enabled = isEnabled != 0;
    set_device_nodes({*step});
    exec.uploaded = false;
    return Status();
  });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  return with_exec(hGraphExec, [&](Driver&, GraphExec& exec) -> Status {
    if (isEnabled == nullptr) return no_result();
    const MutexLock lock(exec.mutex);
    const GraphStep* step = find_step(exec.steps, hNode);
    if (step == nullptr || !can_be_disabled(*step)) {
      return invalid_value("not a node of the executable graph");
    }
    *isEnabled = step->enabled;
    return Status();
  });
}
