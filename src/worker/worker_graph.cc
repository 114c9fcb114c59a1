// SPDX-License-Identifier: Apache-2.0
// Capture and graphs of a session. See worker_graph.h.
#include "worker/worker_graph.h"

#include <memory>
#include <vector>

#include "worker/driver_check.h"

namespace openmps::worker {

Status Graphs::begin_capture(const wire::CaptureBegin& command) {
  Stream* stream = nullptr;
  OPENMPS_RETURN_IF_ERROR(streams_.get(command.stream, &stream));
  if (stream->kind == wire::StreamKind::kLegacy) {
    return Status(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the legacy stream can't be captured");
  }
  if (stream->capture != 0) {
    return Status(CUDA_ERROR_ILLEGAL_STATE, "the stream is capturing already");
  }
  return streams_.begin_capture(*stream).status();
}

Status Graphs::end_capture(const wire::CaptureEnd& command, ReplyWriter& reply) {
  Stream* stream = nullptr;
  OPENMPS_RETURN_IF_ERROR(streams_.get(command.stream, &stream));
  OPENMPS_RETURN_IF_ERROR(graphs_.check_free(command.graph));
  if (stream->capture == 0) {
    return Status(CUDA_ERROR_ILLEGAL_STATE, "the stream is not capturing");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(stream->device));
  auto graph = std::make_unique<Graph>();
  graph->device = stream->device;
  Status status =
      check(core_.driver.cuStreamEndCapture(stream->handle, &graph->handle), "cuStreamEndCapture");
  // The wrong stream leaves the capture open; everything else ends it, broken or not.
  if (status.code() != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED) streams_.end_capture(stream->capture);
  wire::CaptureEndReply answer{};
  size_t nodes = 0;
  if (graph->handle != nullptr &&
      core_.driver.cuGraphGetNodes(graph->handle, nullptr, &nodes) == CUDA_SUCCESS) {
    answer.nodes = static_cast<uint32_t>(nodes);
  }
  answer.has_graph = graph->handle != nullptr ? 1 : 0;
  reply.put(answer);
  if (graph->handle == nullptr) return status;
  OPENMPS_RETURN_IF_ERROR(graphs_.insert(command.graph, std::move(graph)));
  return status;
}

Status Graphs::instantiate(const wire::GraphInstantiate& command) {
  Graph* graph = nullptr;
  OPENMPS_RETURN_IF_ERROR(graphs_.get(command.graph, &graph));
  OPENMPS_RETURN_IF_ERROR(execs_.check_free(command.exec));
  // A launch from the device would bypass the session's stream order; an upload is a command of
  // its own here.
  if ((command.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "graphs launched from the device");
  }
  const uint64_t flags = command.flags & ~static_cast<uint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  OPENMPS_RETURN_IF_ERROR(core_.use(graph->device));
  auto exec = std::make_unique<GraphExec>();
  exec->device = graph->device;
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuGraphInstantiateWithFlags(&exec->handle, graph->handle, flags),
            "cuGraphInstantiate"));
  return execs_.insert(command.exec, std::move(exec));
}

Status Graphs::launch(const wire::GraphLaunch& command) {
  Stream* stream = nullptr;
  GraphExec* exec = nullptr;
  OPENMPS_RETURN_IF_ERROR(streams_.get(command.stream, &stream));
  OPENMPS_RETURN_IF_ERROR(execs_.get(command.exec, &exec));
  OPENMPS_RETURN_IF_ERROR(streams_.enter(*stream, Streams::Entry::kWork));
  return check(core_.driver.cuGraphLaunch(exec->handle, stream->handle), "cuGraphLaunch");
}

Status Graphs::upload(const wire::GraphLaunch& command) {
  Stream* stream = nullptr;
  GraphExec* exec = nullptr;
  OPENMPS_RETURN_IF_ERROR(streams_.get(command.stream, &stream));
  OPENMPS_RETURN_IF_ERROR(execs_.get(command.exec, &exec));
  OPENMPS_RETURN_IF_ERROR(streams_.enter(*stream, Streams::Entry::kWork));
  return check(core_.driver.cuGraphUpload(exec->handle, stream->handle), "cuGraphUpload");
}

void Graphs::forget_nodes_of(wire::Id graph) {
  std::vector<wire::Id> gone;
  nodes_.for_each_id([&](wire::Id id, GraphNode& node) {
    if (node.graph == graph) gone.push_back(id);
  });
  for (const wire::Id id : gone) forget_node(id);
}

Status Graphs::destroy(wire::Id id) {
  const std::unique_ptr<Graph> graph = graphs_.take(id);
  if (graph == nullptr) return violation("there is no graph " + std::to_string(id));
  forget_nodes_of(id);
  OPENMPS_RETURN_IF_ERROR(core_.use(graph->device));
  return check(core_.driver.cuGraphDestroy(graph->handle), "cuGraphDestroy");
}

Status Graphs::destroy_exec(wire::Id id) {
  const std::unique_ptr<GraphExec> exec = execs_.take(id);
  if (exec == nullptr) return violation("there is no executable graph " + std::to_string(id));
  OPENMPS_RETURN_IF_ERROR(core_.use(exec->device));
  return check(core_.driver.cuGraphExecDestroy(exec->handle), "cuGraphExecDestroy");
}

Status Graphs::bind(wire::Id id, CUgraph handle, uint32_t device) {
  auto graph = std::make_unique<Graph>();
  graph->handle = handle;
  graph->device = device;
  return graphs_.insert(id, std::move(graph));
}

Status Graphs::bind_node(wire::Id id, CUgraphNode handle, wire::Id graph) {
  auto node = std::make_unique<GraphNode>();
  node->handle = handle;
  node->graph = graph;
  return nodes_.insert(id, std::move(node));
}

void Graphs::release_all() {
  nodes_.clear();
  execs_.for_each([this](GraphExec& exec) { core_.driver.cuGraphExecDestroy(exec.handle); });
  execs_.clear();
  graphs_.for_each([this](Graph& graph) { core_.driver.cuGraphDestroy(graph.handle); });
  graphs_.clear();
}

}  // namespace openmps::worker
