// SPDX-License-Identifier: Apache-2.0
// Graphs built node by node: every kind of node, edges and queries of them, clones, child graphs,
// changes of nodes before and after instantiation, updates. Run by run_e2e.py.
// usage: drv_graph_nodes build|change|bad
#include <atomic>
#include <string>

#include "driver.h"

namespace {

constexpr uint32_t kWords = 3000;

struct Fixture {
  e2e::Session session;
  CUfunction mix = session.function("mix");
  CUstream stream = nullptr;
  Fixture() { CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); }
  ~Fixture() { CHECK_CU(cuStreamDestroy_v2(stream)); }

  // Parameters of a launch of mix; they live as long as this object.
  struct Mix {
    CUdeviceptr address;
    uint32_t words = kWords;
    uint32_t key;
    void* pointers[3];
    CUDA_KERNEL_NODE_PARAMS params{};
    Mix(CUfunction function, CUdeviceptr to, uint32_t with) : address(to), key(with) {
      pointers[0] = &address;
      pointers[1] = &words;
      pointers[2] = &key;
      params.func = function;
      params.gridDimX = e2e::blocks_for(kWords, 128);
      params.gridDimY = params.gridDimZ = 1;
      params.blockDimX = 128;
      params.blockDimY = params.blockDimZ = 1;
      params.kernelParams = pointers;
    }
    Mix(const Mix&) = delete;
  };

  CUgraphNode add_mix(CUgraph graph, CUdeviceptr to, uint32_t key,
                      std::vector<CUgraphNode> behind = {}) {
    Mix launch(mix, to, key);
    CUgraphNode node = nullptr;
    CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, behind.data(), behind.size(), &launch.params));
    return node;
  }
  CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  void run(CUgraphExec exec, int times = 1) {
    for (int i = 0; i < times; i++) CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
  }
};

CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to, uint32_t value, size_t words = kWords) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = to;
  fill.value = value;
  fill.elementSize = 4;
  fill.width = words;
  fill.height = 1;
  return fill;
}

