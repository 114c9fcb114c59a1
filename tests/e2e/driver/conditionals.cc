// SPDX-License-Identifier: Apache-2.0
// Conditional nodes of graphs: if, if/else, while, switch, nested ones, bodies by capture, changes
// and updates, what is refused. Run by run_e2e.py. usage: drv_conditionals run|change|bad
#include <cstdlib>
#include <string>

#include "driver.h"

namespace {

// For NVIDIA's driver the kernels are linked with the library that has cudaGraphSetConditional.
CUmodule load_kernels() {
  CUmodule module = nullptr;
  const char* ptx = e2e::condition_kernels_ptx();
  if (cuModuleLoadData(&module, ptx) == CUDA_SUCCESS) return module;
  const char* named = getenv("E2E_CUDADEVRT");
  const char* library = named != nullptr ? named : "/usr/local/cuda/lib64/libcudadevrt.a";
  printf("# linked with %s\n", library);
  CUlinkState link = nullptr;
  void* image = nullptr;
  size_t bytes = 0;
  CHECK_CU(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  CHECK_CU(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(ptx), strlen(ptx) + 1,
                            "condition_kernels", 0, nullptr, nullptr));
  CHECK_CU(cuLinkAddFile_v2(link, CU_JIT_INPUT_LIBRARY, library, 0, nullptr, nullptr));
  CHECK_CU(cuLinkComplete(link, &image, &bytes));
  CHECK_CU(cuModuleLoadData(&module, image));
  CHECK_CU(cuLinkDestroy(link));
  return module;
}

struct Fixture {
  e2e::Session session;
  CUmodule module = load_kernels();
  CUfunction set_value = function("set_value");
  CUfunction set_from = function("set_from");
  CUfunction count_to = function("count_to");
  CUfunction add = function("add");
  CUstream stream = nullptr;
  e2e::Buffer<uint32_t> words{8};

  Fixture() {
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    clear();
  }
  ~Fixture() {
    CHECK_CU(cuStreamDestroy_v2(stream));
    CHECK_CU(cuModuleUnload(module));
  }

  CUfunction function(const char* kernel) const {
    CUfunction found = nullptr;
    CHECK_CU(cuModuleGetFunction(&found, module, kernel));
    return found;
  }
  CUdeviceptr word(size_t index) const { return words.address + 4 * index; }
  void clear() { words.put(std::vector<uint32_t>(8, 0)); }

  CUgraphConditionalHandle handle(CUgraph graph, unsigned initial = 0, unsigned flags = 0) {
    CUgraphConditionalHandle made = 0;
    CHECK_CU(cuGraphConditionalHandleCreate(&made, graph, session.context, initial, flags));
    return made;
  }
  // Adds a conditional node, and returns its bodies.
  std::vector<CUgraph> conditional(CUgraph graph, CUgraphConditionalHandle handle,
                                   CUgraphConditionalNodeType type, unsigned size,
                                   std::vector<CUgraphNode> behind = {},
                                   CUgraphNode* made = nullptr) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = session.context;
    CUgraphNode node = nullptr;
    CHECK_CU(cuGraphAddNode_v2(&node, graph, behind.data(), nullptr, behind.size(), &params));
    if (made != nullptr) *made = node;
    return {params.conditional.phGraph_out, params.conditional.phGraph_out + size};
  }
  template <typename... Args>
  CUgraphNode kernel(CUgraph graph, std::vector<CUgraphNode> behind, CUfunction function,
                     Args... args) {
    void* pointers[] = {static_cast<void*>(&args)..., nullptr};
    const CUDA_KERNEL_NODE_PARAMS params = launch_of(function, pointers);
    CUgraphNode node = nullptr;
    CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, behind.data(), behind.size(), &params));
    return node;
  }
  static CUDA_KERNEL_NODE_PARAMS launch_of(CUfunction function, void** pointers) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = pointers;
    return params;
  }
  CUgraph graph() {
    CUgraph made = nullptr;
    CHECK_CU(cuGraphCreate(&made, 0));
    return made;
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
  uint32_t get(size_t index) { return words.get()[index]; }
  void set(size_t index, uint32_t value) {
    std::vector<uint32_t> all = words.get();
    all[index] = value;
    words.put(all);
  }
};

// ---- Running ------------------------------------------------------------------------------------

