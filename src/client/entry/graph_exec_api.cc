// SPDX-License-Identifier: Apache-2.0
// Executable graphs: instantiating, launching, updating, and changing single nodes. Implementations
// behind the generated entry points, on the program's threads.
#include <algorithm>

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/entry/graph_nodes.h"
#include "client/session/graph_condition.h"
#include "client/session/submit.h"
#include "cuda/versions.h"

namespace openmps::client {
namespace {

constexpr unsigned long long kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// A launch from the device would bypass the session's stream order. It may be of some types of
// nodes only, which CUDA looks at first.
CUresult refuse_for_device(const Graph& graph) {
  const bool possible =
      std::all_of(graph.nodes.begin(), graph.nodes.end(), [](const GraphNode* node) {
        return node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMSET ||
               node->type == CU_GRAPH_NODE_TYPE_MEMCPY || node->type == CU_GRAPH_NODE_TYPE_GRAPH;
      });
  return possible ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

// `reason`: left alone, but where CUDA has a name for it.
CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags,
                     CUgraphNode* failed, CUgraphInstantiateResult* reason) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  const MutexLock guard(session->graphs.lock);
  Graph* graph = session->graphs.find(graph_handle);
  if (graph == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_moved(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return refuse_for_device(*graph);
  OPENMPS_CUDA_CHECK(check_conditionals(*graph, reason));
  if (is_unique(*graph) && session->graph_execs.find(graph->instance) != nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  GraphExec* exec = nullptr;
  OPENMPS_CUDA_CHECK(session->graph_execs.instantiate(*context, *graph, flags, &exec, failed));
  *handle = graph->instance = exec->as<CUgraphExec>();
  return CUDA_SUCCESS;
}

// The child graph has the nodes, in their order, of the graph that the node was made from.
CUresult change_child(Session& session, GraphExec& exec, const Graph& inner, const Graph& fresh) {
  if (inner.nodes.size() != fresh.nodes.size()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < inner.nodes.size(); ++i) {
    const GraphNode& old = *inner.nodes[i];
    const GraphNode& next = *fresh.nodes[i];
    if (old.type != next.type || old.dependencies.size() != next.dependencies.size()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto* kernel = std::get_if<KernelWork>(&old.work);
    if (kernel != nullptr &&
        session.contexts.differ(kernel->context, std::get<KernelWork>(next.work).context)) {
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
  }
  for (size_t i = 0; i < inner.nodes.size(); ++i) {
    const GraphNode& old = *inner.nodes[i];
    const GraphNode& next = *fresh.nodes[i];
    if (const auto* child = std::get_if<ChildWork>(&old.work)) {
      OPENMPS_CUDA_CHECK(
          change_child(session, exec, *child->graph, *std::get<ChildWork>(next.work).graph));
      continue;
    }
    if (old.type == CU_GRAPH_NODE_TYPE_EMPTY) continue;
    OPENMPS_CUDA_CHECK(session.graph_execs.set_work(exec, old.as<CUgraphNode>(), next.work));
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  // That takes a stream, which only the parameters of another call name.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode failed = nullptr;
  CUgraphInstantiateResult reason{};
  return instantiate(phGraphExec, hGraph, flags, &failed, &reason);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  instantiateParams->hErrNode_out = nullptr;
  CUgraphInstantiateResult reason = CUDA_GRAPH_INSTANTIATE_ERROR;
  const CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags,
                                      &instantiateParams->hErrNode_out, &reason);
  instantiateParams->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : reason;
  if (result != CUDA_SUCCESS ||
      (instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0) {
    return result;
  }
  return impl::cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
  CUgraphNode failed = nullptr;
  CUgraphInstantiateResult reason{};
  const CUresult result = instantiate(phGraphExec, hGraph, 0, &failed, &reason);
  if (phErrorNode != nullptr) *phErrorNode = failed;
  return result;
}

CUresult cuGraphExecUpdate_v2(Session& session, GraphExec& exec, Graph& graph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  if (is_in_body(graph) || is_moved(graph)) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = session.graph_execs.update(exec, graph, &info);
  if (resultInfo != nullptr) *resultInfo = info;
  return result;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  if (updateResult_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = impl::cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  *updateResult_out = info.result;
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  return result;
}

// ---- Single nodes -------------------------------------------------------------------------------

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto wide = cuda::as_version<CUDA_KERNEL_NODE_PARAMS>(*nodeParams);
  return set_exec_node(hGraphExec, hNode, &wide);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext) {
  // Only copies of one dimension can be changed (CUDA's documentation, and an H200).
  if (copyParams != nullptr && (copyParams->Height > 1 || copyParams->Depth > 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return set_exec_node(hGraphExec, hNode, copyParams);
}

CUresult cuGraphExecChildGraphNodeSetParams(Session& session, GraphExec& exec, GraphNode& node,
                                            Graph& fresh) {
  if (node.type != CU_GRAPH_NODE_TYPE_GRAPH || !exec.places.contains(node.handle)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return change_child(session, exec, *std::get<ChildWork>(node.work).graph, fresh);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  if (hGraphExec == nullptr || hNode == nullptr || nodeParams == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return impl::cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, nodeParams->graph.graph);
  }
  return may_change(nodeParams->type) ? set_exec_node(hGraphExec, hNode, nodeParams)
                                      : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphLaunch(Session& session, CUgraphExec hGraph, Stream& stream) {
  GraphExec* exec = session.graph_execs.find(hGraph);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session.registered.make_all_ready());
  OPENMPS_CUDA_CHECK(session.streams.await_backlog_space(stream));
  return launched(session, stream, session.graph_execs.launch(*exec, stream, session.graphs.lock));
}

CUresult cuGraphNodeGetEnabled(Session&, GraphExec& exec, CUgraphNode hNode,
                               unsigned int* isEnabled) {
  const auto found = exec.places.find(reinterpret_cast<uint64_t>(hNode));
  if (found == exec.places.end() || !can_be_disabled(found->second)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *isEnabled = found->second.enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
