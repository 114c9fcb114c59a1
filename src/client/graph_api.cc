// SPDX-License-Identifier: Apache-2.0
// Stream capture and graphs made by it: implementations behind the generated entry points, on the
// program's threads. The rules of the capture modes are kept in capture.h.
#include "api/client_impl.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

CUresult find_capture(CUstream handle, Session** session, Stream** stream, Capture* capture,
                      CUstreamCaptureStatus* status) {
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(session, &context, handle, stream));
  const uint32_t number = (*stream)->capture.load(std::memory_order_relaxed);
  if (number == 0 || !(*session)->captures.find(number, capture)) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    // Asking about the legacy stream while others capture is itself an implicit dependency.
    return check_implicit_capture(**session, **stream);
  }
  *status =
      capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context));
  const Graph* graph = session->graphs.find(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphExec* exec = session->graph_execs.allocate();
  if (exec == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  exec->context = context;
  exec->flags = flags;
  const CUresult result = session->channel.call(wire::Opcode::kGraphInstantiate,
                                                wire::GraphInstantiate{graph->id, exec->id, flags});
  if (result != CUDA_SUCCESS) {
    session->graph_execs.recycle(exec);
    return result;
  }
  session->graph_execs.publish(exec);
  *handle = exec->as<CUgraphExec>();
  return CUDA_SUCCESS;
}

CUresult submit_graph(CUgraphExec handle, CUstream stream_handle, wire::Opcode opcode) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, stream_handle, &stream));
  const GraphExec* exec = session->graph_execs.find(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(check_implicit_capture(*session, *stream));
  return push_work(*session, *stream, opcode, wire::GraphLaunch{exec->id, stream->id});
}

}  // namespace

namespace impl {

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, hStream, &stream));
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream->kind == wire::StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture.load(std::memory_order_relaxed) != 0) return CUDA_ERROR_ILLEGAL_STATE;
  // What was queued before is not part of the capture: its fence has to come before it.
  FencePoint before;
  {
    const Channel::Order order = session->channel.order();
    OPENMPS_CUDA_CHECK(session->fences.cover(order, *stream, &before));
  }
  OPENMPS_CUDA_CHECK(session->channel.call(
      wire::Opcode::kCaptureBegin, wire::CaptureBegin{stream->id, static_cast<uint32_t>(mode)}));
  stream->capture.store(session->captures.open(stream, &this_thread(), mode),
                        std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return impl::cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  Session* session = nullptr;
  Stream* stream = nullptr;
  Capture capture;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  OPENMPS_CUDA_CHECK(find_capture(hStream, &session, &stream, &capture, &status));
  if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = nullptr;
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture.origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != &this_thread()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  Graph* graph = session->graphs.allocate();
  if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::CaptureEndReply reply{};
  CUresult result =
      session->channel.call(wire::Opcode::kCaptureEnd, wire::CaptureEnd{stream->id, graph->id}, {},
                            &reply, sizeof(reply));
  session->captures.close(*session, capture.number);
  const bool made = result == CUDA_SUCCESS && reply.has_graph != 0;
  if (made && capture.invalidated) {
    // The worker does not know of our rules: its graph is of no use.
    result = session->channel.push(wire::Opcode::kGraphDestroy, wire::ObjectOnly{graph->id, 0});
  }
  if (!made || capture.invalidated) {
    session->graphs.recycle(graph);
    if (result != CUDA_SUCCESS) return result;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  graph->nodes = reply.nodes;
  session->graphs.publish(graph);
  *phGraph = graph->as<CUgraph>();
  return session->channel.take_async_error();
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  Session* session = nullptr;
  Stream* stream = nullptr;
  Capture capture;
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return find_capture(hStream, &session, &stream, &capture, captureStatus);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  Session* session = nullptr;
  Stream* stream = nullptr;
  Capture capture;
  if (captureStatus_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(find_capture(hStream, &session, &stream, &capture, captureStatus_out));
  // The graph under construction is the worker's: there is no handle for it, nor for its nodes.
  if (graph_out != nullptr) *graph_out = nullptr;
  if (dependencies_out != nullptr) *dependencies_out = nullptr;
  if (edgeData_out != nullptr) *edgeData_out = nullptr;
  if (numDependencies_out != nullptr) *numDependencies_out = 0;
  if (*captureStatus_out == CU_STREAM_CAPTURE_STATUS_ACTIVE && id_out != nullptr) {
    *id_out = capture.number;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return impl::cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out,
                                         dependencies_out, nullptr, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  return impl::cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, nullptr, nullptr,
                                         nullptr, nullptr);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, this_thread().capture_mode);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Graph* graph = session->graphs.find(hGraph);
  if (graph == nullptr || !session->graphs.retire(graph)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      session->channel.push(wire::Opcode::kGraphDestroy, wire::ObjectOnly{graph->id, 0});
  session->graphs.recycle(graph);
  return result;
}

// How many nodes there are is known; the nodes of a captured graph have no handles.
CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  const Graph* graph = session->graphs.find(hGraph);
  if (graph == nullptr || numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *numNodes = graph->nodes;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  return instantiate(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags);
  instantiateParams->hErrNode_out = nullptr;
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  if (phErrorNode != nullptr) *phErrorNode = nullptr;
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
  return instantiate(phGraphExec, hGraph, 0);
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  return submit_graph(hGraph, hStream, wire::Opcode::kGraphLaunch);
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  return submit_graph(hGraph, hStream, wire::Opcode::kGraphUpload);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  GraphExec* exec = session->graph_execs.find(hGraphExec);
  if (exec == nullptr || !session->graph_execs.retire(exec)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      session->channel.push(wire::Opcode::kGraphExecDestroy, wire::ObjectOnly{exec->id, 0});
  session->graph_execs.recycle(exec);
  return result;
}

}  // namespace impl
}  // namespace openmps::client