void if_else(Fixture& f) {
  // words[0] is the condition. words[1] counts "then", words[2] "else", words[3] the node behind.
  const CUgraph graph = f.graph();
  const CUgraphConditionalHandle handle = f.handle(graph);
  const CUgraphNode first = f.kernel(graph, {}, f.set_from, handle, f.word(0));
  CUgraphNode node = nullptr;
  const auto bodies = f.conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 2, {first}, &node);
  f.kernel(bodies[0], {}, f.add, f.word(1), 1u);
  const CUgraphNode twice = f.kernel(bodies[1], {}, f.add, f.word(2), 10u);
  f.kernel(bodies[1], {twice}, f.add, f.word(2), 10u);
  f.kernel(graph, {node}, f.add, f.word(3), 1u);
  CUgraphNodeType type{};
  CHECK_CU(cuGraphNodeGetType(node, &type));
  size_t inside = 0;
  CHECK_CU(cuGraphGetNodes(bodies[1], nullptr, &inside));
  e2e::expect(type == CU_GRAPH_NODE_TYPE_CONDITIONAL && inside == 2, "a node with two bodies");
  const CUgraphExec exec = f.instantiate(graph);
  f.clear();
  f.run(exec, 3);
  f.set(0, 7);
  f.run(exec, 2);
  const std::vector<uint32_t> got = f.words.get();
  e2e::expect(got[1] == 2 && got[2] == 60 && got[3] == 5, "if %u, else %u, behind %u", got[1],
              got[2], got[3]);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

void while_loop(Fixture& f) {
  const CUgraph graph = f.graph();
  const CUgraphConditionalHandle handle = f.handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNode node = nullptr;
  const auto body = f.conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, {}, &node);
  const CUgraphNode step = f.kernel(body[0], {}, f.add, f.word(1), 3u);
  f.kernel(body[0], {step}, f.count_to, handle, f.word(0), 10u);
  CUDA_MEMSET_NODE_PARAMS zero{};
  zero.dst = f.word(0);
  zero.elementSize = 4;
  zero.width = zero.height = 1;
  CUgraphNode reset = nullptr;
  CHECK_CU(cuGraphAddMemsetNode(&reset, graph, &node, 1, &zero, f.session.context));
  const CUgraphExec exec = f.instantiate(graph);
  f.clear();
  f.run(exec, 4);
  e2e::expect(f.get(1) == 4 * 10 * 3, "four launches of ten rounds: %u", f.get(1));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

