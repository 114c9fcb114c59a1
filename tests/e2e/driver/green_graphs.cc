// SPDX-License-Identifier: Apache-2.0
// On which SMs kernels of graphs run if there are green contexts: nodes that are added, captured,
// copied and changed, in graphs that are launched in streams of the primary context, of the node's
// green context and of another one; which changes are refused; cooperative launches and occupancy
// in a green context. Run by run_e2e.py. usage: drv_green_graphs
// added|libraries|conditionals|captured|changed|cooperative|occupancy
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "driver.h"

namespace {

constexpr uint32_t kRounds = 2000;
constexpr unsigned kBlocksPerSm = 16;

using Sms = std::set<uint32_t>;

// Two green contexts with equal shares of the device, and memory in which kernels store the SMs
// that they ran on.
struct Fixture {
  e2e::Session session;
  CUfunction where = session.function("where");
  unsigned total = 0, share = 0, blocks = 0;
  CUgreenCtx green[2] = {};
  CUcontext view[2] = {};
  CUstream stream[2] = {};  // of the green contexts
  CUstream plain = nullptr;
  CUdeviceptr seen = 0;
  Sms partition[2];

  Fixture() {
    CUdevResource all{}, groups[2] = {}, rest{};
    CHECK_CU(cuDeviceGetDevResource(session.device, &all, CU_DEV_RESOURCE_TYPE_SM));
    unsigned made = 2;
    CHECK_CU(cuDevSmResourceSplitByCount(groups, &made, &all, &rest, 0, all.sm.minSmPartitionSize));
    total = all.sm.smCount;
    share = groups[0].sm.smCount;
    blocks = kBlocksPerSm * total;
    CHECK_CU(cuMemAlloc_v2(&seen, blocks * sizeof(uint32_t)));
    CHECK_CU(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
      CUdevResourceDesc description = nullptr;
      CHECK_CU(cuDevResourceGenerateDesc(&description, &groups[i], 1));
      CHECK_CU(
          cuGreenCtxCreate(&green[i], description, session.device, CU_GREEN_CTX_DEFAULT_STREAM));
      CHECK_CU(cuCtxFromGreenCtx(&view[i], green[i]));
      CHECK_CU(cuGreenCtxStreamCreate(&stream[i], green[i], CU_STREAM_NON_BLOCKING, 0));
      forget();
      launch_where(stream[i]);
      CHECK_CU(cuStreamSynchronize(stream[i]));
      partition[i] = look();
      printf("# green context %d: %zu of %u SMs seen\n", i, partition[i].size(), total);
    }
    e2e::expect(partition[0].size() <= share && partition[1].size() <= share &&
                    is_apart(partition[0], partition[1]),
                "streams of two green contexts have SMs of their own");
  }
  ~Fixture() {
    CHECK_CU(cuStreamDestroy_v2(plain));
    for (int i = 0; i < 2; i++) {
      CHECK_CU(cuStreamDestroy_v2(stream[i]));
      CHECK_CU(cuGreenCtxDestroy(green[i]));
    }
    CHECK_CU(cuMemFree_v2(seen));
  }

  static bool is_apart(const Sms& one, const Sms& other) {
    return std::none_of(one.begin(), one.end(), [&](uint32_t sm) { return other.count(sm) != 0; });
  }

  void forget() const {
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuMemsetD32_v2(seen, ~0u, blocks));
    CHECK_CU(cuCtxSynchronize());  // streams of green contexts do not wait for the default stream
  }
  // On an H200 cuCtxSynchronize of the primary context does not wait for graphs in streams of green
  // contexts: the caller of look() has waited for the stream.
  [[nodiscard]] Sms look() const {
    std::vector<uint32_t> sms(blocks);
    CHECK_CU(cuMemcpyDtoH_v2(sms.data(), seen, blocks * sizeof(uint32_t)));
    return {sms.begin(), sms.end()};
  }
  void launch_where(CUstream in) const { e2e::launch(where, blocks, 32, 0, in, seen, kRounds); }

  // To which green context the SMs belong: "the first", "the second", or "all" if they are more
  // than one green context has.
  [[nodiscard]] std::string owner(const Sms& sms) const {
    if (sms.count(~0u) != 0) return "nobody";
    for (int i = 0; i < 2; i++) {
      if (std::includes(partition[i].begin(), partition[i].end(), sms.begin(), sms.end())) {
        return i == 0 ? "the first" : "the second";
      }
    }
    return sms.size() > share ? "all" : "others";
  }

