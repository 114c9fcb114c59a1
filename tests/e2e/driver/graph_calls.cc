// SPDX-License-Identifier: Apache-2.0
// Reading and changing the nodes of graphs and executable graphs, for every kind of node and by the
// older versions of the calls; edges; user objects. Run by run_e2e.py.
// usage: drv_graph_calls nodes|execs|edges|memory|moved|cycles
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr auto kInvalid = CUDA_ERROR_INVALID_VALUE;

struct Fixture {
  e2e::Session session;
  CUfunction store = session.function("store_at");
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  e2e::Buffer<uint32_t> words{std::vector<uint32_t>(16, 0)};
  Fixture() {
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuGraphCreate(&graph, 0));
  }
  Fixture(const Fixture&) = delete;
  ~Fixture() {
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuStreamDestroy_v2(stream));
  }
  CUdeviceptr at(size_t word) const { return words.address + word * 4; }
  void run(CUgraphExec exec) {
    words.put(std::vector<uint32_t>(16, 0));
    CHECK_CU(cuGraphLaunch(exec, stream));
    CHECK_CU(cuStreamSynchronize(stream));
  }
  void run_graph() {
    CUgraphExec exec = nullptr;
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    run(exec);
    CHECK_CU(cuGraphExecDestroy(exec));
  }
  uint32_t word(size_t index) const { return words.get()[index]; }
};

// A launch of store_at in the structure from before CUDA 12.
struct Store {
  CUdeviceptr address;
  uint32_t value;
  void* pointers[2];
  CUDA_KERNEL_NODE_PARAMS_v1 params{};
  Store(const Fixture& f, size_t word, uint32_t with) : address(f.at(word)), value(with) {
    pointers[0] = &address;
    pointers[1] = &value;
    params.func = f.store;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = pointers;
  }
  Store(const Store&) = delete;
};

CUgraphNode add_store(Fixture& f, size_t word, uint32_t value) {
  const Store launch(f, word, value);
  CUgraphNode node = nullptr;
  CHECK_CU(cuGraphAddKernelNode(&node, f.graph, nullptr, 0, &launch.params));
  return node;
}

CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to, uint32_t value, size_t words) {
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

void add_one(void* counter) { ++*static_cast<int*>(counter); }
void add_ten(void* counter) { *static_cast<int*>(counter) += 10; }

// Whether an event was recorded: only then it has a time.
bool recorded(CUevent event) {
  float milliseconds = -1;
  return cuEventElapsedTime(&milliseconds, event, event) == CUDA_SUCCESS && milliseconds == 0;
}

CUevent new_event() {
  CUevent event = nullptr;
  CHECK_CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return event;
}

CUstreamBatchMemOpParams write_of(CUdeviceptr address, uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = address;
  operation.writeValue.value = value;
  return operation;
}

// ---- Nodes of a graph --------------------------------------------------------------------------

void nodes(Fixture& f) {
  const CUgraphNode kernel = add_store(f, 0, 5);
  CUDA_KERNEL_NODE_PARAMS_v1 read{};
  CHECK_CU(cuGraphKernelNodeGetParams(kernel, &read));
  expect(read.func == f.store && read.gridDimX == 1 &&
             *static_cast<uint32_t*>(read.kernelParams[1]) == 5,
         "the parameters of a kernel");
  f.run_graph();
  expect(f.word(0) == 5, "the kernel stores %u", f.word(0));
  const Store other(f, 0, 6);
  CHECK_CU(cuGraphKernelNodeSetParams(kernel, &other.params));
  const CUgraphNode second = add_store(f, 1, 7);
  CUkernelNodeAttrValue value{};
  value.priority = -1;
  CHECK_CU(cuGraphKernelNodeSetAttribute(kernel, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  CHECK_CU(cuGraphKernelNodeCopyAttributes(second, kernel));
  value.priority = 0;
  CHECK_CU(cuGraphKernelNodeGetAttribute(second, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  expect(value.priority == -1, "attributes are copied");

  CUgraphNode fill = nullptr, copy = nullptr, host = nullptr, batch = nullptr;
  CUDA_MEMSET_NODE_PARAMS fill_params = fill_of(f.at(2), 8, 1), fill_read{};
  CHECK_CU(cuGraphAddMemsetNode(&fill, f.graph, nullptr, 0, &fill_params, f.session.context));
  CHECK_CU(cuGraphMemsetNodeGetParams(fill, &fill_read));
  expect(fill_read.dst == f.at(2) && fill_read.value == 8 && fill_read.elementSize == 4 &&
             fill_read.width == 1 && fill_read.height == 1,
         "the parameters of a fill");
  fill_params.value = 9;
  fill_params.width = 2;
  CHECK_CU(cuGraphMemsetNodeSetParams(fill, &fill_params));
  CUDA_MEMCPY3D copy_params = copy_of(f.at(4), f.at(2), 4);
  CHECK_CU(cuGraphAddMemcpyNode(&copy, f.graph, &fill, 1, &copy_params, f.session.context));
  copy_params = copy_of(f.at(5), f.at(2), 8);
  CHECK_CU(cuGraphMemcpyNodeSetParams(copy, &copy_params));
  int calls = 0;
  CUDA_HOST_NODE_PARAMS call{add_one, &calls}, call_read{};
  CHECK_CU(cuGraphAddHostNode(&host, f.graph, nullptr, 0, &call));
  CHECK_CU(cuGraphHostNodeGetParams(host, &call_read));
  expect(call_read.fn == add_one && call_read.userData == &calls, "the parameters of a function");
  call.fn = add_ten;
  CHECK_CU(cuGraphHostNodeSetParams(host, &call));
  CUstreamBatchMemOpParams write = write_of(f.at(8), 10);
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch_params{f.session.context, 1, &write, 0};
  CHECK_CU(cuGraphAddBatchMemOpNode(&batch, f.graph, nullptr, 0, &batch_params));
  write = write_of(f.at(9), 11);
  CHECK_CU(cuGraphBatchMemOpNodeSetParams(batch, &batch_params));
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_MEMSET;
  const CUDA_MEMSET_NODE_PARAMS twelve = fill_of(f.at(10), 12, 1);
  memcpy(&any.memset, &twelve, sizeof(twelve));
  CUgraphNode generic = nullptr;
  CHECK_CU(cuGraphAddNode(&generic, f.graph, nullptr, 0, &any));
  f.run_graph();
  expect(f.words.get() == std::vector<uint32_t>({6, 7, 9, 9, 0, 9, 9, 0, 0, 11, 12, 0, 0, 0, 0, 0}),
         "what the changed nodes write");
  expect(calls == 10, "the other function was called");
  expect_result("a fill's parameters of a kernel", cuGraphMemsetNodeGetParams(kernel, &fill_read),
                kInvalid);
  expect_result("a kernel's parameters of a fill", cuGraphKernelNodeGetParams(fill, &read),
                kInvalid);
}

void events(Fixture& f) {
  const CUevent first = new_event(), second = new_event();
  CUgraphNode record = nullptr, wait = nullptr;
  CHECK_CU(cuGraphAddEventRecordNode(&record, f.graph, nullptr, 0, first));
  CHECK_CU(cuGraphAddEventWaitNode(&wait, f.graph, &record, 1, first));
  CUevent seen = nullptr;
  CHECK_CU(cuGraphEventWaitNodeGetEvent(wait, &seen));
  expect(seen == first, "the event that a node waits for");
  CHECK_CU(cuGraphEventRecordNodeSetEvent(record, second));
  CHECK_CU(cuGraphEventWaitNodeSetEvent(wait, second));
  CHECK_CU(cuGraphEventWaitNodeGetEvent(wait, &seen));
  expect(seen == second, "another event");
  f.run_graph();
  expect(!recorded(first) && recorded(second), "the other event is recorded");
  CHECK_CU(cuEventDestroy_v2(first));
  CHECK_CU(cuEventDestroy_v2(second));
}

// ---- Executable graphs -------------------------------------------------------------------------

void execs(Fixture& f) {
  const CUgraphNode kernel = add_store(f, 0, 5);
  CUgraphNode fill = nullptr, record = nullptr, wait = nullptr, batch = nullptr, inner = nullptr;
  CUDA_MEMSET_NODE_PARAMS fill_params = fill_of(f.at(1), 6, 1);
  CHECK_CU(cuGraphAddMemsetNode(&fill, f.graph, nullptr, 0, &fill_params, f.session.context));
  const CUevent first = new_event(), second = new_event();
  CHECK_CU(cuGraphAddEventRecordNode(&record, f.graph, nullptr, 0, first));
  CHECK_CU(cuGraphAddEventWaitNode(&wait, f.graph, &record, 1, first));
  CUstreamBatchMemOpParams write = write_of(f.at(2), 7);
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch_params{f.session.context, 1, &write, 0};
  CHECK_CU(cuGraphAddBatchMemOpNode(&batch, f.graph, nullptr, 0, &batch_params));
  CUgraph child = nullptr;
  CHECK_CU(cuGraphCreate(&child, 0));
  const Store in_child(f, 3, 8);
  CUgraphNode child_node = nullptr;
  CHECK_CU(cuGraphAddKernelNode(&inner, child, nullptr, 0, &in_child.params));
  CHECK_CU(cuGraphAddChildGraphNode(&child_node, f.graph, nullptr, 0, child));

  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  params.hUploadStream = f.stream;
  params.result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithParams(&exec, f.graph, &params));
  expect(params.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS && params.hErrNode_out == nullptr,
         "instantiated and uploaded");
  f.run(exec);
  const std::vector<uint32_t> original{5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  expect(f.words.get() == original, "as the graph has it");

  const Store other(f, 4, 15);
  CHECK_CU(cuGraphExecKernelNodeSetParams(exec, kernel, &other.params));
  fill_params = fill_of(f.at(5), 16, 1);
  CHECK_CU(cuGraphExecMemsetNodeSetParams(exec, fill, &fill_params, f.session.context));
  CHECK_CU(cuGraphExecEventRecordNodeSetEvent(exec, record, second));
  CHECK_CU(cuGraphExecEventWaitNodeSetEvent(exec, wait, second));
  write = write_of(f.at(6), 17);
  CHECK_CU(cuGraphExecBatchMemOpNodeSetParams(exec, batch, &batch_params));
  const Store in_other_child(f, 7, 18);
  CHECK_CU(cuGraphKernelNodeSetParams(inner, &in_other_child.params));
  CHECK_CU(cuGraphExecChildGraphNodeSetParams(exec, child_node, child));
  CHECK_CU(cuGraphUpload(exec, f.stream));
  expect(!recorded(second), "nothing has run of it yet");
  f.run(exec);
  expect(
      f.words.get() == std::vector<uint32_t>({0, 0, 0, 0, 15, 16, 17, 18, 0, 0, 0, 0, 0, 0, 0, 0}),
      "every node as it was changed");
  expect(recorded(second), "the other event is recorded");

  CUgraphNode failed = nullptr;
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_ERROR;
  CHECK_CU(cuGraphExecUpdate(exec, f.graph, &failed, &result));
  expect(result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "updated from the graph");
  f.run(exec);
  expect(f.words.get() == original, "as the graph has it, again");
  CUgraphNode more = nullptr;
  CHECK_CU(cuGraphAddEmptyNode(&more, f.graph, nullptr, 0));
  expect_result("an update of another shape", cuGraphExecUpdate(exec, f.graph, &failed, &result),
                CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  expect(result != CU_GRAPH_EXEC_UPDATE_SUCCESS, "and there is a reason");
  printf("# the reason is %d\n", static_cast<int>(result));
  CHECK_CU(cuGraphExecDestroy(exec));

  char log[64] = "?";
  CHECK_CU(cuGraphInstantiate_v2(&exec, f.graph, &failed, log, sizeof(log)));
  cuuint64_t flags = 99;
  CHECK_CU(cuGraphExecGetFlags(exec, &flags));
  expect(flags == 0, "no flags");
  f.run(exec);
  expect(f.words.get() == original, "instantiated by the older call");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(
      cuGraphInstantiateWithFlags(&exec, f.graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  CHECK_CU(cuGraphExecGetFlags(exec, &flags));
  expect(flags == CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, "the flags that were given");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(child));
  CHECK_CU(cuEventDestroy_v2(first));
  CHECK_CU(cuEventDestroy_v2(second));
}

// ---- Edges and user objects --------------------------------------------------------------------

void edges(Fixture& f) {
  const CUgraphNode first = add_store(f, 0, 1), second = add_store(f, 1, 2);
  const CUgraphEdgeData plain{};
  CHECK_CU(cuGraphAddDependencies_v2(f.graph, &first, &second, &plain, 1));
  CUgraphNode seen = nullptr;
  CUgraphEdgeData data{};
  data.type = 9;
  size_t count = 1;
  CHECK_CU(cuGraphNodeGetDependencies_v2(second, &seen, &data, &count));
  expect(count == 1 && seen == first && data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT,
         "what a node waits for");
  data.type = 9;
  CHECK_CU(cuGraphNodeGetDependentNodes_v2(first, &seen, &data, &count));
  expect(count == 1 && seen == second && data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT,
         "what waits for a node");
  CHECK_CU(cuGraphRemoveDependencies_v2(f.graph, &first, &second, &plain, 1));
  CHECK_CU(cuGraphNodeGetDependencies_v2(second, nullptr, nullptr, &count));
  expect(count == 0, "the edge is gone");
  expect_result("an edge that is not there",
                cuGraphRemoveDependencies_v2(f.graph, &first, &second, &plain, 1), kInvalid);
}

void user_objects(Fixture& f) {
  int destroyed = 0;
  CUuserObject object = nullptr;
  CHECK_CU(cuUserObjectCreate(&object, &destroyed, add_one, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CHECK_CU(cuUserObjectRetain(object, 2));
  CHECK_CU(cuUserObjectRelease(object, 1));
  CHECK_CU(cuGraphRetainUserObject(f.graph, object, 2, CU_GRAPH_USER_OBJECT_MOVE));
  expect(destroyed == 0, "the graph has the references");
  expect_result("references to nothing", cuUserObjectRetain(object, 0), kInvalid);
  CHECK_CU(cuGraphReleaseUserObject(f.graph, object, 1));
  expect(destroyed == 0, "one is left");
  CHECK_CU(cuGraphReleaseUserObject(f.graph, object, 1));
  expect(destroyed == 1, "the last one destroys the object");
}

// ---- Memory nodes ------------------------------------------------------------------------------

void memory(Fixture& f) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  allocation.bytesize = 4096;
  CUgraphNode made = nullptr, fill = nullptr, copy = nullptr, freed = nullptr;
  CHECK_CU(cuGraphAddMemAllocNode(&made, f.graph, nullptr, 0, &allocation));
  const CUDA_MEMSET_NODE_PARAMS five = fill_of(allocation.dptr, 5, 4);
  CHECK_CU(cuGraphAddMemsetNode(&fill, f.graph, &made, 1, &five, f.session.context));
  const CUDA_MEMCPY3D out = copy_of(f.at(0), allocation.dptr, 16);
  CHECK_CU(cuGraphAddMemcpyNode(&copy, f.graph, &fill, 1, &out, f.session.context));
  CHECK_CU(cuGraphAddMemFreeNode(&freed, f.graph, &copy, 1, allocation.dptr));
  CUdeviceptr address = 0;
  CHECK_CU(cuGraphMemFreeNodeGetParams(freed, &address));
  expect(address == allocation.dptr, "the address that a node frees");
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, f.graph, 0));
  f.run(exec);
  f.run(exec);
  expect(f.word(0) == 5 && f.word(3) == 5 && f.word(4) == 0, "memory of the graph, twice");
  CHECK_CU(cuGraphExecDestroy(exec));
  cuuint64_t high = 0;
  CHECK_CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
  expect(high >= 4096, "the most that graphs used");
  cuuint64_t current = 0, begin = 0;
  CHECK_CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &current));
  CHECK_CU(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &begin));
  CHECK_CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &begin));
  expect(begin == current, "begins again with what is in use");
  printf("# %llu bytes at most, %llu now, %llu\n", static_cast<unsigned long long>(high),
         static_cast<unsigned long long>(current), static_cast<unsigned long long>(begin));
  high = 1;
  expect_result("setting what is used",
                cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &high),
                kInvalid);
  CUgraph other = nullptr;
  CUgraphNode batch = nullptr;
  CHECK_CU(cuGraphCreate(&other, 0));
  CUstreamBatchMemOpParams write = write_of(f.at(2), 7);
  const CUDA_BATCH_MEM_OP_NODE_PARAMS params{f.session.context, 1, &write, 0};
  CHECK_CU(cuGraphAddBatchMemOpNode(&batch, other, nullptr, 0, &params));
  CUDA_BATCH_MEM_OP_NODE_PARAMS read{};
  CHECK_CU(cuGraphBatchMemOpNodeGetParams(batch, &read));
  expect(read.count == 1 && read.paramArray[0].writeValue.address == f.at(2) &&
             read.paramArray[0].writeValue.value == 7,
         "the parameters of a batch");
  CHECK_CU(cuGraphDestroy(other));
}

