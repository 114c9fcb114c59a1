// SPDX-License-Identifier: Apache-2.0
// What libraries do while they capture: query the graph and the dependencies, add nodes, attach
// user objects, call host functions, copy pageable memory; updates of an executable graph from a
// second capture. Run by run_e2e.py. usage: drv_graph_capture [memory]
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "driver.h"

namespace {

constexpr uint32_t kWords = 3000;
std::atomic<int> g_calls{0};
std::atomic<int> g_destroyed{0};

void count_call(void*) { g_calls++; }
void count_destroyed(void*) { g_destroyed++; }

CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

struct Info {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
};
Info info_of(CUstream stream) {
  Info info;
  CHECK_CU(cuStreamGetCaptureInfo_v3(stream, &info.status, &info.id, &info.graph, &info.nodes,
                                     &info.edges, &info.count));
  return info;
}

void libraries(e2e::Session& session, CUstream stream) {
  const CUfunction mix = session.function("mix");
  const unsigned grid = e2e::blocks_for(kWords, 128);
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(kWords, 0));
  std::vector<uint32_t> source(kWords, 1), target(kWords);
  CUuserObject object = nullptr;
  CHECK_CU(
      cuUserObjectCreate(&object, nullptr, count_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));

  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  Info info = info_of(stream);
  e2e::expect(info.status == CU_STREAM_CAPTURE_STATUS_ACTIVE && info.graph && info.count == 0,
              "a fresh capture");
  CHECK_CU(cuMemcpyHtoDAsync_v2(words.address, source.data(), kWords * 4, stream));
  e2e::launch(mix, grid, 128, 0, stream, words.address, kWords, 4u);
  info = info_of(stream);
  e2e::expect(info.count == 1 && info.edges[0].type == 0, "%zu dependency", info.count);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CHECK_CU(cuGraphNodeGetType(info.nodes[0], &type));
  e2e::expect(type == CU_GRAPH_NODE_TYPE_KERNEL, "it is the kernel");
  // A node that the library adds, and after which the stream's capture continues.
  const CUgraphNode before = info.nodes[0];
  CUDA_HOST_NODE_PARAMS call{count_call, nullptr};
  CUgraphNode own = nullptr;
  CHECK_CU(cuGraphAddHostNode(&own, info.graph, &before, 1, &call));
  CHECK_CU(cuStreamUpdateCaptureDependencies(stream, &own, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CHECK_CU(cuGraphRetainUserObject(info.graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CHECK_CU(cuLaunchHostFunc(stream, count_call, nullptr));
  CHECK_CU(cuMemcpyDtoHAsync_v2(target.data(), words.address, kWords * 4, stream));
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  CUgraphNode nodes[8] = {};
  size_t count = 8;
  CHECK_CU(cuGraphGetNodes(graph, nodes, &count));
  e2e::expect(count == 5 && nodes[2] == own, "%zu nodes, one of them added", count);
  size_t edges = 0;
  CHECK_CU(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  e2e::expect(edges == 4, "a chain of %zu edges", edges);
  e2e::expect(g_calls == 0 && target[0] == 0, "nothing ran");

  const std::string path = "/tmp/drv_graph_capture." + std::to_string(getpid()) + ".dot";
  CHECK_CU(cuGraphDebugDotPrint(graph, path.c_str(), 0));
  FILE* file = fopen(path.c_str(), "r");
  char line[64] = {};
  e2e::expect(file != nullptr && fgets(line, sizeof(line), file) != nullptr &&
                  std::string(line).substr(0, 7) == "digraph",
              "the dump is a DOT file");
  if (file != nullptr) fclose(file);
  unlink(path.c_str());

  const CUgraphExec exec = instantiate(graph);
  CHECK_CU(cuGraphDestroy(graph));
  e2e::expect(g_destroyed == 0, "the executable graph keeps the user object");
  for (int i = 0; i < 10; i++) {
    source.assign(kWords, static_cast<uint32_t>(i));
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    std::vector<uint32_t> expected = source;
    e2e::mix_on_host(expected, 4);
    if (target != expected) e2e::expect(false, "launch %d", i);
  }
  e2e::expect(g_calls == 20, "%d calls of host functions", g_calls.load());
  CHECK_CU(cuGraphExecDestroy(exec));
  for (int i = 0; i < 2000 && g_destroyed == 0; i++) usleep(1000);
  e2e::expect(g_destroyed == 1, "the user object went with it");
}

// As PyTorch and XLA do: captures again and updates the executable graph.
void update_by_capture(e2e::Session& session, CUstream stream) {
  const CUfunction mix = session.function("mix");
  const unsigned grid = e2e::blocks_for(kWords, 128);
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(kWords, 0)), other(kWords);
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr, inside = nullptr;
  CHECK_CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  for (CUevent* event : {&fork, &join, &inside}) CHECK_CU(cuEventCreate(event, CU_EVENT_DEFAULT));
  CUgraphExec exec = nullptr;
  std::vector<uint32_t> expected(kWords, 0);
  for (uint32_t round = 1; round <= 4; round++) {
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    e2e::launch(mix, grid, 128, 0, stream, words.address, kWords, round);
    CHECK_CU(cuEventRecord(fork, stream));
    CHECK_CU(cuStreamWaitEvent(side, fork, 0));
    CHECK_CU(cuEventRecordWithFlags(inside, side, CU_EVENT_RECORD_EXTERNAL));
    CHECK_CU(cuMemsetD32Async(other.address, round, kWords, side));
    CHECK_CU(cuEventRecord(join, side));
    CHECK_CU(cuStreamWaitEvent(stream, join, 0));
    e2e::launch(mix, grid, 128, 0, stream, other.address, kWords, round);
    CUgraph graph = nullptr;
    CHECK_CU(cuStreamEndCapture(stream, &graph));
    if (exec == nullptr) {
      exec = instantiate(graph);
    } else {
      CUgraphExecUpdateResultInfo info{};
      CHECK_CU(cuGraphExecUpdate_v2(exec, graph, &info));
    }
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    e2e::mix_on_host(expected, round);
    std::vector<uint32_t> side_expected(kWords, round);
    e2e::mix_on_host(side_expected, round);
    e2e::expect(words.get() == expected && other.get() == side_expected, "round %u", round);
    e2e::expect_result("the event inside is complete", cuEventQuery(inside), CUDA_SUCCESS);
  }
  CHECK_CU(cuGraphExecDestroy(exec));

  // A capture into an existing graph, behind one of its nodes.
  CUgraph graph = nullptr;
  CUgraphNode empty = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuGraphAddEmptyNode(&empty, graph, nullptr, 0));
  CHECK_CU(cuStreamBeginCaptureToGraph(stream, graph, &empty, nullptr, 1,
                                       CU_STREAM_CAPTURE_MODE_RELAXED));
  e2e::launch(mix, grid, 128, 0, stream, words.address, kWords, 9u);
  CUgraph same = nullptr;
  CHECK_CU(cuStreamEndCapture(stream, &same));
  size_t behind = 0;
  CHECK_CU(cuGraphNodeGetDependentNodes(empty, nullptr, &behind));
  e2e::expect(same == graph && behind == 1, "captured into a graph that exists");
  exec = instantiate(graph);
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  e2e::mix_on_host(expected, 9);
  e2e::expect(words.get() == expected, "it runs");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));

  // A forked stream that is not joined.
  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_CU(cuEventRecord(fork, stream));
  CHECK_CU(cuStreamWaitEvent(side, fork, 0));
  CHECK_CU(cuMemsetD32Async(other.address, 1, kWords, side));
  e2e::expect_result("a fork without join", cuStreamEndCapture(stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK_CU(cuStreamDestroy_v2(side));
  for (CUevent event : {fork, join, inside}) CHECK_CU(cuEventDestroy_v2(event));
}

// Allocation nodes in graphs.
void memory(e2e::Session& session, CUstream stream) {
  const CUfunction mix = session.function("mix");
  const unsigned grid = e2e::blocks_for(kWords, 128);
  e2e::Buffer<uint32_t> result(kWords);
  CUdeviceptr scratch = 0;
  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CHECK_CU(cuMemAllocAsync(&scratch, kWords * 4, stream));
  CHECK_CU(cuMemsetD32Async(scratch, 3, kWords, stream));
  e2e::launch(mix, grid, 128, 0, stream, scratch, kWords, 5u);
  CHECK_CU(cuMemcpyDtoDAsync_v2(result.address, scratch, kWords * 4, stream));
  CHECK_CU(cuMemFreeAsync(scratch, stream));
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  CUgraphNode nodes[8] = {};
  size_t count = 8;
  CHECK_CU(cuGraphGetNodes(graph, nodes, &count));
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  CHECK_CU(cuGraphMemAllocNodeGetParams(nodes[0], &params));
  e2e::expect(count == 5 && params.dptr == scratch && params.bytesize == kWords * 4,
              "the allocation is a node");
  CUgraphExec exec = instantiate(graph);
  for (int i = 0; i < 3; i++) CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  std::vector<uint32_t> expected(kWords, 3);
  e2e::mix_on_host(expected, 5);
  e2e::expect(result.get() == expected, "memory of the graph");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));

  // An allocation that the graph does not free.
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS wanted{};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.device};
  wanted.bytesize = kWords * 4;
  CUgraphNode allocated = nullptr, filled = nullptr;
  CHECK_CU(cuGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &wanted));
  CUDA_MEMSET_NODE_PARAMS fill{wanted.dptr, 0, 8, 4, kWords, 1};
  CHECK_CU(cuGraphAddMemsetNode(&filled, graph, &allocated, 1, &fill, session.context));
  exec = instantiate(graph);
  CHECK_CU(cuGraphLaunch(exec, stream));
  std::vector<uint32_t> seen(kWords);
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuMemcpyDtoH_v2(seen.data(), wanted.dptr, kWords * 4));
  e2e::expect(seen == std::vector<uint32_t>(kWords, 8), "memory that outlives the launch");
  cuuint64_t used = 0;
  CHECK_CU(cuDeviceGetGraphMemAttribute(session.device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  e2e::expect(used >= kWords * 4, "graphs use memory");
  e2e::expect_result("a launch while it lives", cuGraphLaunch(exec, stream),
                     CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuMemFreeAsync(wanted.dptr, stream));
  CHECK_CU(cuGraphLaunch(exec, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuMemFree_v2(wanted.dptr));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuDeviceGraphMemTrim(session.device));
  CHECK_CU(cuDeviceGetGraphMemAttribute(session.device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  e2e::expect(used == 0, "all of it is free again");
}

// cuDNN captures its own work with invalid addresses, counts the nodes and destroys the graph:
// addresses are checked only when a graph is instantiated or launched.
void made_up_addresses(CUstream stream) {
  CUgraph graph = nullptr;
  size_t nodes = 0;
  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK_CU(cuMemsetD8Async(0x80, 0, kWords, stream));
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  e2e::expect(nodes == 1, "%zu node", nodes);
  CUgraphExec exec = nullptr;
  e2e::expect_result("a graph that fills what is no memory",
                     cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(cuGraphDestroy(graph));
}

}  // namespace

int main(int argc, char** argv) {
  e2e::Session session;
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  if (argc > 1 && std::string(argv[1]) == "memory") {
    memory(session, stream);
  } else {
    libraries(session, stream);
    update_by_capture(session, stream);
    made_up_addresses(stream);
  }
  CHECK_CU(cuStreamDestroy_v2(stream));
  return e2e::finish();
}
