// SPDX-License-Identifier: Apache-2.0
// Thread block clusters: launches with the cluster attribute and of kernels that require a cluster
// size, captures and graphs; blocks that exchange data through each other's shared memory; errors
// of launches and results of occupancy queries. Run by run_e2e.py. usage: drv_clusters
// run|attributes|graphs|errors
#include <string>

#include "own_module.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr unsigned kThreads = 64;

// ring: each block writes its number to the next block of its cluster, waits for the cluster, and
// stores the number that it was given and the size of the cluster.
#define RING(name, directives)                                                              \
  ".visible .entry " name "(.param .u64 out) " directives                                   \
  " {\n"                                                                                    \
  "  .shared .align 4 .b8 given[256];\n"                                                    \
  "  .reg .b64 %d<3>; .reg .b32 %r<9>; .reg .pred %p;\n"                                    \
  "  ld.param.u64 %d1, [out];\n"                                                            \
  "  mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %tid.x;\n" \
  "  add.u32 %r4, %r1, 1; setp.eq.u32 %p, %r4, %r2; selp.b32 %r4, 0, %r4, %p;\n"            \
  "  mov.u32 %r5, given; shl.b32 %r6, %r3, 2; add.u32 %r5, %r5, %r6;\n"                     \
  "  mapa.shared::cluster.u32 %r6, %r5, %r4;\n"                                             \
  "  mov.u32 %r7, %ctaid.x; mad.lo.u32 %r8, %r7, 64, %r3;\n"                                \
  "  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"                       \
  "  st.shared::cluster.u32 [%r6], %r8;\n"                                                  \
  "  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"                       \
  "  ld.shared.u32 %r6, [%r5]; mul.wide.u32 %d2, %r8, 8; add.s64 %d1, %d1, %d2;\n"          \
  "  st.global.v2.u32 [%d1], {%r6, %r2}; ret;\n"                                            \
  "}\n"

constexpr char kKernels[] = ".version 8.0\n.target sm_90\n.address_size 64\n" RING("ring", "")
    RING("ring_of_four", ".explicitcluster .reqnctapercluster 4, 1, 1")
        RING("ring_of_any", ".explicitcluster") RING("ring_of_two_at_most", ".maxclusterrank 2");

struct Pair {
  uint32_t given, size;
};

struct Bench : e2e::OwnModule {
  static constexpr unsigned kBlocks = 48;
  e2e::Buffer<Pair> out{kBlocks * kThreads};
  void* parameters[1] = {&out.address};

  Bench() : OwnModule(kKernels) {}
  // `cluster`: blocks per cluster; 0: without the attribute.
  CUresult launch(CUfunction function, unsigned cluster, unsigned blocks = kBlocks) {
    CUlaunchAttribute attribute{};
    CUlaunchConfig config = configuration(&attribute, cluster, blocks);
    return cuLaunchKernelEx(&config, function, parameters, nullptr);
  }
  CUlaunchConfig configuration(CUlaunchAttribute* attribute, unsigned cluster, unsigned blocks) {
    attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute->value.clusterDim = {cluster, 1, 1};
    CUlaunchConfig config{};
    config.gridDimX = blocks;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = kThreads;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = attribute;
    config.numAttrs = cluster != 0 ? 1 : 0;
    return config;
  }
  void clear() {
    CHECK_CU(cuMemsetD8_v2(out.address, 0xff, out.bytes()));
    CHECK_CU(
        cuCtxSynchronize());  // the stream of the launches does not wait for the default stream
  }
  // Expects that every block was given the number of its predecessor in its cluster of `cluster`
  // blocks.
  void went_round(const char* what, unsigned cluster) {
    CHECK_CU(cuCtxSynchronize());
    const std::vector<Pair> pairs = out.get();
    bool holds = true;
    for (unsigned i = 0; i < pairs.size(); i++) {
      const unsigned block = i / kThreads, first = block / cluster * cluster;
      const unsigned giver = first + (block - first + cluster - 1) % cluster;
      holds &= pairs[i].given == giver * kThreads + i % kThreads && pairs[i].size == cluster;
    }
    expect(holds, "%s: in clusters of %u", what, cluster);
    clear();
  }
};

void run(Bench& bench) {
  const CUfunction ring = bench.kernel("ring");
  bench.clear();
  for (const unsigned cluster : {1u, 2u, 3u, 4u, 6u, 8u}) {
    CHECK_CU(bench.launch(ring, cluster));
    bench.went_round("asked for by the launch", cluster);
  }
  CHECK_CU(bench.launch(ring, 0));
  bench.went_round("not asked for", 1);
  CHECK_CU(cuFuncSetAttribute(ring, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  CHECK_CU(bench.launch(ring, 16));
  bench.went_round("more than are portable", 16);

  const CUfunction four = bench.kernel("ring_of_four");
  CHECK_CU(cuLaunchKernel(four, Bench::kBlocks, 1, 1, kThreads, 1, 1, 0, bench.stream,
                          bench.parameters, nullptr));
  bench.went_round("required by the kernel", 4);
  CHECK_CU(bench.launch(four, 4));
  bench.went_round("required and asked for", 4);
  CHECK_CU(bench.launch(bench.kernel("ring_of_any"), 2));
  bench.went_round("of any size, but of one", 2);
}

// What CUDA's headers say of clusters that a function requires by its attributes.
void set_by_attributes(Bench& bench) {
  const CUfunction ring = bench.kernel("ring"), four = bench.kernel("ring_of_four");
  bench.clear();
  CHECK_CU(bench.launch(ring, 0));
  bench.went_round("before", 1);
  const auto require = [](CUfunction function, int width, int height, int depth) {
    CHECK_CU(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, width));
    CHECK_CU(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, height));
    CHECK_CU(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, depth));
  };
  require(ring, 2, 1, 1);
  CHECK_CU(bench.launch(ring, 0));
  bench.went_round("required by attributes", 2);
  int width = 0;
  CHECK_CU(cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, ring));
  expect(width == 2, "the attribute is read as it was set");
  expect_result("another size than by attributes", bench.launch(ring, 4),
                CUDA_ERROR_INVALID_CLUSTER_SIZE);
  require(ring, 0, 0, 0);
  CHECK_CU(bench.launch(ring, 4));
  bench.went_round("no longer required", 4);
  expect_result("of a kernel whose code says it",
                cuFuncSetAttribute(four, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2),
                CUDA_ERROR_NOT_PERMITTED);
}

