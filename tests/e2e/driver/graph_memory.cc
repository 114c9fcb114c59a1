// SPDX-License-Identifier: Apache-2.0
// Memory that graphs allocate: which calls may free it, its lifetime, its use of device memory, and
// what CUDA forbids for such graphs. If CUDA documents that a call fails, but not with which error,
// only the failure is compared. Run by run_e2e.py.
// usage: drv_graph_memory life|footprint|rules
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr auto kInvalid = CUDA_ERROR_INVALID_VALUE;
constexpr uint32_t kWords = 1 << 18;
constexpr size_t kBytes = kWords * sizeof(uint32_t);

struct Fixture {
  e2e::Session session;
  CUstream stream = nullptr;
  e2e::Buffer<uint32_t> result{kWords};
  Fixture() { CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); }
  Fixture(const Fixture&) = delete;
  ~Fixture() { CHECK_CU(cuStreamDestroy_v2(stream)); }

  CUgraph graph() {
    CUgraph made = nullptr;
    CHECK_CU(cuGraphCreate(&made, 0));
    return made;
  }
  CUdeviceptr add_allocation(CUgraph graph, CUgraphNode* node) {
    CUDA_MEM_ALLOC_NODE_PARAMS wanted{};
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, session.device};
    wanted.bytesize = kBytes;
    CHECK_CU(cuGraphAddMemAllocNode(node, graph, nullptr, 0, &wanted));
    return wanted.dptr;
  }
  CUgraphNode add_fill(CUgraph graph, CUgraphNode behind, CUdeviceptr address, uint32_t value) {
    CUDA_MEMSET_NODE_PARAMS fill{address, 0, value, 4, kWords, 1};
    CUgraphNode node = nullptr;
    CHECK_CU(cuGraphAddMemsetNode(&node, graph, &behind, 1, &fill, session.context));
    return node;
  }
  CUgraphExec instantiate(CUgraph graph, uint64_t flags = 0) {
    CUgraphExec exec = nullptr;
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
  }
  // A graph that allocates and fills memory, and does not free it.
  CUgraph leaving(CUdeviceptr* address, uint32_t value) {
    CUgraph made = graph();
    CUgraphNode node = nullptr;
    *address = add_allocation(made, &node);
    add_fill(made, node, *address, value);
    return made;
  }
  void capture_scratch(CUgraph* graph, CUdeviceptr* address, uint32_t value) {
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CU(cuMemAllocAsync(address, kBytes, stream));
    CHECK_CU(cuMemsetD32Async(*address, value, kWords, stream));
    CHECK_CU(cuMemcpyDtoDAsync_v2(result.address, *address, kBytes, stream));
    CHECK_CU(cuMemFreeAsync(*address, stream));
    CHECK_CU(cuStreamEndCapture(stream, graph));
  }
  // Captures an allocation that is filled by a copy of `source`.
  void capture_copies(CUgraph* graph, CUdeviceptr* address, CUdeviceptr source) {
    CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_CU(cuMemAllocAsync(address, kBytes, stream));
    CHECK_CU(cuMemcpyDtoDAsync_v2(*address, source, kBytes, stream));
    CHECK_CU(cuMemcpyDtoDAsync_v2(result.address, *address, kBytes, stream));
    CHECK_CU(cuMemFreeAsync(*address, stream));
    CHECK_CU(cuStreamEndCapture(stream, graph));
  }
  bool holds(CUdeviceptr address, uint32_t value) {
    std::vector<uint32_t> seen(kWords);
    CHECK_CU(cuMemcpyDtoHAsync_v2(seen.data(), address, kBytes, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    return seen == std::vector<uint32_t>(kWords, value);
  }
  uint64_t used() {
    cuuint64_t bytes = 0;
    CHECK_CU(
        cuDeviceGetGraphMemAttribute(session.device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
    return bytes;
  }
};

// ---- Life ---------------------------------------------------------------------------------------

void freed_at_the_next_launch(Fixture& f) {
  CUdeviceptr address = 0;
  const CUgraph graph = f.leaving(&address, 3);
  const CUgraphExec exec = f.instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  for (int i = 0; i < 3; i++) CHECK_CU(cuGraphLaunch(exec, f.stream));
  expect(f.holds(address, 3), "each launch frees what the last one left");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  expect(f.holds(address, 3), "what the last one left outlives its graph");
  CHECK_CU(cuMemFree_v2(address));
}

void freed_by_the_program(Fixture& f) {
  CUdeviceptr address = 0;
  const CUgraph graph = f.leaving(&address, 4);
  const CUgraphExec exec = f.instantiate(graph);
  CUstream other = nullptr;
  CUevent used = nullptr;
  CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < 3; i++) {
    CHECK_CU(cuGraphLaunch(exec, f.stream));
    CHECK_CU(cuMemcpyDtoDAsync_v2(f.result.address, address, kBytes, f.stream));
    CHECK_CU(cuEventRecord(used, f.stream));
    CHECK_CU(cuStreamWaitEvent(other, used, 0));
    CHECK_CU(cuMemFreeAsync(address, other));
    CHECK_CU(cuEventRecord(used, other));
    CHECK_CU(cuStreamWaitEvent(f.stream, used, 0));
  }
  expect(f.holds(f.result.address, 4), "freed in another stream, allocated again");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuEventDestroy_v2(used));
  CHECK_CU(cuStreamDestroy_v2(other));
}

void freed_by_another_graph(Fixture& f) {
  CUdeviceptr address = 0;
  const CUgraph first = f.leaving(&address, 5);
  const CUgraph second = f.graph();
  CUgraphNode copy = nullptr, freed = nullptr;
  CUDA_MEMCPY3D out{};
  out.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = address;
  out.dstDevice = f.result.address;
  out.WidthInBytes = kBytes;
  out.Height = out.Depth = 1;
  CHECK_CU(cuGraphAddMemcpyNode(&copy, second, nullptr, 0, &out, f.session.context));
  CHECK_CU(cuGraphAddMemFreeNode(&freed, second, &copy, 1, address));
  const CUgraphExec allocates = f.instantiate(first);
  const CUgraphExec frees = f.instantiate(second);
  for (int i = 0; i < 3; i++) {
    CHECK_CU(cuGraphLaunch(allocates, f.stream));
    CHECK_CU(cuGraphLaunch(frees, f.stream));
  }
  expect(f.holds(f.result.address, 5), "one graph allocates, another frees");
  expect_result("the program frees it once more", cuMemFreeAsync(address, f.stream), kInvalid);
  for (CUgraphExec exec : {allocates, frees}) CHECK_CU(cuGraphExecDestroy(exec));
  for (CUgraph graph : {first, second}) CHECK_CU(cuGraphDestroy(graph));
}

// A new capture allocates memory of its own, which an executable graph that is updated from it
// takes over. Copies and kernels can be updated like that. On an H200 (580.159), an update of a
// fill of graph memory is refused sometimes.
void updated(Fixture& f) {
  CUgraph first = nullptr, second = nullptr;
  CUdeviceptr one = 0, other = 0;
  const e2e::Buffer<uint32_t> six(std::vector<uint32_t>(kWords, 6));
  const e2e::Buffer<uint32_t> seven(std::vector<uint32_t>(kWords, 7));
  f.capture_copies(&first, &one, six.address);
  const CUgraphExec exec = f.instantiate(first);
  CHECK_CU(cuGraphLaunch(exec, f.stream));
  expect(f.holds(f.result.address, 6), "as it was captured");
  f.capture_copies(&second, &other, seven.address);
  CHECK_CU(cuGraphExecUpdate_v2(exec, second, nullptr));
  CHECK_CU(cuGraphDestroy(second));
  CHECK_CU(cuGraphLaunch(exec, f.stream));
  CHECK_CU(cuGraphLaunch(exec, f.stream));
  expect(f.holds(f.result.address, 7), "updated by another capture");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(first));
}