void switch_of_five(Fixture& f) {
  const CUgraph graph = f.graph();
  const CUgraphConditionalHandle handle = f.handle(graph);
  const CUgraphNode first = f.kernel(graph, {}, f.set_from, handle, f.word(0));
  const auto bodies = f.conditional(graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 5, {first});
  uint32_t digit = 1;
  for (const CUgraph body : bodies) {
    if (digit != 100) f.kernel(body, {}, f.add, f.word(1), digit);  // the third body stays empty
    digit *= 10;
  }
  const CUgraphExec exec = f.instantiate(graph);
  f.clear();
  for (uint32_t chosen : {0u, 4u, 1u, 4u, 2u, 9u, 3u}) {
    f.set(0, chosen);
    f.run(exec);
  }
  e2e::expect(f.get(1) == 21011, "one body each: %05u", f.get(1));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

void nested(Fixture& f) {
  // An outer loop of 4 rounds. In it, a loop of 3 rounds, then a count if words[4] is set.
  const CUgraph graph = f.graph();
  const CUgraphConditionalHandle outer = f.handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const CUgraphConditionalHandle inner = f.handle(graph);
  const CUgraphConditionalHandle choice = f.handle(graph);
  const auto loop = f.conditional(graph, outer, CU_GRAPH_COND_TYPE_WHILE, 1);
  const CUgraphNode arm = f.kernel(loop[0], {}, f.set_value, inner, 1u);
  CUgraphNode inner_node = nullptr;
  const auto inner_loop =
      f.conditional(loop[0], inner, CU_GRAPH_COND_TYPE_WHILE, 1, {arm}, &inner_node);
  f.kernel(inner_loop[0], {}, f.count_to, inner, f.word(1), 3u);
  CUDA_MEMCPY3D tally{};
  tally.srcMemoryType = tally.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  tally.srcDevice = f.word(1);
  tally.dstDevice = f.word(2);
  tally.WidthInBytes = 4;
  tally.Height = tally.Depth = 1;
  CUgraphNode copy = nullptr;
  CHECK_CU(cuGraphAddMemcpyNode(&copy, loop[0], &inner_node, 1, &tally, f.session.context));
  CUDA_MEMSET_NODE_PARAMS zero{};
  zero.dst = f.word(1);
  zero.elementSize = 4;
  zero.width = zero.height = 1;
  CUgraphNode reset = nullptr;
  CHECK_CU(cuGraphAddMemsetNode(&reset, loop[0], &copy, 1, &zero, f.session.context));
  const CUgraphNode choose = f.kernel(loop[0], {reset}, f.set_from, choice, f.word(4));
  const auto then = f.conditional(loop[0], choice, CU_GRAPH_COND_TYPE_IF, 1, {choose});
  f.kernel(then[0], {}, f.add, f.word(3), 1u);
  f.kernel(loop[0], {choose}, f.count_to, outer, f.word(0), 4u);
  const CUgraphExec exec = f.instantiate(graph);
  f.clear();
  f.set(4, 1);
  f.run(exec);
  const std::vector<uint32_t> got = f.words.get();
  e2e::expect(got[0] == 4 && got[2] == 3 && got[3] == 4, "outer %u, inner %u, chosen %u", got[0],
              got[2], got[3]);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

void captured(Fixture& f) {
  // The graph and its body both come from captures.
  CUstream side = nullptr;
  CHECK_CU(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_CU(cuMemsetD32Async(f.words.address, 0, 8, f.stream));
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  const CUgraphNode* behind = nullptr;
  size_t count = 0;
  CHECK_CU(cuStreamGetCaptureInfo_v2(f.stream, &status, nullptr, &graph, &behind, &count));
  const CUgraphConditionalHandle handle = f.handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNode node = nullptr;
  const auto body =
      f.conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, {behind, behind + count}, &node);
  CHECK_CU(
      cuStreamUpdateCaptureDependencies(f.stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  CHECK_CU(cuStreamBeginCaptureToGraph(side, body[0], nullptr, nullptr, 0,
                                       CU_STREAM_CAPTURE_MODE_RELAXED));
  e2e::launch(f.add, 1, 1, 0, side, f.word(1), 5u);
  e2e::launch(f.count_to, 1, 1, 0, side, handle, f.word(0), 6u);
  CUgraph ended = nullptr;
  CHECK_CU(cuStreamEndCapture(side, &ended));
  e2e::launch(f.add, 1, 1, 0, f.stream, f.word(1), 1u);
  CHECK_CU(cuStreamEndCapture(f.stream, &graph));
  e2e::expect(ended == body[0], "a capture into the body");
  const CUgraphExec exec = f.instantiate(graph);
  f.run(exec, 2);
  e2e::expect(f.get(0) == 6 && f.get(1) == 31, "captured: %u rounds, %u", f.get(0), f.get(1));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuStreamDestroy_v2(side));
}

// Many graphs with conditional handles exist at a time, and all are destroyed.
void many(Fixture& f) {
  f.clear();
  for (int round = 0; round < 40; round++) {
    const CUgraph graph = f.graph();
    const CUgraphConditionalHandle handle = f.handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    const auto body = f.conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
    f.kernel(body[0], {}, f.add, f.word(0), 1u);
    const CUgraphExec exec = f.instantiate(graph);
    CHECK_CU(cuGraphDestroy(graph));  // the executable graph can still be launched
    f.run(exec, 2);
    CHECK_CU(cuGraphExecDestroy(exec));
  }
  e2e::expect(f.get(0) == 80, "forty graphs ran twice: %u", f.get(0));
}

// ---- Changing -----------------------------------------------------------------------------------

struct Loop {
  CUgraph graph = nullptr;
  CUgraphNode step = nullptr;
  CUgraphConditionalHandle handle = 0;
  Loop(Fixture& f, uint32_t amount, uint32_t rounds) {
    graph = f.graph();
    handle = f.handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    const auto body = f.conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
    step = f.kernel(body[0], {}, f.add, f.word(1), amount);
    f.kernel(body[0], {step}, f.count_to, handle, f.word(0), rounds);
  }
  ~Loop() { CHECK_CU(cuGraphDestroy(graph)); }
};

uint32_t sum_of(Fixture& f, CUgraphExec exec) {
  f.clear();
  f.run(exec);
  return f.get(1);
}

void change(Fixture& f) {
  Loop loop(f, 2, 5);
  CUgraphExec exec = f.instantiate(loop.graph);
  e2e::expect(sum_of(f, exec) == 10, "as made");
  CUdeviceptr address = f.word(1);
  uint32_t amount = 7;
  void* pointers[] = {&address, &amount};
  const CUDA_KERNEL_NODE_PARAMS params = Fixture::launch_of(f.add, pointers);
  CHECK_CU(cuGraphExecKernelNodeSetParams_v2(exec, loop.step, &params));
  e2e::expect(sum_of(f, exec) == 35, "a node of the body got other parameters");
  CHECK_CU(cuGraphNodeSetEnabled(exec, loop.step, 0));
  e2e::expect(sum_of(f, exec) == 0, "and was disabled");
  CHECK_CU(cuGraphExecDestroy(exec));

  // The graph itself is unchanged, and can be instantiated again, also with other parameters.
  exec = f.instantiate(loop.graph);
  e2e::expect(sum_of(f, exec) == 10, "instantiated again");
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphKernelNodeSetParams_v2(loop.step, &params));
  exec = f.instantiate(loop.graph);
  e2e::expect(sum_of(f, exec) == 35, "changed and instantiated again");

  Loop other(f, 11, 3);
  CUgraphExecUpdateResultInfo info{};
  CHECK_CU(cuGraphExecUpdate_v2(exec, other.graph, &info));
  e2e::expect(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && sum_of(f, exec) == 33,
              "updated from another graph with a handle of its own");
  CHECK_CU(cuGraphExecDestroy(exec));
}

// ---- Refused ------------------------------------------------------------------------------------

constexpr CUresult kInvalid = CUDA_ERROR_INVALID_VALUE;
constexpr CUresult kUnsupported = CUDA_ERROR_NOT_SUPPORTED;

CUresult add_node(Fixture& f, CUgraph graph, CUgraphConditionalHandle handle, int type,
                  unsigned size) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle;
  params.conditional.type = static_cast<CUgraphConditionalNodeType>(type);
  params.conditional.size = size;
  params.conditional.ctx = f.session.context;
  CUgraphNode node = nullptr;
  return cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &params);
}