// ---- Graphs that are moved into others ---------------------------------------------------------

constexpr CUresult kUnsupported = CUDA_ERROR_NOT_SUPPORTED;

CUresult add_moved(CUgraph parent, CUgraph child, CUgraphNode* node) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
  return cuGraphAddNode_v2(node, parent, nullptr, nullptr, 0, &params);
}

void moved(Fixture& f) {
  CUgraph child = nullptr, other = nullptr, got = nullptr;
  CHECK_CU(cuGraphCreate(&child, 0));
  CHECK_CU(cuGraphCreate(&other, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  allocation.bytesize = 4096;
  CUgraphNode made = nullptr, fill = nullptr, copy = nullptr, freed = nullptr, node = nullptr;
  CHECK_CU(cuGraphAddMemAllocNode(&made, child, nullptr, 0, &allocation));
  const CUDA_MEMSET_NODE_PARAMS five = fill_of(allocation.dptr, 5, 4);
  CHECK_CU(cuGraphAddMemsetNode(&fill, child, &made, 1, &five, f.session.context));
  const CUDA_MEMCPY3D out = copy_of(f.at(0), allocation.dptr, 16);
  CHECK_CU(cuGraphAddMemcpyNode(&copy, child, &fill, 1, &out, f.session.context));
  CHECK_CU(cuGraphAddMemFreeNode(&freed, child, &copy, 1, allocation.dptr));
  expect_result("a clone of a graph with memory",
                cuGraphAddChildGraphNode(&node, f.graph, nullptr, 0, child), kUnsupported);
  CHECK_CU(add_moved(f.graph, child, &node));
  CHECK_CU(cuGraphChildGraphNodeGetGraph(node, &got));
  expect(got == child, "the graph itself has been moved");
  f.run_graph();
  expect(f.word(0) == 5 && f.word(3) == 5 && f.word(4) == 0, "its work, with memory of its own");

  CUgraphExec exec = nullptr;
  CUgraphNode more = nullptr;
  expect_result("instantiating it", cuGraphInstantiateWithFlags(&exec, child, 0), kUnsupported);
  expect_result("cloning it into another",
                cuGraphAddChildGraphNode(&more, other, nullptr, 0, child), kUnsupported);
  expect_result("moving it again", add_moved(other, child, &more), kUnsupported);
  expect_result("more memory in it", cuGraphAddMemAllocNode(&more, child, nullptr, 0, &allocation),
                kUnsupported);
  const CUDA_MEMSET_NODE_PARAMS seven = fill_of(f.at(8), 7, 2);
  expect_result("more work in it",
                cuGraphAddMemsetNode(&more, child, nullptr, 0, &seven, f.session.context),
                CUDA_SUCCESS);
  f.run_graph();
  expect(f.word(0) == 5 && f.word(8) == 7, "what was added later");
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, f.graph, 0));
  CUgraphExecUpdateResultInfo info{};
  expect_result("an update from it", cuGraphExecUpdate_v2(exec, child, &info), kInvalid);
  CHECK_CU(cuGraphExecDestroy(exec));
  expect_result("destroying it", cuGraphDestroy(child), kInvalid);

  // A child graph without memory, in a graph that is destroyed.
  CUgraph plain = nullptr;
  CUgraphNode inner = nullptr;
  CHECK_CU(cuGraphCreate(&plain, 0));
  CHECK_CU(cuGraphAddMemsetNode(&inner, plain, nullptr, 0, &seven, f.session.context));
  CHECK_CU(add_moved(other, plain, &node));
  CUgraph clone = nullptr;
  CHECK_CU(cuGraphClone(&clone, other));
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, clone, 0));
  f.run(exec);
  expect(f.word(8) == 7, "a clone of its parent");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(clone));
  expect_result("destroying its node", cuGraphDestroyNode(node), CUDA_SUCCESS);
  CHECK_CU(cuGraphDestroy(other));

  CUgraph conditional = nullptr;
  CHECK_CU(cuGraphCreate(&conditional, 0));
  CHECK_CU(cuGraphCreate(&other, 0));
  CUgraphConditionalHandle handle = 0;
  CHECK_CU(cuGraphConditionalHandleCreate(&handle, conditional, f.session.context, 0,
                                          CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle;
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  params.conditional.ctx = f.session.context;
  CHECK_CU(cuGraphAddNode_v2(&node, conditional, nullptr, nullptr, 0, &params));
  expect_result("one with a conditional node", add_moved(other, conditional, &more), kUnsupported);
  CHECK_CU(cuGraphDestroy(other));
  CHECK_CU(cuGraphDestroy(conditional));
}

// NVIDIA's driver accepts moving a graph into itself.
void cycles(Fixture& f) {
  CUgraph child = nullptr, grandchild = nullptr;
  CUgraphNode node = nullptr;
  CHECK_CU(cuGraphCreate(&child, 0));
  CHECK_CU(cuGraphCreate(&grandchild, 0));
  expect_result("a graph into itself", add_moved(child, child, &node), kInvalid);
  CHECK_CU(add_moved(f.graph, child, &node));
  CHECK_CU(add_moved(child, grandchild, &node));
  expect_result("a graph into its child", add_moved(child, f.graph, &node), kInvalid);
  expect_result("into its child's", add_moved(grandchild, f.graph, &node), kInvalid);
  f.run_graph();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "nodes";
  Fixture fixture;
  if (group == "nodes") {
    nodes(fixture);
    Fixture other;
    events(other);
  } else if (group == "execs") {
    execs(fixture);
  } else if (group == "edges") {
    edges(fixture);
    user_objects(fixture);
  } else if (group == "moved") {
    moved(fixture);
  } else if (group == "cycles") {
    cycles(fixture);
  } else {
    memory(fixture);
  }
  return e2e::finish();
}