bool is_known(Fixture& f, CUdeviceptr address) {
  unsigned type = 0;
  int device = -1;
  size_t bytes = 0;
  CUdeviceptr base = 0;
  const CUresult asked = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  const CUresult range = cuMemGetAddressRange_v2(&base, &bytes, address);
  if (asked == kInvalid && range == CUDA_ERROR_NOT_FOUND) return false;
  CHECK_CU(asked);
  CHECK_CU(range);
  CHECK_CU(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  expect(type == CU_MEMORYTYPE_DEVICE && device == f.session.device && base == address &&
             bytes == kBytes,
         "device memory");
  return true;
}

void pointers(Fixture& f) {
  CUdeviceptr address = 0;
  const CUgraph graph = f.leaving(&address, 8);
  expect(!is_known(f, address), "no memory when the node is made");
  const CUgraphExec exec = f.instantiate(graph);
  CHECK_CU(cuGraphUpload(exec, f.stream));
  expect(!is_known(f, address), "nor when the graph is uploaded");
  for (int i = 0; i < 2; i++) {
    CHECK_CU(cuGraphLaunch(exec, f.stream));
    expect(is_known(f, address), "but from the launch on");
    CHECK_CU(cuMemFreeAsync(address, f.stream));
    expect(!is_known(f, address), "until it is freed");
  }
  CHECK_CU(cuGraphLaunch(exec, f.stream));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  expect(is_known(f, address), "the graph need not live");
  CHECK_CU(cuMemFree_v2(address));
  expect(!is_known(f, address), "freed at once");
}

// ---- Footprint ----------------------------------------------------------------------------------

void footprint(Fixture& f) {
  CHECK_CU(cuDeviceGraphMemTrim(f.session.device));
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  f.capture_scratch(&graph, &address, 9);
  const CUgraphExec exec = f.instantiate(graph);
  expect(f.used() == 0, "an executable graph costs nothing before its first launch");
  CHECK_CU(cuGraphLaunch(exec, f.stream));
  CHECK_CU(cuStreamSynchronize(f.stream));
  const uint64_t once = f.used();
  expect(once >= kBytes, "it keeps the memory that it has freed");
  CHECK_CU(cuGraphLaunch(exec, f.stream));
  CHECK_CU(cuStreamSynchronize(f.stream));
  expect(f.used() == once, "and takes it again");
  CHECK_CU(cuDeviceGraphMemTrim(f.session.device));
  expect(f.used() == 0, "until it is trimmed");
  cuuint64_t high = 0, reserved = 0;
  CHECK_CU(cuDeviceGetGraphMemAttribute(f.session.device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
  CHECK_CU(cuDeviceGetGraphMemAttribute(f.session.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
                                        &reserved));
  expect(high == once && reserved >= once, "the high-water marks");
  cuuint64_t zero = 0;
  CHECK_CU(cuDeviceSetGraphMemAttribute(f.session.device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  CHECK_CU(cuDeviceGetGraphMemAttribute(f.session.device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
  expect(high == 0, "one starts again");
  CHECK_CU(cuGraphLaunch(exec, f.stream));
  expect(f.holds(f.result.address, 9), "a launch after that");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));

  const CUgraph leaving = f.leaving(&address, 10);
  const CUgraphExec left = f.instantiate(leaving);
  CHECK_CU(cuGraphLaunch(left, f.stream));
  CHECK_CU(cuStreamSynchronize(f.stream));
  CHECK_CU(cuDeviceGraphMemTrim(f.session.device));
  expect(f.used() >= kBytes && f.holds(address, 10), "what nobody has freed is not trimmed");
  CHECK_CU(cuMemFreeAsync(address, f.stream));
  CHECK_CU(cuStreamSynchronize(f.stream));
  CHECK_CU(cuDeviceGraphMemTrim(f.session.device));
  expect(f.used() == 0, "freed and trimmed while its graph lives");
  CHECK_CU(cuGraphExecDestroy(left));
  CHECK_CU(cuGraphDestroy(leaving));
}

// ---- Rules --------------------------------------------------------------------------------------

void refused(const char* what, CUresult result) {
  expect(result != CUDA_SUCCESS, "refused: %s", what);
}

void structure(Fixture& f) {
  CUgraph graph = f.graph(), clone = nullptr, parent = f.graph();
  CUgraphNode allocated = nullptr, freed = nullptr, node = nullptr;
  const CUdeviceptr address = f.add_allocation(graph, &allocated);
  const CUgraphNode fill = f.add_fill(graph, allocated, address, 1);
  CHECK_CU(cuGraphAddMemFreeNode(&freed, graph, &fill, 1, address));
  refused("a copy of the graph", cuGraphClone(&clone, graph));
  refused("the graph as a child", cuGraphAddChildGraphNode(&node, parent, nullptr, 0, graph));
  refused("one node less", cuGraphDestroyNode(fill));
  refused("one edge less", cuGraphRemoveDependencies(graph, &allocated, &fill, 1));
  CHECK_CU(cuGraphAddDependencies(graph, &allocated, &freed, 1));
  size_t nodes = 0, edges = 0;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  CHECK_CU(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  expect(nodes == 3 && edges == 3, "%zu nodes and %zu edges", nodes, edges);

  CUgraphExec exec = f.instantiate(graph), second = nullptr;
  refused("a second executable graph", cuGraphInstantiateWithFlags(&second, graph, 0));
  CHECK_CU(cuGraphExecDestroy(exec));
  exec = f.instantiate(graph);
  CHECK_CU(cuGraphLaunch(exec, f.stream));
  CHECK_CU(cuStreamSynchronize(f.stream));

  // An executable graph can't take over the memory of a graph that is instantiated itself.
  CUgraph same = nullptr, other = nullptr;
  CUdeviceptr scratch = 0;
  f.capture_scratch(&same, &scratch, 1);
  f.capture_scratch(&other, &scratch, 2);
  const CUgraphExec first = f.instantiate(same), taken = f.instantiate(other);
  CUgraphExecUpdateResultInfo info{};
  expect_result("an update from it", cuGraphExecUpdate_v2(first, other, &info),
                CUDA_ERROR_NOT_SUPPORTED);
  expect(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "which says nothing more");
  for (CUgraphExec one : {exec, first, taken}) CHECK_CU(cuGraphExecDestroy(one));
  for (CUgraph one : {graph, parent, same, other}) CHECK_CU(cuGraphDestroy(one));
}

void frees(Fixture& f) {
  CUgraph graph = f.graph(), captured = nullptr;
  CUgraphNode allocated = nullptr, freed = nullptr, again = nullptr;
  const CUdeviceptr address = f.add_allocation(graph, &allocated);
  expect_result("not launched yet", cuMemFreeAsync(address, f.stream), kInvalid);
  expect_result("nor freed at once", cuMemFree_v2(address), kInvalid);
  expect_result("the middle of an allocation",
                cuGraphAddMemFreeNode(&freed, graph, &allocated, 1, address + 256), kInvalid);
  expect_result("memory that is no graph's",
                cuGraphAddMemFreeNode(&freed, graph, &allocated, 1, f.result.address), kInvalid);
  expect_result("no memory", cuGraphAddMemFreeNode(&freed, graph, &allocated, 1, 64), kInvalid);
  CHECK_CU(cuGraphAddMemFreeNode(&freed, graph, &allocated, 1, address));
  expect_result("twice in one graph", cuGraphAddMemFreeNode(&again, graph, &freed, 1, address),
                kInvalid);
  CHECK_CU(cuGraphDestroy(graph));

  CHECK_CU(cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  expect_result("captured, of memory that is no graph's",
                cuMemFreeAsync(f.result.address, f.stream), kInvalid);
  CHECK_CU(cuMemsetD8Async(f.result.address, 0, 16, f.stream));
  CHECK_CU(cuStreamEndCapture(f.stream, &captured));
  CHECK_CU(cuGraphDestroy(captured));

  CUDA_MEM_ALLOC_NODE_PARAMS wanted{};
  CHECK_CU(cuGraphCreate(&graph, 0));
  expect_result("an allocation of no kind",
                cuGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &wanted), kInvalid);
  size_t nodes = 1;
  CHECK_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  expect(nodes == 0, "nothing was added");
  CHECK_CU(cuGraphDestroy(graph));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "life";
  Fixture fixture;
  if (group == "life") {
    freed_at_the_next_launch(fixture);
    freed_by_the_program(fixture);
    freed_by_another_graph(fixture);
    updated(fixture);
    pointers(fixture);
  } else if (group == "footprint") {
    footprint(fixture);
  } else {
    structure(fixture);
    frees(fixture);
  }
  return e2e::finish();
}