void graphs(Bench& bench) {
  bench.clear();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  const auto run_graph = [&] {
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_CU(cuGraphLaunch(exec, bench.stream));
    CHECK_CU(cuStreamSynchronize(bench.stream));
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graph));
  };
  CHECK_CU(cuStreamBeginCapture_v2(bench.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_CU(bench.launch(bench.kernel("ring"), 4));
  CHECK_CU(cuStreamEndCapture(bench.stream, &graph));
  run_graph();
  bench.went_round("captured", 4);

  CHECK_CU(cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS node_parameters{};
  node_parameters.func = bench.kernel("ring");
  node_parameters.gridDimX = Bench::kBlocks;
  node_parameters.gridDimY = node_parameters.gridDimZ = 1;
  node_parameters.blockDimX = kThreads;
  node_parameters.blockDimY = node_parameters.blockDimZ = 1;
  node_parameters.kernelParams = bench.parameters;
  CUgraphNode node = nullptr;
  CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &node_parameters));
  CUlaunchAttributeValue value{};
  value.clusterDim = {8, 1, 1};
  CHECK_CU(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
  CUlaunchAttributeValue got{};
  CHECK_CU(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &got));
  expect(got.clusterDim.x == 8, "a node tells its clusters");
  value.clusterDim = {5, 1, 1};
  expect_result("a node whose clusters do not fit its grid",
                cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value),
                CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK_CU(cuGraphKernelNodeSetParams_v2(node, &node_parameters));
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphLaunch(exec, bench.stream));
  CHECK_CU(cuStreamSynchronize(bench.stream));
  bench.went_round("a node of a graph", 8);
  bench.clear();
  CHECK_CU(cuGraphExecKernelNodeSetParams_v2(exec, node, &node_parameters));
  CHECK_CU(cuGraphLaunch(exec, bench.stream));
  CHECK_CU(cuStreamSynchronize(bench.stream));
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
  bench.went_round("with new parameters", 8);
}

void errors(Bench& bench) {
  constexpr CUresult kSize = CUDA_ERROR_INVALID_CLUSTER_SIZE;
  const CUfunction ring = bench.kernel("ring");
  // Expects the result of the launch, and no later error in the stream.
  const auto says = [&](const char* what, CUresult at_once, CUresult wanted) {
    expect_result(what, at_once, wanted);
    CHECK_CU(cuStreamSynchronize(bench.stream));
  };
  says("a size that does not divide the grid", bench.launch(ring, 5), kSize);
  says("16 blocks, which are not portable", bench.launch(ring, 16), kSize);
  CHECK_CU(cuFuncSetAttribute(ring, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  says("16 blocks, allowed", bench.launch(ring, 16), CUDA_SUCCESS);
  says("24 blocks", bench.launch(ring, 24), kSize);
  const CUfunction four = bench.kernel("ring_of_four");
  says("another size than required", bench.launch(four, 2), kSize);
  says("a grid that the required size does not divide", bench.launch(four, 0, 6), kSize);
  says("a kernel that must be told", bench.launch(bench.kernel("ring_of_any"), 0), kSize);
  says("clusters of three where two are the most",
       bench.launch(bench.kernel("ring_of_two_at_most"), 3), kSize);

  const auto attribute = [](CUfunction function, CUfunction_attribute which) {
    int value = -1;
    CHECK_CU(cuFuncGetAttribute(&value, which, function));
    return value;
  };
  expect(attribute(four, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) == 4 &&
             attribute(four, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT) == 1 &&
             attribute(four, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH) == 1,
         "the clusters that a kernel requires");
  expect(attribute(ring, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) == 0 &&
             attribute(ring, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) == 0,
         "and one that requires none");
  expect(attribute(bench.kernel("ring_of_any"), CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) == 1,
         "one that must be told");

  CUlaunchAttribute asked{};
  CUlaunchConfig config = bench.configuration(&asked, 4, Bench::kBlocks);
  int of_four = 0, of_eight = 0;
  CHECK_CU(cuOccupancyMaxActiveClusters(&of_four, ring, &config));
  asked.value.clusterDim.x = 8;
  CHECK_CU(cuOccupancyMaxActiveClusters(&of_eight, ring, &config));
  printf("# %d clusters of 4 blocks, %d of 8\n", of_four, of_eight);
  expect(of_eight >= 1 && of_four >= 2 * of_eight, "how many clusters are resident");
  int size = 0;
  CHECK_CU(cuOccupancyMaxPotentialClusterSize(&size, ring, &config));
  expect(size == 16, "the largest that the function may have");
  CHECK_CU(cuOccupancyMaxPotentialClusterSize(&size, bench.kernel("ring_of_any"), &config));
  expect(size == 8, "the largest portable one");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  {
    Bench bench;
    if (group == "run") {
      run(bench);
    } else if (group == "attributes") {
      set_by_attributes(bench);
    } else if (group == "graphs") {
      graphs(bench);
    } else if (group == "errors") {
      errors(bench);
    } else {
      expect(false, "usage: drv_clusters run|attributes|graphs|errors");
    }
  }
  return e2e::finish();
}
