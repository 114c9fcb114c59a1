// SPDX-License-Identifier: Apache-2.0
// Stream capture: implementations behind the generated entry points, on the program's threads. The
// rules of the capture modes are kept in capture.h.
#include <utility>
#include <vector>

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/session/enter.h"

namespace openmps::client {
namespace {

// The capture that the stream takes part in, if its status is not NONE.
CUstreamCaptureStatus find_capture(Session& session, const Stream& stream, Capture* capture) {
  const uint32_t number = stream.capture.load(std::memory_order_relaxed);
  if (number == 0 || !session.captures.find(number, capture)) return CU_STREAM_CAPTURE_STATUS_NONE;
  return capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// Asking about the legacy stream while blocking streams capture is an error that invalidates no
// capture.
CUresult ask(CUstream handle, Session** session, Stream** stream, Capture* capture,
             CUstreamCaptureStatus* status) {
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(look_up_stream(session, &context, handle, stream));
  if ((*stream)->kind == wire::StreamKind::kLegacy && (*session)->captures.any()) {
    OPENMPS_CUDA_CHECK((*session)->captures.check_legacy_stream(**stream, true));
  }
  *status = find_capture(**session, **stream, capture);
  return CUDA_SUCCESS;
}

// The graph of a capture that failed goes, also one that was the program's (seen on an H200), if it
// is not a part of another one.
void drop(Session& session, const Capture& capture) REQUIRES(session.graphs.lock) {
  if (capture.graph == nullptr || capture.graph->owner != nullptr) return;
  for (const GraphNode* node : capture.graph->nodes) session.captures.forget(node);
  session.graphs.destroy_locked(capture.graph);
}

CUresult check_beginning(const Stream& stream, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream.kind == wire::StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return stream.capture.load(std::memory_order_relaxed) == 0 ? CUDA_SUCCESS
                                                             : CUDA_ERROR_ILLEGAL_STATE;
}

void open_capture(Session& session, Stream& stream, CUstreamCaptureMode mode, Graph* graph,
                  bool into_existing, Captures::Edges edges) {
  Capture capture;
  capture.origin = &stream;
  capture.thread = &this_thread();
  capture.mode = mode;
  capture.graph = graph;
  capture.into_existing = into_existing;
  stream.capture.store(session.captures.open(capture, std::move(edges)), std::memory_order_relaxed);
}

}  // namespace

namespace impl {

CUresult cuStreamBeginCapture_v2(Session& session, Stream& stream, CUstreamCaptureMode mode) {
  OPENMPS_CUDA_CHECK(check_beginning(stream, mode));
  const MutexLock guard(session.graphs.lock);
  Graph* graph = nullptr;
  OPENMPS_CUDA_CHECK(session.graphs.create_locked(&graph));
  open_capture(session, stream, mode, graph, false, {});
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCaptureToGraph(Session& session, Stream& stream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  OPENMPS_CUDA_CHECK(check_beginning(stream, mode));
  const MutexLock guard(session.graphs.lock);
  Graph* graph = session.graphs.find(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (session.captures.is_target(graph)) return CUDA_ERROR_ILLEGAL_STATE;
  Captures::Edges edges;
  OPENMPS_CUDA_CHECK(session.graphs.find_edges_locked(*graph, dependencies, dependencyData,
                                                      numDependencies, &edges));
  open_capture(session, stream, mode, graph, true, std::move(edges));
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(Session& session, Stream& stream, CUgraph* phGraph) {
  Capture capture;
  if (phGraph != nullptr) *phGraph = nullptr;
  if (find_capture(session, stream, &capture) == CU_STREAM_CAPTURE_STATUS_NONE) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  if (capture.origin != &stream) {
    session.captures.invalidate(capture.number);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  // From here on the capture ends, in whichever way.
  const MutexLock guard(session.graphs.lock);
  const bool joined = session.captures.all_joined(capture.number);
  session.captures.close(capture.number);
  CUresult result = CUDA_SUCCESS;
  if (capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != &this_thread()) {
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (capture.invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!joined) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  if (result != CUDA_SUCCESS || (phGraph == nullptr && !capture.into_existing)) {
    drop(session, capture);
  } else if (phGraph != nullptr) {
    *phGraph = capture.graph->as<CUgraph>();
  }
  return result != CUDA_SUCCESS ? result : session.channel.take_async_error();
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  Session* session = nullptr;
  Stream* stream = nullptr;
  Capture capture;
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ask(hStream, &session, &stream, &capture, captureStatus);
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
  OPENMPS_CUDA_CHECK(ask(hStream, &session, &stream, &capture, captureStatus_out));
  // Of any other stream nothing else is written.
  if (*captureStatus_out != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  // Valid until the thread's next call that concerns the stream, as the interface says.
  std::vector<CUgraphNode>& nodes = this_thread().capture_nodes;
  std::vector<CUgraphEdgeData>& data = this_thread().capture_edges;
  nodes.clear();
  data.clear();
  bool plain = true;
  const MutexLock guard(session->graphs.lock);
  for (const GraphEdge& edge : session->captures.dependencies(capture.number, stream)) {
    nodes.push_back(edge.node->as<CUgraphNode>());
    data.push_back(edge.data);
    plain = plain && edge.data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  }
  // A program that does not ask for the kinds of edges must not miss one.
  const bool wants_nodes = dependencies_out != nullptr || numDependencies_out != nullptr;
  if (wants_nodes && edgeData_out == nullptr && !plain) return CUDA_ERROR_LOSSY_QUERY;
  if (id_out != nullptr) *id_out = capture.number;
  if (graph_out != nullptr) *graph_out = capture.graph->as<CUgraph>();
  if (dependencies_out != nullptr) *dependencies_out = nodes.data();
  if (edgeData_out != nullptr) *edgeData_out = data.data();
  if (numDependencies_out != nullptr) *numDependencies_out = nodes.size();
  return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies_v2(Session& session, Stream& stream,
                                              CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData,
                                              size_t numDependencies, unsigned int flags) {
  Capture capture;
  const CUstreamCaptureStatus status = find_capture(session, stream, &capture);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const MutexLock guard(session.graphs.lock);
  Captures::Edges edges;
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) {
    edges = session.captures.dependencies(capture.number, &stream);
  }
  OPENMPS_CUDA_CHECK(session.graphs.find_edges_locked(*capture.graph, dependencies, dependencyData,
                                                      numDependencies, &edges));
  session.captures.set_dependencies(capture.number, &stream, std::move(edges));
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, this_thread().capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace impl
}  // namespace openmps::client