CUDA_MEMCPY3D copy_of(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D copy_to_host(void* to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D copy = copy_of(0, from, bytes);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  return copy;
}

CUDA_MEMCPY3D copy_from_host(CUdeviceptr to, const void* from, size_t bytes) {
  CUDA_MEMCPY3D copy = copy_of(to, 0, bytes);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  return copy;
}

std::vector<uint32_t> mixed(std::vector<uint32_t> words, std::initializer_list<uint32_t> keys) {
  for (uint32_t key : keys) e2e::mix_on_host(words, key);
  return words;
}

void add_one(void* counter) { static_cast<std::atomic<int>*>(counter)->fetch_add(1); }
void add_hundred(void* counter) { static_cast<std::atomic<int>*>(counter)->fetch_add(100); }

// ---- Building
// ------------------------------------------------------------------------------------

void diamond(Fixture& f) {
  // fill -> (mix left, copy -> mix right) -> join, with a host function in between.
  e2e::Buffer<uint32_t> left(kWords), right(kWords);
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUgraphNode fill = nullptr, copy = nullptr, host = nullptr, join = nullptr, to_host = nullptr;
  const CUDA_MEMSET_NODE_PARAMS zero = fill_of(left.address, 7);
  CHECK_CU(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &zero, f.session.context));
  const CUDA_MEMCPY3D across = copy_of(right.address, left.address, kWords * 4);
  CHECK_CU(cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &across, f.session.context));
  const CUgraphNode mix_left = f.add_mix(graph, left.address, 1, {copy});
  const CUgraphNode mix_right = f.add_mix(graph, right.address, 2, {copy});
  std::atomic<int> calls{0};
  const CUDA_HOST_NODE_PARAMS count{add_one, &calls};
  const CUgraphNode both[] = {mix_left, mix_right};
  CHECK_CU(cuGraphAddHostNode(&host, graph, both, 2, &count));
  CHECK_CU(cuGraphAddEmptyNode(&join, graph, &host, 1));
  // A copy to pageable memory of the program.
  std::vector<uint32_t> seen(kWords);
  const CUDA_MEMCPY3D back = copy_to_host(seen.data(), left.address, kWords * 4);
  CHECK_CU(cuGraphAddMemcpyNode(&to_host, graph, &join, 1, &back, f.session.context));

  size_t nodes = 0, roots = 0, edges = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  CHECK_CU(cuGraphGetRootNodes(graph, nullptr, &roots));
  CHECK_CU(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  e2e::expect(nodes == 7 && roots == 1 && edges == 7, "%zu nodes, %zu root, %zu edges", nodes,
              roots, edges);
  CUgraphNode root = nullptr;
  CHECK_CU(cuGraphGetRootNodes(graph, &root, &roots));
  e2e::expect(root == fill, "the root is the fill");
  CUgraphNode before[4] = {};
  size_t count_before = 4;
  CHECK_CU(cuGraphNodeGetDependencies(host, before, &count_before));
  e2e::expect(count_before == 2 && before[0] == mix_left && before[1] == mix_right && !before[2],
              "what the host function waits for");
  size_t count_after = 0;
  CHECK_CU(cuGraphNodeGetDependentNodes(copy, nullptr, &count_after));
  e2e::expect(count_after == 2, "%zu nodes wait for the copy", count_after);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CHECK_CU(cuGraphNodeGetType(host, &type));
  e2e::expect(type == CU_GRAPH_NODE_TYPE_HOST, "its type");

  const CUgraphExec exec = f.instantiate(graph);
  f.run(exec, 3);
  const std::vector<uint32_t> start(kWords, 7);
  e2e::expect(calls == 3, "the host function ran %d times", calls.load());
  e2e::expect(seen == mixed(start, {1}), "the branch in ordinary memory");
  e2e::expect(right.get() == mixed(start, {2}), "the other branch");

  // A clone has nodes of its own, and remains when the original graph is destroyed.
  CUgraph clone = nullptr;
  CUgraphNode twin = nullptr;
  CHECK_CU(cuGraphClone(&clone, graph));
  CHECK_CU(cuGraphNodeFindInClone(&twin, mix_left, clone));
  CHECK_CU(cuGraphDestroy(graph));
  CUDA_KERNEL_NODE_PARAMS params{};
  CHECK_CU(cuGraphKernelNodeGetParams_v2(twin, &params));
  e2e::expect(params.func == f.mix && params.blockDimX == 128 &&
                  *static_cast<uint32_t*>(params.kernelParams[2]) == 1,
              "the parameters of a cloned node");
  Fixture::Mix other(f.mix, left.address, 9);
  CHECK_CU(cuGraphKernelNodeSetParams_v2(twin, &other.params));
  const CUgraphExec cloned = f.instantiate(clone);
  f.run(cloned);
  e2e::expect(seen == mixed(start, {9}), "a changed clone");
  f.run(exec);
  e2e::expect(seen == mixed(start, {1}), "the first graph as before");
  e2e::expect(calls == 5, "the host function ran %d times", calls.load());
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphExecDestroy(cloned));
  CHECK_CU(cuGraphDestroy(clone));
}