void bad(Fixture& f) {
  const CUgraph graph = f.graph();
  CUgraphConditionalHandle handle = 0;
  e2e::expect_result("unknown flags",
                     cuGraphConditionalHandleCreate(&handle, graph, f.session.context, 0, 6),
                     kInvalid);
  e2e::expect_result("no place for the handle",
                     cuGraphConditionalHandleCreate(nullptr, graph, f.session.context, 0, 0),
                     kInvalid);
  handle = f.handle(graph);
  e2e::expect_result("two bodies of a loop",
                     add_node(f, graph, handle, CU_GRAPH_COND_TYPE_WHILE, 2), kInvalid);
  e2e::expect_result("no bodies", add_node(f, graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 0),
                     kInvalid);
  e2e::expect_result("three bodies of an if", add_node(f, graph, handle, CU_GRAPH_COND_TYPE_IF, 3),
                     kInvalid);
  e2e::expect_result("no such type", add_node(f, graph, handle, 9, 1), kInvalid);
  const auto body = f.conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
  e2e::expect_result("a second node for a handle",
                     add_node(f, graph, handle, CU_GRAPH_COND_TYPE_IF, 1), kInvalid);
  CUgraph copy = nullptr;
  e2e::expect_result("a clone", cuGraphClone(&copy, graph), {kUnsupported, kInvalid});
  const CUgraph around = f.graph();
  CUgraphNode node = nullptr;
  e2e::expect_result("as a child", cuGraphAddChildGraphNode(&node, around, nullptr, 0, graph),
                     {kUnsupported, kInvalid});
  CUgraphExec exec = f.instantiate(graph);
  CUgraphExec second = nullptr;
  e2e::expect_result("a second instance", cuGraphInstantiateWithFlags(&second, graph, 0),
                     {kUnsupported, kInvalid});
  f.run(exec);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  CHECK_CU(cuGraphDestroy(around));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "run";
  {
    Fixture f;
    if (group == "run") {
      if_else(f);
      while_loop(f);
      switch_of_five(f);
      nested(f);
      captured(f);
      many(f);
    } else if (group == "change") {
      change(f);
    } else {
      bad(f);
    }
  }
  return e2e::finish();
}