  // Expects that the graph runs on the SMs of `wanted`, in whatever stream it is launched.
  void check(const char* what, CUgraphExec exec, const char* wanted) const {
    const CUstream streams[] = {plain, stream[0], stream[1], nullptr};
    std::string found;
    bool holds = true;
    for (const CUstream in : streams) {
      forget();
      CHECK_CU(cuGraphLaunch(exec, in));
      CHECK_CU(cuStreamSynchronize(in));
      const std::string one = owner(look());
      holds = holds && one == wanted;
      found += " " + one;
    }
    e2e::expect(holds, "%s: %s", what, wanted);
    if (!holds) printf("# found:%s\n", found.c_str());
  }
  void check(const char* what, CUgraph graph, const char* wanted) const {
    CUgraphExec exec = instantiate(graph);
    check(what, exec, wanted);
    CHECK_CU(cuGraphExecDestroy(exec));
  }

  static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  static CUgraph make_graph() {
    CUgraph graph = nullptr;
    CHECK_CU(cuGraphCreate(&graph, 0));
    return graph;
  }

  // A node's parameters, which point into this object.
  uint32_t rounds = kRounds;
  void* arguments[2] = {&seen, &rounds};
  CUDA_KERNEL_NODE_PARAMS kernel(CUcontext context = nullptr) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = where;
    params.gridDimX = blocks;
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = 32;
    params.kernelParams = arguments;
    params.ctx = context;
    return params;
  }
  // Adds a node while `current` is the thread's context.
  CUgraphNode add(CUgraph graph, CUcontext current, CUcontext named = nullptr) {
    const CUDA_KERNEL_NODE_PARAMS params = kernel(named);
    CUgraphNode node = nullptr;
    CHECK_CU(cuCtxSetCurrent(current));
    CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
    CHECK_CU(cuCtxSetCurrent(session.context));
    return node;
  }
  CUgraph capture(CUstream from) const {
    CUgraph graph = nullptr;
    CHECK_CU(cuStreamBeginCapture_v2(from, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch_where(from);
    CHECK_CU(cuStreamEndCapture(from, &graph));
    return graph;
  }
  static CUgraphNode only_node(CUgraph graph) {
    CUgraphNode node = nullptr;
    size_t count = 1;
    CHECK_CU(cuGraphGetNodes(graph, &node, &count));
    return node;
  }
};

// ---- Nodes that are added ----------------------------------------------------------------------

void added() {
  Fixture f;
  const CUcontext primary = f.session.context;
  CUgraph graphs[5];
  for (CUgraph& graph : graphs) graph = Fixture::make_graph();

  f.add(graphs[0], primary);
  f.check("a node that is added in the primary context", graphs[0], "all");
  const CUgraphNode first = f.add(graphs[1], f.view[0]);
  f.check("a node that is added in a green context", graphs[1], "the first");

  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_KERNEL;
  const CUDA_KERNEL_NODE_PARAMS params = f.kernel();
  static_assert(sizeof any.kernel >= sizeof params);
  memcpy(&any.kernel, &params, sizeof params);
  CUgraphNode node = nullptr;
  CHECK_CU(cuCtxSetCurrent(f.view[1]));
  CHECK_CU(cuGraphAddNode_v2(&node, graphs[2], nullptr, nullptr, 0, &any));
  CHECK_CU(cuCtxSetCurrent(primary));
  f.check("likewise by cuGraphAddNode", graphs[2], "the second");

  f.add(graphs[3], primary, f.view[0]);
  f.check("the parameters' context does not count", graphs[3], "all");
  f.add(graphs[4], f.view[0], f.view[1]);
  f.check("nor that of another green context", graphs[4], "the first");

  CHECK_CU(cuCtxSetCurrent(f.view[1]));
  f.check("what is current at the instantiation does not count", graphs[1], "the first");
  CHECK_CU(cuCtxSetCurrent(primary));

  CUgraph clone = nullptr;
  CHECK_CU(cuGraphClone(&clone, graphs[1]));
  f.check("a clone", clone, "the first");
  CUgraph around = Fixture::make_graph();
  CHECK_CU(cuCtxSetCurrent(f.view[1]));
  CHECK_CU(cuGraphAddChildGraphNode(&node, around, nullptr, 0, graphs[1]));
  CHECK_CU(cuCtxSetCurrent(primary));
  f.check("a child graph", around, "the first");

  CHECK_CU(cuGraphDestroyNode(first));
  f.add(graphs[1], primary);
  f.check("another node in its place", graphs[1], "all");
  for (CUgraph graph : graphs) CHECK_CU(cuGraphDestroy(graph));
  for (CUgraph graph : {clone, around}) CHECK_CU(cuGraphDestroy(graph));
}

// A kernel of a library runs in the context that the node's parameters name.
void libraries() {
  Fixture f;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CHECK_CU(
      cuLibraryLoadData(&library, e2e::kernels_ptx(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK_CU(cuLibraryGetKernel(&kernel, library, "where"));
  const auto check = [&](const char* what, CUcontext current, CUcontext named, const char* wanted) {
    CUDA_KERNEL_NODE_PARAMS params = f.kernel(named);
    params.func = nullptr;
    params.kern = kernel;
    CUgraph graph = Fixture::make_graph();
    CUgraphNode node = nullptr;
    CHECK_CU(cuCtxSetCurrent(current));
    CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
    CHECK_CU(cuCtxSetCurrent(f.session.context));
    f.check(what, graph, wanted);
    CHECK_CU(cuGraphKernelNodeGetParams_v2(node, &params));
    const CUcontext place = named != nullptr ? named : current;
    e2e::expect(params.ctx == place && params.kern == kernel, "its context is that one");
    CHECK_CU(cuGraphDestroy(graph));
  };
  check("without a context, in a green one", f.view[0], nullptr, "the first");
  check("with a green context", f.session.context, f.view[1], "the second");
  check("with another one than the current one", f.view[0], f.view[1], "the second");
  check("with the primary one", f.view[0], f.session.context, "all");
  CHECK_CU(cuLibraryUnload(library));
}

// ---- Conditional nodes -------------------------------------------------------------------------

// Adds a conditional node whose condition is true. The result is its body, or null if it can't be
// added.
CUgraph add_conditional(CUgraph graph, CUcontext of_handle, CUcontext of_node) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  params.conditional.ctx = of_node;
  CHECK_CU(cuGraphConditionalHandleCreate(&params.conditional.handle, graph, of_handle, 1,
                                          CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNode node = nullptr;
  const CUresult result = cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &params);
  if (result == CUDA_SUCCESS) return params.conditional.phGraph_out[0];
  e2e::expect_result("a conditional node and a handle of two contexts", result,
                     CUDA_ERROR_INVALID_VALUE);
  return nullptr;
}

void conditionals() {
  Fixture f;
  const CUcontext primary = f.session.context;
  CUgraph graphs[5];
  for (CUgraph& graph : graphs) graph = Fixture::make_graph();
  f.add(add_conditional(graphs[0], f.view[1], f.view[1]), f.view[1]);
  f.check("the body of a green context's conditional node", graphs[0], "the second");
  f.add(add_conditional(graphs[1], f.view[0], f.view[0]), primary);
  f.add(add_conditional(graphs[2], primary, primary), f.view[0]);
  CUgraphExec exec = nullptr;
  for (CUgraph graph : {graphs[1], graphs[2]}) {
    e2e::expect_result("a kernel of another context in the body",
                       cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  }
  e2e::expect(add_conditional(graphs[3], primary, f.view[0]) == nullptr, "a green context's node");
  e2e::expect(add_conditional(graphs[4], f.view[0], primary) == nullptr, "a green one's handle");
  for (CUgraph graph : graphs) CHECK_CU(cuGraphDestroy(graph));
}

// ---- Nodes that are captured -------------------------------------------------------------------

void captured() {
  Fixture f;
  const CUcontext primary = f.session.context;
  CUgraph in_plain = f.capture(f.plain), in_first = f.capture(f.stream[0]);
  f.check("a capture of a stream of the primary context", in_plain, "all");
  f.check("a capture of a green context's stream", in_first, "the first");

  CHECK_CU(cuCtxSetCurrent(f.view[0]));
  CUgraph in_second = f.capture(f.stream[1]);
  CHECK_CU(cuCtxSetCurrent(primary));
  f.check("what is current does not count", in_second, "the second");

  CUDA_KERNEL_NODE_PARAMS params{};
  CHECK_CU(cuGraphKernelNodeGetParams_v2(Fixture::only_node(in_first), &params));
  e2e::expect(params.ctx == f.view[0], "the node's context is the green context's");
  CHECK_CU(cuGraphKernelNodeGetParams_v2(Fixture::only_node(in_plain), &params));
  e2e::expect(params.ctx == primary, "that of the other node is the primary one");

  // A capture that continues in a stream of another green context.
  e2e::Buffer<uint32_t> elsewhere(std::vector<uint32_t>(f.blocks, ~0u));
  CUevent fork = nullptr, join = nullptr;
  CHECK_CU(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  CHECK_CU(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  CUgraph both = nullptr;
  CHECK_CU(cuStreamBeginCapture_v2(f.stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_CU(cuEventRecord(fork, f.stream[0]));
  CHECK_CU(cuStreamWaitEvent(f.stream[1], fork, 0));
  f.launch_where(f.stream[0]);
  e2e::launch(f.where, f.blocks, 32, 0, f.stream[1], elsewhere.address, kRounds);
  CHECK_CU(cuEventRecord(join, f.stream[1]));
  CHECK_CU(cuStreamWaitEvent(f.stream[0], join, 0));
  CHECK_CU(cuStreamEndCapture(f.stream[0], &both));
  f.check("one branch of a capture in two green contexts", both, "the first");
  const std::vector<uint32_t> sms = elsewhere.get();
  e2e::expect(f.owner({sms.begin(), sms.end()}) == "the second", "the other branch");
  CHECK_CU(cuEventDestroy_v2(fork));
  CHECK_CU(cuEventDestroy_v2(join));

  CUgraph clone = nullptr;
  CHECK_CU(cuGraphClone(&clone, in_first));
  f.check("a clone", clone, "the first");
  for (CUgraph graph : {in_plain, in_first, in_second, both, clone}) {
    CHECK_CU(cuGraphDestroy(graph));
  }
}

// ---- Changes -----------------------------------------------------------------------------------

struct Changing : Fixture {
  CUgraph graph = make_graph(), plain_graph = make_graph();
  CUgraphNode node = add(graph, view[0]), plain_node = add(plain_graph, session.context);
  CUgraphExec exec = instantiate(graph), plain_exec = instantiate(plain_graph);
  ~Changing() {
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphExecDestroy(plain_exec));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuGraphDestroy(plain_graph));
  }
};

void set_parameters(Changing& f) {
  const CUcontext primary = f.session.context;
  const CUDA_KERNEL_NODE_PARAMS params = f.kernel(f.view[1]);
  const auto set_exec = [&](const char* what, CUgraphExec exec, CUgraphNode node, CUcontext current,
                            CUresult wanted) {
    CHECK_CU(cuCtxSetCurrent(current));
    e2e::expect_result(what, cuGraphExecKernelNodeSetParams_v2(exec, node, &params), wanted);
    CHECK_CU(cuCtxSetCurrent(primary));
  };
  set_exec("an executable node in its context", f.exec, f.node, f.view[0], CUDA_SUCCESS);
  f.check("the parameters' context does not count", f.exec, "the first");
  set_exec("in the primary context", f.exec, f.node, primary, CUDA_ERROR_INVALID_VALUE);
  set_exec("in another green context", f.exec, f.node, f.view[1], CUDA_ERROR_INVALID_VALUE);
  f.check("after that", f.exec, "the first");
  set_exec("one of the primary context", f.plain_exec, f.plain_node, primary, CUDA_SUCCESS);
  set_exec("in a green context", f.plain_exec, f.plain_node, f.view[1], CUDA_ERROR_INVALID_VALUE);
  f.check("after that", f.plain_exec, "all");

  const auto set = [&](CUcontext current) {
    CUDA_KERNEL_NODE_PARAMS now{};
    CHECK_CU(cuCtxSetCurrent(current));
    CHECK_CU(cuGraphKernelNodeSetParams_v2(f.node, &params));
    CHECK_CU(cuCtxSetCurrent(primary));
    CHECK_CU(cuGraphKernelNodeGetParams_v2(f.node, &now));
    e2e::expect(now.ctx == current, "the node's context is the current one");
  };
  set(primary);
  f.check("a node's parameters set in the primary context", f.graph, "all");
  set(f.view[1]);
  f.check("in another green context", f.graph, "the second");
  set(f.view[0]);
  f.check("in its own", f.graph, "the first");
}

void update(Changing& f) {
  CUgraph captured[] = {f.capture(f.stream[0]), f.capture(f.stream[1]), f.capture(f.plain)};
  const auto check = [](const char* what, CUgraphExec exec, CUgraph graph, bool same) {
    CUgraphExecUpdateResultInfo info{};
    e2e::expect_result(what, cuGraphExecUpdate_v2(exec, graph, &info),
                       same ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    e2e::expect(info.result == (same ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                     : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE),
                "why");
  };
  check("an update to a capture of the same green context", f.exec, captured[0], true);
  check("of another one", f.exec, captured[1], false);
  check("of the primary one", f.exec, captured[2], false);
  f.check("after that", f.exec, "the first");
  check("an update of the primary context's node", f.plain_exec, captured[2], true);
  check("to one of a green context", f.plain_exec, captured[0], false);
  f.check("after that", f.plain_exec, "all");

  CUgraph around = Fixture::make_graph();
  CUgraphNode child = nullptr;
  CHECK_CU(cuGraphAddChildGraphNode(&child, around, nullptr, 0, f.graph));
  CUgraphExec exec = Fixture::instantiate(around);
  e2e::expect_result("a child graph of the same green context",
                     cuGraphExecChildGraphNodeSetParams(exec, child, captured[0]), CUDA_SUCCESS);
  e2e::expect_result("of another one", cuGraphExecChildGraphNodeSetParams(exec, child, captured[1]),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  f.check("after that", exec, "the first");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(around));
  for (CUgraph graph : captured) CHECK_CU(cuGraphDestroy(graph));
}

void changed() {
  Changing f;
  set_parameters(f);
  update(f);
}

// ---- Cooperative launches ----------------------------------------------------------------------

void cooperative() {
  Fixture f;
  constexpr unsigned kThreads = 1024;
  int per_sm = 0;
  CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, f.where, kThreads, 0));
  // f.seen holds more than these: kBlocksPerSm for each SM.
  const unsigned most = static_cast<unsigned>(per_sm) * f.share;
  const auto launch = [&](CUstream in, unsigned blocks) {
    return cuLaunchCooperativeKernel(f.where, blocks, 1, 1, kThreads, 1, 1, 0, in, f.arguments);
  };
  e2e::expect_result("as many blocks as a green context holds", launch(f.stream[0], most),
                     CUDA_SUCCESS);
  e2e::expect_result("one more", launch(f.stream[0], most + 1),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  e2e::expect_result("in a stream of the primary context", launch(f.plain, most + 1), CUDA_SUCCESS);

  for (const CUstream in : {f.stream[0], f.plain}) {
    CUgraph graph = nullptr;
    CHECK_CU(cuStreamBeginCapture_v2(in, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(launch(in, most));
    CHECK_CU(cuStreamEndCapture(in, &graph));
    CUgraphExec exec = Fixture::instantiate(graph);
    f.forget();
    CHECK_CU(cuGraphLaunch(exec, f.stream[1]));
    CHECK_CU(cuStreamSynchronize(f.stream[1]));
    Sms sms = f.look();
    sms.erase(~0u);  // the words of blocks that the grid does not have
    e2e::expect((f.owner(sms) == "the first") == (in == f.stream[0]), "captured, it runs: %s",
                in == f.stream[0] ? "in the green context" : "in the primary context");
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graph));
  }
}

// ---- Occupancy ---------------------------------------------------------------------------------

void occupancy() {
  Fixture f;
  constexpr unsigned kThreads = 256;
  int per_sm = 0;
  CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, f.where, kThreads, 0));
  CUlaunchAttribute one{};
  one.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  one.value.clusterDim = {1, 1, 1};
  const auto clusters = [&](CUstream stream) {
    CUlaunchConfig config{};
    config.gridDimX = 64;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = kThreads;
    config.hStream = stream;
    config.attrs = &one;
    config.numAttrs = 1;
    int count = 0;
    CHECK_CU(cuOccupancyMaxActiveClusters(&count, f.where, &config));
    return static_cast<unsigned>(count / per_sm);
  };
  const auto grid = [&] {
    int blocks = 0, threads = 0;
    CHECK_CU(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, f.where, nullptr, 0, 0));
    return static_cast<unsigned>(blocks);
  };
  e2e::expect(clusters(f.plain) == f.total, "clusters in a stream of the primary context");
  e2e::expect(clusters(f.stream[0]) == f.share, "in a stream of a green context");
  e2e::expect(clusters(nullptr) == f.total, "in the default stream");
  const unsigned whole = grid();
  CHECK_CU(cuCtxSetCurrent(f.view[1]));
  e2e::expect(clusters(f.plain) == f.total, "what is current does not count");
  e2e::expect(clusters(nullptr) == f.share, "but has a default stream of its own");
  e2e::expect(grid() * f.total == whole * f.share, "a grid that fills a green context");
  CHECK_CU(cuCtxSetCurrent(f.session.context));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  const std::pair<const char*, void (*)()> groups[] = {
      {"added", added},        {"libraries", libraries}, {"conditionals", conditionals},
      {"captured", captured},  {"changed", changed},     {"cooperative", cooperative},
      {"occupancy", occupancy}};
  for (const auto& [name, run] : groups) {
    if (group != name) continue;
    run();
    return e2e::finish();
  }
  printf("usage: drv_green_graphs ");
  for (const auto& [name, run] : groups) printf("%s%s", run == added ? "" : "|", name);
  printf("\n");
  return 1;
}