void children_and_events(Fixture& f) {
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(kWords, 0));
  CUgraph child = nullptr, graph = nullptr, inner = nullptr;
  CHECK_CU(cuGraphCreate(&child, 0));
  CHECK_CU(cuGraphCreate(&graph, 0));
  const CUgraphNode first = f.add_mix(child, words.address, 1);
  f.add_mix(child, words.address, 2, {first});
  CUgraphNode once = nullptr, again = nullptr, record = nullptr, wait = nullptr;
  CUevent event = nullptr;
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CHECK_CU(cuGraphAddChildGraphNode(&once, graph, nullptr, 0, child));
  CHECK_CU(cuGraphAddEventRecordNode(&record, graph, &once, 1, event));
  CHECK_CU(cuGraphAddEventWaitNode(&wait, graph, &record, 1, event));
  CHECK_CU(cuGraphAddChildGraphNode(&again, graph, &wait, 1, child));
  CHECK_CU(cuGraphDestroy(child));
  CHECK_CU(cuGraphChildGraphNodeGetGraph(again, &inner));
  size_t nodes = 0;
  CHECK_CU(cuGraphGetNodes(inner, nullptr, &nodes));
  e2e::expect(nodes == 2, "%zu nodes in the child", nodes);
  CUevent held = nullptr;
  CHECK_CU(cuGraphEventRecordNodeGetEvent(record, &held));
  e2e::expect(held == event, "the event of a node");
  const CUgraphExec exec = f.instantiate(graph);
  f.run(exec, 2);
  e2e::expect(words.get() == mixed(std::vector<uint32_t>(kWords, 0), {1, 2, 1, 2, 1, 2, 1, 2}),
              "children run in order");
  e2e::expect_result("the recorded event is complete", cuEventQuery(event), CUDA_SUCCESS);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuEventDestroy_v2(event));
}

void values_and_edges(Fixture& f) {
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(64, 0));
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = words.address + 4;
  operations[0].writeValue.value = 11;
  operations[1].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = words.address + 4;
  operations[1].waitValue.value = 11;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{f.session.context, 2, operations, 0};
  CUgraphNode written = nullptr, copied = nullptr;
  CHECK_CU(cuGraphAddBatchMemOpNode(&written, graph, nullptr, 0, &batch));
  const CUDA_MEMCPY3D copy = copy_of(words.address + 8, words.address + 4, 4);
  CHECK_CU(cuGraphAddMemcpyNode(&copied, graph, nullptr, 0, &copy, f.session.context));
  CHECK_CU(cuGraphAddDependencies(graph, &written, &copied, 1));
  e2e::expect_result("the same edge again", cuGraphAddDependencies(graph, &written, &copied, 1),
                     CUDA_ERROR_INVALID_VALUE);
  CUgraphEdgeData data{};
  CUgraphNode from = nullptr, to = nullptr;
  size_t edges = 1;
  CHECK_CU(cuGraphGetEdges_v2(graph, &from, &to, &data, &edges));
  e2e::expect(edges == 1 && from == written && to == copied && data.type == 0, "the edge");
  const CUgraphExec exec = f.instantiate(graph);
  f.run(exec);
  const std::vector<uint32_t> seen = words.get();
  e2e::expect(seen[1] == 11 && seen[2] == 11, "values %u, %u", seen[1], seen[2]);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphRemoveDependencies(graph, &written, &copied, 1));
  CHECK_CU(cuGraphDestroyNode(written));
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &edges));
  e2e::expect(edges == 1, "%zu node is left", edges);
  CHECK_CU(cuGraphDestroy(graph));
}

// ---- Changing
// ------------------------------------------------------------------------------------

