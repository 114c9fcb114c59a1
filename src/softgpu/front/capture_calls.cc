// SPDX-License-Identifier: Apache-2.0
// Stream capture. Any thread.
#include "softgpu/front/graph_front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

// ---- Capture ----------------------------------------------------------------------------------

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_driver([&](Driver&) -> Status {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
        *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return invalid_value("no such capture mode");
    }
    *mode = exchange_thread_mode(*mode);
    return Status();
  });
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return with_context_of(hStream, [&](Caller& caller) -> Status {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return invalid_value("no such capture mode");
    }
    Result<std::shared_ptr<Stream>> stream = caller.stream(hStream);
    if (!stream.ok()) return stream.status();
    return caller.driver.captures.begin(*stream, mode, nullptr, {});
  });
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData*,
                                     size_t numDependencies, CUstreamCaptureMode mode) {
  return with_context_of(hStream, [&](Caller& caller) -> Status {
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return invalid_value("no such capture mode");
    }
    Result<std::shared_ptr<Stream>> stream = caller.stream(hStream);
    if (!stream.ok()) return stream.status();
    std::shared_ptr<Graph> graph = caller.driver.graphs.find(hGraph);
    if (graph == nullptr) return invalid_value("not a graph");
    std::vector<GraphEdge> edges;
    OPENMPS_RETURN_IF_ERROR(
        find_edges(caller.driver, *graph, dependencies, nullptr, numDependencies, &edges));
    return caller.driver.captures.begin(*stream, mode, graph, edges);
  });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) {
    return caller.driver.captures.end(stream, phGraph);
  });
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return with_stream(
      hStream,
      [&](Caller& caller, Stream& stream) -> Status {
        if (captureStatus == nullptr) return no_result();
        uint64_t id = 0;
        CUgraph graph = nullptr;
        std::vector<CUgraphNode> nodes;
        *captureStatus = caller.driver.captures.status(stream, &id, &graph, &nodes);
        return Status();
      },
      true);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  return with_stream(
      hStream,
      [&](Caller& caller, Stream& stream) -> Status {
        if (captureStatus_out == nullptr) return no_result();
        // Valid until this thread's next call, as the interface says.
        static thread_local std::vector<CUgraphNode> nodes;
        static thread_local std::vector<CUgraphEdgeData> edges;
        nodes.clear();
        uint64_t id = 0;
        CUgraph graph = nullptr;
        *captureStatus_out = caller.driver.captures.status(stream, &id, &graph, &nodes);
        // Of any other stream nothing else is written.
        if (*captureStatus_out != CU_STREAM_CAPTURE_STATUS_ACTIVE) return Status();
        edges.assign(nodes.size(), CUgraphEdgeData{});
        if (id_out != nullptr) *id_out = id;
        if (graph_out != nullptr) *graph_out = graph;
        if (dependencies_out != nullptr) *dependencies_out = nodes.data();
        if (edgeData_out != nullptr) *edgeData_out = edges.data();
        if (numDependencies_out != nullptr) *numDependencies_out = nodes.size();
        return Status();
      },
      true);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData*, size_t numDependencies,
                                              unsigned int flags) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    uint64_t id = 0;
    CUgraph handle = nullptr;
    std::vector<CUgraphNode> unused;
    if (caller.driver.captures.status(stream, &id, &handle, &unused) ==
        CU_STREAM_CAPTURE_STATUS_NONE) {
      return Status(CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
    }
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return invalid_value("unknown flags");
    std::shared_ptr<Graph> graph = caller.driver.graphs.find(handle);
    if (graph == nullptr) return invalid_value("the graph was destroyed");
    std::vector<GraphEdge> edges;
    OPENMPS_RETURN_IF_ERROR(
        find_edges(caller.driver, *graph, dependencies, nullptr, numDependencies, &edges));
    return caller.driver.captures.update_dependencies(stream, edges,
                                                      flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  });
}
