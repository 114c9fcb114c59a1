// SPDX-License-Identifier: Apache-2.0
// Stream capture with its rules, and graphs.
#include "device_fixture.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

namespace openmps::softgpu::testing {
namespace {

class GraphTest : public DeviceTest {
 protected:
  static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  CUDA_KERNEL_NODE_PARAMS kernel_node(FakeParameters* parameters) {
    pointers_[0] = &parameters->action;
    pointers_[1] = &parameters->address;
    pointers_[2] = &parameters->value;
    CUDA_KERNEL_NODE_PARAMS node = {};
    node.func = function("run");
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = 32;
    node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = pointers_;
    return node;
  }

 private:
  void* pointers_[3] = {};
};

// A cooperative node is still cooperative with new parameters, which are refused if its blocks
// can't all be resident; in graphs and in executable ones.
TEST_F(GraphTest, NewParametersKeepCooperativeNodes) {
  uint32_t* word = words(1);
  FakeParameters parameters{FakeAction::kAdd, address_of(word), 1};
  CUDA_KERNEL_NODE_PARAMS fits = kernel_node(&parameters), too_large = fits;
  too_large.gridDimX = kSms * kBlocksPerSm + 1;
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  CUgraphNode node = nullptr;
  ASSERT_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &fits));
  EXPECT_CU(cuGraphKernelNodeSetParams_v2(node, &too_large));
  CUlaunchAttributeValue cooperative{};
  cooperative.cooperative = 1;
  EXPECT_EQ(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_CU(cuGraphKernelNodeSetParams_v2(node, &fits));
  EXPECT_CU(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative));
  EXPECT_CU(cuGraphKernelNodeSetParams_v2(node, &fits));
  EXPECT_EQ(cuGraphKernelNodeSetParams_v2(node, &too_large),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CUgraphExec exec = instantiate(graph);
  EXPECT_CU(cuGraphExecKernelNodeSetParams_v2(exec, node, &fits));
  EXPECT_EQ(cuGraphExecKernelNodeSetParams_v2(exec, node, &too_large),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_CU(cuGraphLaunch(exec, nullptr));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(load(word), 1u);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

// Kernels of graphs in a green context of two multiprocessors and the primary context.
class GreenGraphTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    CUdevResource all = {}, part = {};
    CUdevResourceDesc description = nullptr;
    unsigned count = 1;
    ASSERT_CU(cuDevicePrimaryCtxRetain(&primary_, 0));
    ASSERT_CU(cuCtxPushCurrent_v2(primary_));
    ASSERT_CU(cuModuleLoadData(&code_, kFakeImage));
    ASSERT_CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    ASSERT_CU(cuDevSmResourceSplitByCount(&part, &count, &all, nullptr, 0, 2));
    ASSERT_CU(cuDevResourceGenerateDesc(&description, &part, 1));
    ASSERT_CU(cuGreenCtxCreate(&green_, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    ASSERT_CU(cuCtxFromGreenCtx(&view_, green_));
    ASSERT_CU(cuGraphCreate(&graph_, 0));
    for (uint32_t sm = 1; sm <= kSms; ++sm) everywhere_.insert(sm);
    sms_ = words(kBlocks);
    parameters_ = {FakeAction::kRecordSm, address_of(sms_), 0};
  }
  void TearDown() override {
    EXPECT_CU(cuGraphDestroy(graph_));
    EXPECT_CU(cuCtxSetCurrent(primary_));
    if (green_ != nullptr) {
      EXPECT_CU(cuGreenCtxDestroy(green_));
    }
    CUcontext popped = nullptr;
    EXPECT_CU(cuCtxPopCurrent_v2(&popped));
    EXPECT_CU(cuDevicePrimaryCtxReset_v2(0));
    EXPECT_CU(cuDevicePrimaryCtxRelease_v2(0));
    GraphTest::TearDown();
  }

  // A node of `graph_` that notes where its blocks run.
  CUgraphNode add(CUcontext current) {
    CUgraphNode node = nullptr;
    const CUDA_KERNEL_NODE_PARAMS params = many_blocks(kBlocks);
    EXPECT_CU(cuCtxSetCurrent(current));
    EXPECT_CU(cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
    return node;
  }
  CUDA_KERNEL_NODE_PARAMS many_blocks(unsigned blocks) {
    CUDA_KERNEL_NODE_PARAMS params = kernel_node(&parameters_);
    EXPECT_CU(cuModuleGetFunction(&params.func, code_, "run"));
    params.gridDimX = blocks;
    params.blockDimX = 1024;
    return params;
  }
  std::set<uint32_t> run(CUgraphExec exec) {
    std::fill_n(sms_, kBlocks, 0);
    EXPECT_CU(cuGraphLaunch(exec, nullptr));
    EXPECT_CU(cuCtxSynchronize());
    return {sms_, sms_ + kBlocks};
  }

  static constexpr unsigned kBlocks = 64;
  static constexpr unsigned kGreenBlocks = 4;  // that fit the green context, of 1024 threads
  const std::set<uint32_t> of_green_ = {1, 2};
  std::set<uint32_t> everywhere_;
  CUcontext primary_ = nullptr, view_ = nullptr;
  CUmodule code_ = nullptr;
  CUgreenCtx green_ = nullptr;
  CUgraph graph_ = nullptr;

 private:
  uint32_t* sms_ = nullptr;
  FakeParameters parameters_{};
};

// An H200 takes nodes that the green context can't hold, and their launches never end.
TEST_F(GreenGraphTest, CooperativeNodesFitTheirGreenContext) {
  const CUgraphNode node = add(view_);
  const CUDA_KERNEL_NODE_PARAMS fits = many_blocks(kGreenBlocks);
  const CUDA_KERNEL_NODE_PARAMS too_many = many_blocks(kGreenBlocks + 1);
  CUlaunchAttributeValue cooperative{};
  cooperative.cooperative = 1;
  EXPECT_CU(cuGraphKernelNodeSetParams_v2(node, &too_many));
  EXPECT_EQ(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_CU(cuGraphKernelNodeSetParams_v2(node, &fits));
  EXPECT_CU(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative));
  EXPECT_EQ(cuGraphKernelNodeSetParams_v2(node, &too_many),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(cuGraphExecKernelNodeSetParams_v2(exec, node, &too_many),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  // The attributes of one may be too much for another.
  const CUgraphNode other = add(view_);
  EXPECT_EQ(cuGraphKernelNodeCopyAttributes(other, node), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_CU(cuGraphExecDestroy(exec));
  // The primary context can hold the blocks.
  EXPECT_CU(cuCtxSetCurrent(primary_));
  EXPECT_CU(cuGraphKernelNodeSetParams_v2(node, &too_many));
}

// What an H200 may crash on: here the nodes keep their multiprocessors.
TEST_F(GreenGraphTest, NodesOutliveTheirGreenContext) {
  const CUgraphNode node = add(view_);
  CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(run(exec), of_green_);
  EXPECT_CU(cuCtxSetCurrent(primary_));
  EXPECT_CU(cuGreenCtxDestroy(std::exchange(green_, nullptr)));
  EXPECT_EQ(run(exec), of_green_);
  CUgraphExec again = instantiate(graph_);
  EXPECT_EQ(run(again), of_green_);
  CUDA_KERNEL_NODE_PARAMS params{};
  EXPECT_CU(cuGraphKernelNodeGetParams_v2(node, &params));
  EXPECT_EQ(params.ctx, view_);
  EXPECT_EQ(cuCtxPushCurrent_v2(params.ctx), CUDA_ERROR_INVALID_CONTEXT);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_CU(cuGraphExecUpdate_v2(exec, graph_, &info));
  params = many_blocks(kBlocks);
  EXPECT_EQ(cuGraphExecKernelNodeSetParams_v2(exec, node, &params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphKernelNodeSetParams_v2(node, &params));
  EXPECT_CU(cuGraphExecDestroy(again));
  again = instantiate(graph_);
  EXPECT_EQ(run(again), everywhere_);
  EXPECT_CU(cuGraphExecDestroy(again));
  EXPECT_CU(cuGraphExecDestroy(exec));
}

// A kernel of higher priority is placed first, also after its node got new parameters.
TEST_F(GraphTest, NewParametersKeepPriority) {
  uint32_t* word = words(2);
  FakeParameters parameters{FakeAction::kNothing, 0, 0};
  const CUDA_KERNEL_NODE_PARAMS node_parameters = kernel_node(&parameters);
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  CUgraphNode node = nullptr;
  ASSERT_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &node_parameters));
  CUlaunchAttributeValue high{};
  high.priority = -3;
  EXPECT_CU(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &high));
  EXPECT_CU(cuGraphKernelNodeSetParams_v2(node, &node_parameters));
  CUgraphExec exec = instantiate(graph);
  EXPECT_CU(cuGraphExecKernelNodeSetParams_v2(exec, node, &node_parameters));
  // The device is full; then the ordinary kernel comes first, and the node's second.
  CUstream full = stream(), ordinary = stream(), graphs = stream();
  launch(full, FakeAction::kWait, address_of(&word[0]), 1, kSms * kBlocksPerSm);
  launch(ordinary, FakeAction::kAdd, address_of(&word[1]), 1, 4 * kSms * kBlocksPerSm);
  EXPECT_CU(cuGraphLaunch(exec, graphs));
  store(&word[0], 1);
  EXPECT_CU(cuCtxSynchronize());
  std::vector<uint64_t> placed;
  for (const TraceEvent& event : trace()) {
    if (event.name == "place") placed.push_back(event.stream);
  }
  const auto first = [&](CUstream s) {
    return std::find(placed.begin(), placed.end(), stream_id(s)) - placed.begin();
  };
  EXPECT_LT(first(graphs), first(ordinary));
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

TEST_F(GraphTest, CapturedWorkRunsAtLaunchOnly) {
  uint32_t* word = words(2);
  CUstream s = stream();
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  launch(s, FakeAction::kAdd, address_of(&word[0]), 1);
  EXPECT_CU(cuMemcpyDtoDAsync_v2(address_of(&word[1]), address_of(&word[0]), 4, s));
  CUstreamCaptureStatus status{};
  EXPECT_CU(cuStreamIsCapturing(s, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamEndCapture(s, &graph));
  EXPECT_EQ(load(&word[0]), 0u);
  size_t nodes = 0;
  EXPECT_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);
  CUgraphExec exec = instantiate(graph);
  for (int i = 0; i < 3; ++i) EXPECT_CU(cuGraphLaunch(exec, s));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(load(&word[0]), 3u);
  EXPECT_EQ(load(&word[1]), 3u);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, ForkAndJoinByEvents) {
  uint32_t* word = words(1);
  CUstream a = stream();
  CUstream b = stream();
  CUevent fork_event = event();
  CUevent join_event = event();
  ASSERT_CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_CU(cuEventRecord(fork_event, a));
  EXPECT_CU(cuStreamWaitEvent(b, fork_event, 0));
  // Two branches that need each other: they must run side by side.
  launch(a, FakeAction::kWait, address_of(word), 1);
  launch(b, FakeAction::kAdd, address_of(word), 1);
  EXPECT_EQ(cuEventQuery(fork_event), CUDA_ERROR_CAPTURED_EVENT);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);

  ASSERT_CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_CU(cuEventRecord(fork_event, a));
  EXPECT_CU(cuStreamWaitEvent(b, fork_event, 0));
  launch(a, FakeAction::kWait, address_of(word), 1);
  launch(b, FakeAction::kAdd, address_of(word), 1);
  EXPECT_CU(cuEventRecord(join_event, b));
  EXPECT_CU(cuStreamWaitEvent(a, join_event, 0));
  ASSERT_CU(cuStreamEndCapture(a, &graph));
  EXPECT_EQ(cuEventQuery(join_event), CUDA_ERROR_INVALID_VALUE);
  CUgraphExec exec = instantiate(graph);
  EXPECT_CU(cuGraphLaunch(exec, a));
  EXPECT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(load(word), 1u);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

TEST_F(GraphTest, AForkThatIsNotJoinedIsAnError) {
  CUstream a = stream();
  CUstream b = stream();
  CUevent e = event();
  ASSERT_CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch(a, FakeAction::kNothing);
  EXPECT_CU(cuEventRecord(e, a));
  EXPECT_CU(cuStreamWaitEvent(b, e, 0));
  launch(b, FakeAction::kNothing);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CUstreamCaptureStatus status{};
  EXPECT_CU(cuStreamIsCapturing(b, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(GraphTest, GlobalModeForbidsUnsafeCallsOfEveryThread) {
  CUstream s = stream();
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::thread([&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    CUdeviceptr address = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT_CU(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_CU(cuMemAlloc_v2(&address, 16));  // relaxed: allowed
    EXPECT_CU(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT_EQ(cuMemAlloc_v2(&address, 16), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }).join();
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphTest, ThreadLocalModeConcernsItsThreadOnly) {
  CUstream s = stream();
  CUdeviceptr address = 0;
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    EXPECT_CU(cuMemAlloc_v2(&address, 16));
  }).join();
  EXPECT_EQ(cuMemAlloc_v2(&address, 16), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphTest, AnEndOnAnotherThreadEndsTheCaptureForGood) {
  CUstream s = stream();
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_F(GraphTest, CallsThatACapturingStreamRefuses) {
  CUstream s = stream(CU_STREAM_DEFAULT);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // The legacy stream would wait for the captured blocking stream.
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(try_launch(function("run"), nullptr, {}), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // An event from outside.
  CUevent outside = event();
  CUstream other = stream();
  ASSERT_CU(cuEventRecord(outside, other));
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(cuStreamWaitEvent(s, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(GraphTest, CaptureInfoNamesGraphAndDependencies) {
  CUstream s = stream();
  ASSERT_CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  launch(s, FakeAction::kNothing);
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph inside = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  EXPECT_CU(cuStreamGetCaptureInfo_v3(s, &status, &id, &inside, &nodes, nullptr, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(count, 1u);
  CUgraphNodeType type{};
  EXPECT_CU(cuGraphNodeGetType(nodes[0], &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamEndCapture(s, &graph));
  EXPECT_EQ(graph, inside);
  EXPECT_CU(cuGraphDestroy(graph));
}

TEST_F(GraphTest, BuiltByHandAndChangedInPlace) {
  uint32_t* word = words(2);
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS fill = {};
  fill.dst = address_of(&word[0]);
  fill.value = 10;
  fill.elementSize = 4;
  fill.width = 1;
  fill.height = 1;
  CUgraphNode first = nullptr;
  CUgraphNode second = nullptr;
  CUgraphNode third = nullptr;
  ASSERT_CU(cuGraphAddMemsetNode(&first, graph, nullptr, 0, &fill, context_));
  FakeParameters p{FakeAction::kAdd, address_of(&word[0]), 5};
  CUDA_KERNEL_NODE_PARAMS kernel = kernel_node(&p);
  ASSERT_CU(cuGraphAddKernelNode_v2(&second, graph, &first, 1, &kernel));
  CUDA_HOST_NODE_PARAMS host = {[](void* data) { store(static_cast<uint32_t*>(data) + 1, 1); },
                                word};
  ASSERT_CU(cuGraphAddHostNode(&third, graph, nullptr, 0, &host));
  ASSERT_CU(cuGraphAddDependencies(graph, &second, &third, 1));
  EXPECT_EQ(cuGraphAddDependencies(graph, &third, &first, 1), CUDA_ERROR_INVALID_VALUE);  // a cycle
  CUgraphExec exec = instantiate(graph);
  CUstream s = stream();
  EXPECT_CU(cuGraphLaunch(exec, s));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(load(&word[0]), 15u);
  EXPECT_EQ(load(&word[1]), 1u);
  p.value = 7;
  kernel = kernel_node(&p);
  EXPECT_CU(cuGraphExecKernelNodeSetParams_v2(exec, second, &kernel));
  EXPECT_EQ(cuGraphExecKernelNodeSetParams_v2(exec, first, &kernel), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphLaunch(exec, s));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(load(&word[0]), 17u);
  // The graph itself is unchanged, and can outdate the exec's parameters again.
  CUgraphExecUpdateResultInfo info = {};
  EXPECT_CU(cuGraphExecUpdate_v2(exec, graph, &info));
  EXPECT_CU(cuGraphLaunch(exec, s));
  EXPECT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(load(&word[0]), 15u);
  EXPECT_CU(cuGraphDestroyNode(third));
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_CU(cuGraphExecDestroy(exec));
  EXPECT_CU(cuGraphDestroy(graph));
}

TEST_F(GraphTest, BadHandles) {
  EXPECT_EQ(cuGraphLaunch(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphExecDestroy(nullptr), CUDA_ERROR_INVALID_VALUE);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuGraphCreate(&graph, 0));
  CUgraphNode node = nullptr;
  auto* invented = reinterpret_cast<CUgraphNode>(static_cast<uintptr_t>(0xdeadbee0));
  EXPECT_EQ(cuGraphAddEmptyNode(&node, graph, &invented, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuGraphDestroy(graph));
}

}  // namespace
}  // namespace openmps::softgpu::testing