void change_executable(Fixture& f) {
  e2e::Buffer<uint32_t> words(kWords), copy_target(kWords);
  std::vector<uint32_t> source(kWords, 3), other(kWords, 4);
  std::atomic<int> calls{0};
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUgraphNode in = nullptr, host = nullptr, across = nullptr;
  CUDA_MEMCPY3D from_host = copy_from_host(words.address, source.data(), kWords * 4);
  CHECK_CU(cuGraphAddMemcpyNode(&in, graph, nullptr, 0, &from_host, f.session.context));
  const CUgraphNode mix = f.add_mix(graph, words.address, 1, {in});
  CUDA_HOST_NODE_PARAMS call{add_one, &calls};
  CHECK_CU(cuGraphAddHostNode(&host, graph, &mix, 1, &call));
  const CUDA_MEMCPY3D copy = copy_of(copy_target.address, words.address, kWords * 4);
  CHECK_CU(cuGraphAddMemcpyNode(&across, graph, &host, 1, &copy, f.session.context));
  const CUgraphExec exec = f.instantiate(graph);
  f.run(exec);
  e2e::expect(copy_target.get() == mixed(source, {1}), "as it was made");
  source.assign(kWords, 5);
  f.run(exec);
  e2e::expect(copy_target.get() == mixed(source, {1}), "ordinary memory is read at every launch");

  Fixture::Mix launch(f.mix, words.address, 6);
  CHECK_CU(cuGraphExecKernelNodeSetParams_v2(exec, mix, &launch.params));
  from_host.srcHost = other.data();
  CHECK_CU(cuGraphExecMemcpyNodeSetParams(exec, in, &from_host, f.session.context));
  call.fn = add_hundred;
  CHECK_CU(cuGraphExecHostNodeSetParams(exec, host, &call));
  f.run(exec);
  e2e::expect(copy_target.get() == mixed(other, {6}), "another key and source");
  e2e::expect(calls == 102, "another host function, %d", calls.load());
  CHECK_CU(cuGraphNodeSetEnabled(exec, mix, 0));
  unsigned enabled = 1;
  CHECK_CU(cuGraphNodeGetEnabled(exec, mix, &enabled));
  f.run(exec);
  e2e::expect(copy_target.get() == other && enabled == 0, "a node switched off");
  CHECK_CU(cuGraphNodeSetEnabled(exec, mix, 1));

  // The graph itself is unchanged.
  CUDA_KERNEL_NODE_PARAMS params{};
  CHECK_CU(cuGraphKernelNodeGetParams_v2(mix, &params));
  e2e::expect(*static_cast<uint32_t*>(params.kernelParams[2]) == 1, "the graph keeps its key");

  // Update from a changed copy of the graph.
  CUgraph clone = nullptr;
  CUgraphNode twin = nullptr;
  CHECK_CU(cuGraphClone(&clone, graph));
  CHECK_CU(cuGraphNodeFindInClone(&twin, mix, clone));
  Fixture::Mix updated(f.mix, words.address, 8);
  CHECK_CU(cuGraphKernelNodeSetParams_v2(twin, &updated.params));
  CUgraphExecUpdateResultInfo info{};
  CHECK_CU(cuGraphExecUpdate_v2(exec, clone, &info));
  e2e::expect(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "updated");
  calls = 0;
  f.run(exec);
  e2e::expect(copy_target.get() == mixed(source, {8}), "the update's key and source");
  e2e::expect(calls == 1, "the update's host function, %d", calls.load());

  CUgraphNode more = nullptr;
  CHECK_CU(cuGraphAddEmptyNode(&more, clone, nullptr, 0));
  e2e::expect_result("an update of another shape", cuGraphExecUpdate_v2(exec, clone, &info),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  f.run(exec);
  e2e::expect(copy_target.get() == mixed(source, {8}), "a failed update changes nothing");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(clone));
  CHECK_CU(cuGraphDestroy(graph));
}

void change_generic(Fixture& f) {
  e2e::Buffer<uint32_t> words(kWords);
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CUgraphNodeParams fill{};
  fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
  const CUDA_MEMSET_NODE_PARAMS five = fill_of(words.address, 5);
  memcpy(&fill.memset, &five, sizeof(five));
  CUgraphNode node = nullptr, mix = nullptr;
  CHECK_CU(cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &fill));
  Fixture::Mix launch(f.mix, words.address, 3);
  CUgraphNodeParams kernel{};
  kernel.type = CU_GRAPH_NODE_TYPE_KERNEL;
  memcpy(&kernel.kernel, &launch.params, sizeof(launch.params));
  CHECK_CU(cuGraphAddNode_v2(&mix, graph, &node, nullptr, 1, &kernel));
  const CUgraphExec exec = f.instantiate(graph);
  f.run(exec);
  e2e::expect(words.get() == mixed(std::vector<uint32_t>(kWords, 5), {3}), "nodes of any kind");
  fill.memset.value = 6;
  CHECK_CU(cuGraphExecNodeSetParams(exec, node, &fill));
  f.run(exec);
  e2e::expect(words.get() == mixed(std::vector<uint32_t>(kWords, 6), {3}), "changed in the exec");
  fill.memset.value = 9;
  CHECK_CU(cuGraphNodeSetParams(node, &fill));
  const CUgraphExec fresh = f.instantiate(graph);
  f.run(fresh);
  e2e::expect(words.get() == mixed(std::vector<uint32_t>(kWords, 9), {3}), "changed in the graph");
  CUkernelNodeAttrValue value{};
  value.priority = -1;
  CHECK_CU(cuGraphKernelNodeSetAttribute(mix, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  value.priority = 0;
  CHECK_CU(cuGraphKernelNodeGetAttribute(mix, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  e2e::expect(value.priority == -1, "an attribute of a kernel");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphExecDestroy(fresh));
  CHECK_CU(cuGraphDestroy(graph));
}

// ---- Misuse
// --------------------------------------------------------------------------------------

void misuse(Fixture& f) {
  e2e::Buffer<uint32_t> words(kWords);
  CUgraph graph = nullptr, other = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  CHECK_CU(cuGraphCreate(&other, 0));
  CUgraphNode node = nullptr, foreign = nullptr;
  CHECK_CU(cuGraphAddEmptyNode(&foreign, other, nullptr, 0));
  const CUresult invalid = CUDA_ERROR_INVALID_VALUE;
  e2e::expect_result("flags", cuGraphCreate(&graph, 1), invalid);
  e2e::expect_result("a node of another graph", cuGraphAddEmptyNode(&node, graph, &foreign, 1),
                     invalid);
  e2e::expect_result("edges across graphs", cuGraphAddDependencies(graph, &foreign, &foreign, 1),
                     invalid);
  CUDA_MEMSET_NODE_PARAMS fill = fill_of(words.address, 1, kWords + 128 * 1024 * 1024);
  e2e::expect_result("a fill beyond its memory",
                     cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, f.session.context),
                     invalid);
  fill = fill_of(words.address, 1);
  fill.elementSize = 3;
  e2e::expect_result("elements of three bytes",
                     cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, f.session.context),
                     invalid);
  CUDA_HOST_NODE_PARAMS nothing{nullptr, nullptr};
  e2e::expect_result("no host function", cuGraphAddHostNode(&node, graph, nullptr, 0, &nothing),
                     invalid);
  Fixture::Mix launch(f.mix, words.address, 1);
  launch.params.blockDimX = 4096;
  e2e::expect_result("a block too large",
                     cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &launch.params), invalid);
  e2e::expect_result("a graph as its own child",
                     cuGraphAddChildGraphNode(&node, graph, nullptr, 0, graph), invalid);
  e2e::expect_result("parameters of another kind", cuGraphMemsetNodeSetParams(foreign, &fill),
                     invalid);
  size_t count = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &count));
  e2e::expect(count == 0, "nothing was added");
  CHECK_CU(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  const CUgraphExec exec = f.instantiate(graph);
  launch.params.blockDimX = 128;
  e2e::expect_result("a node of no kernel in an exec",
                     cuGraphExecKernelNodeSetParams_v2(exec, node, &launch.params), invalid);
  CHECK_CU(cuGraphDestroy(other));
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  e2e::expect_result("a node of a destroyed graph", cuGraphNodeGetType(foreign, &type), invalid);
  e2e::expect_result("a destroyed graph", cuGraphDestroy(other), invalid);
  CHECK_CU(cuGraphExecDestroy(exec));
  e2e::expect_result("a destroyed exec", cuGraphLaunch(exec, f.stream), invalid);
  CHECK_CU(cuGraphDestroy(graph));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "build";
  Fixture fixture;
  if (group == "build") {
    diamond(fixture);
    children_and_events(fixture);
    values_and_edges(fixture);
  } else if (group == "change") {
    change_executable(fixture);
    change_generic(fixture);
  } else {
    misuse(fixture);
  }
  return e2e::finish();
}
