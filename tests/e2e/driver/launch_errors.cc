// SPDX-License-Identifier: Apache-2.0
// Errors that CUDA reports at a launch are returned by the launch call, and not later: dimensions,
// block sizes that a kernel was not compiled for, shared memory, clusters, attributes and their
// values, functions and streams of other contexts; also during captures, and for nodes of graphs.
// Run by run_e2e.py. usage: drv_launch_errors shapes|attributes|contexts|captures
#include <functional>
#include <string>

#include "own_module.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr char kKernels[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry plain() { ret; }
.visible .entry at_most_128() .maxntid 128, 1, 1 { ret; }
.visible .entry just_8_4_2() .reqntid 8, 4, 2 { ret; }
.visible .entry with_word(.param .u64 word) {
  .reg .u64 %rd<2>;
  ld.param.u64 %rd1, [word];
  st.global.u32 [%rd1], 42;
  ret;
}
.visible .entry with_shared(.param .u64 word) {
  .shared .align 4 .b8 own[16384];
  .reg .u64 %rd<2>;
  .reg .u32 %r<3>;
  ld.param.u64 %rd1, [word];
  ld.global.u32 %r1, [%rd1];
  st.shared.u32 [own], %r1;
  ld.shared.u32 %r2, [own + 8];
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

struct Bench : e2e::OwnModule {
  e2e::Buffer<uint32_t> word{1};
  void* parameters[1] = {&word.address};

  Bench() : OwnModule(kKernels) {}

  // Expects the result of the launch, and no later error in the stream.
  void says(const char* what, CUresult at_once, CUresult wanted) const {
    expect_result(what, at_once, wanted);
    const CUresult later = cuStreamSynchronize(stream);
    if (later != CUDA_SUCCESS) expect(false, "%s, later: %s", what, e2e::name(later));
  }
  struct Shape {
    uint32_t grid[3] = {1, 1, 1};
    uint32_t block[3] = {1, 1, 1};
    uint32_t shared = 0;
  };
  void launch(const char* what, CUfunction function, const Shape& shape, CUresult wanted) {
    says(what,
         cuLaunchKernel(function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                        shape.block[1], shape.block[2], shape.shared, stream, parameters, nullptr),
         wanted);
  }
  CUresult launch_with(CUfunction function, unsigned grid, std::vector<CUlaunchAttribute> list) {
    CUlaunchConfig config{};
    config.gridDimX = grid;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = list.data();
    config.numAttrs = static_cast<unsigned>(list.size());
    return cuLaunchKernelEx(&config, function, parameters, nullptr);
  }
};

using Fill = std::function<void(CUlaunchAttributeValue&)>;
CUlaunchAttribute attribute(CUlaunchAttributeID id, const Fill& fill) {
  CUlaunchAttribute made{};
  made.id = id;
  fill(made.value);
  return made;
}
CUlaunchAttribute cluster(unsigned x, unsigned y, unsigned z) {
  return attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [=](CUlaunchAttributeValue& value) {
    value.clusterDim.x = x;
    value.clusterDim.y = y;
    value.clusterDim.z = z;
  });
}
CUlaunchAttribute preferred(unsigned x) {
  return attribute(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
                   [=](CUlaunchAttributeValue& value) {
                     value.preferredClusterDim.x = x;
                     value.preferredClusterDim.y = value.preferredClusterDim.z = 1;
                   });
}

void shapes(Bench& bench) {
  const CUfunction plain = bench.kernel("plain");
  const auto refused = [&](const char* what, const Bench::Shape& shape) {
    bench.launch(what, plain, shape, CUDA_ERROR_INVALID_VALUE);
  };
  bench.launch("one block of one thread", plain, {}, CUDA_SUCCESS);
  refused("no blocks", {.grid = {1, 0, 1}});
  refused("no threads", {.block = {1, 1, 0}});
  refused("a grid of 2^31", {.grid = {0x80000000u, 1, 1}});
  refused("a grid 65536 high", {.grid = {1, 65536, 1}});
  refused("a block 65 deep", {.block = {1, 1, 65}});
  refused("2048 threads", {.block = {64, 32, 1}});
  bench.launch("as many threads as a kernel takes", bench.kernel("at_most_128"),
               {.block = {32, 2, 2}}, CUDA_SUCCESS);
  bench.launch("more", bench.kernel("at_most_128"), {.block = {129, 1, 1}},
               CUDA_ERROR_INVALID_VALUE);

  // No attribute of a function tells the block size that it requires, so the first launch checks
  // it.
  const CUfunction exact = bench.kernel("just_8_4_2");
  for (int round = 0; round < 2; round++) {
    bench.launch("a block of another size than required", exact, {.block = {8, 4, 1}},
                 CUDA_ERROR_INVALID_VALUE);
    bench.launch("of another shape", exact, {.block = {64, 1, 1}}, CUDA_ERROR_INVALID_VALUE);
    bench.launch("the required one", exact, {.block = {8, 4, 2}}, CUDA_SUCCESS);
  }
  for (const uint32_t threads : {1u, 2u, 1u, 4u, 2u}) {
    bench.launch("a kernel that takes any size", plain, {.block = {threads, 1, 1}}, CUDA_SUCCESS);
  }

  int most = 0;
  CHECK_CU(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
  const auto size = static_cast<uint32_t>(most);
  const auto allow = [](CUfunction function, int bytes) {
    return cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
  };
  bench.launch("48 KiB of shared memory", plain, {.shared = 49152}, CUDA_SUCCESS);
  refused("more than a function is allowed", {.shared = 49153});
  CHECK_CU(allow(plain, most));
  bench.launch("all of it, allowed", plain, {.shared = size}, CUDA_SUCCESS);
  expect_result("allowing more than there is", allow(plain, most + 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_CU(allow(plain, 16));
  refused("more than a function is still allowed", {.shared = 17});
  const CUfunction shared = bench.kernel("with_shared");
  bench.launch("beside its own", shared, {.shared = 32768}, CUDA_SUCCESS);
  bench.launch("too much beside its own", shared, {.shared = 32769}, CUDA_ERROR_INVALID_VALUE);
  expect_result("allowing too much beside its own", allow(shared, most), CUDA_ERROR_INVALID_VALUE);

  const auto cooperative = [&](const char* what, const Bench::Shape& shape, CUresult wanted) {
    bench.says(what,
               cuLaunchCooperativeKernel(plain, shape.grid[0], 1, 1, shape.block[0], 1, 1,
                                         shape.shared, bench.stream, nullptr),
               wanted);
  };
  cooperative("a cooperative launch", {}, CUDA_SUCCESS);
  cooperative("too large", {.grid = {1000000, 1, 1}, .block = {1024, 1, 1}},
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  cooperative("too much shared memory for one", {.shared = 300000},
              CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  cooperative("no blocks", {.grid = {0, 1, 1}}, CUDA_ERROR_INVALID_VALUE);
  cooperative("2048 threads", {.block = {2048, 1, 1}}, CUDA_ERROR_INVALID_VALUE);

  bench.launch("no function", nullptr, {}, CUDA_ERROR_INVALID_HANDLE);
  const CUfunction word = bench.kernel("with_word");
  bench.says("no parameters",
             cuLaunchKernel(word, 1, 1, 1, 1, 1, 1, 0, bench.stream, nullptr, nullptr),
             CUDA_ERROR_INVALID_VALUE);
  size_t bytes = 16;
  CUdeviceptr buffer[2] = {bench.word.address, 0};
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  bench.says("more parameters than it has",
             cuLaunchKernel(plain, 1, 1, 1, 1, 1, 1, 0, bench.stream, nullptr, extra),
             CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  bytes = 9;
  bench.says("a byte too many",
             cuLaunchKernel(word, 1, 1, 1, 1, 1, 1, 0, bench.stream, nullptr, extra),
             CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  bytes = 0;
  bench.says("none of them in a buffer",
             cuLaunchKernel(word, 1, 1, 1, 1, 1, 1, 0, bench.stream, nullptr, extra),
             CUDA_ERROR_INVALID_VALUE);
  bytes = 8;
  bench.says("all of them in a buffer",
             cuLaunchKernel(word, 1, 1, 1, 1, 1, 1, 0, bench.stream, nullptr, extra), CUDA_SUCCESS);
  expect(bench.word.get()[0] == 42, "which it gets");
}

void attributes(Bench& bench) {
  const CUfunction plain = bench.kernel("plain");
  const auto says = [&](const char* what, unsigned grid, std::vector<CUlaunchAttribute> list,
                        CUresult wanted) {
    bench.says(what, bench.launch_with(plain, grid, std::move(list)), wanted);
  };
  constexpr CUresult kSize = CUDA_ERROR_INVALID_CLUSTER_SIZE;
  says("clusters of one block", 4, {cluster(1, 1, 1)}, CUDA_SUCCESS);
  says("clusters of zeros", 4, {cluster(0, 0, 0)}, CUDA_SUCCESS);
  says("clusters of 3 in a grid of 4", 4, {cluster(3, 1, 1)}, kSize);
  says("larger than the grid", 1, {cluster(2, 1, 1)}, kSize);
  says("without a width", 4, {cluster(0, 1, 1)}, kSize);
  says("without a height", 4, {cluster(2, 0, 1)}, kSize);
  says("of 9 blocks", 9, {cluster(9, 1, 1)}, kSize);
  says("of 64", 64, {cluster(64, 1, 1)}, kSize);
  says("preferred, with none to fall back to", 8, {preferred(4)}, kSize);
  says("preferred, no multiple", 12, {cluster(2, 1, 1), preferred(3)}, kSize);
  says("preferred, not in the grid", 6, {cluster(2, 1, 1), preferred(4)}, kSize);
  says("no blocks", 0, {cluster(2, 1, 1)}, CUDA_ERROR_INVALID_VALUE);

  const auto value = [&](const char* what, CUlaunchAttributeID id, CUresult wanted,
                         const Fill& fill) { says(what, 1, {attribute(id, fill)}, wanted); };
  using V = CUlaunchAttributeValue;
  constexpr CUresult kBad = CUDA_ERROR_INVALID_VALUE;
  value("an unknown attribute", static_cast<CUlaunchAttributeID>(99), kBad, [](V&) {});
  value("an attribute to ignore", CU_LAUNCH_ATTRIBUTE_IGNORE, CUDA_SUCCESS, [](V&) {});
  value("an attribute of streams", CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, kBad,
        [](V& v) { v.syncPolicy = CU_SYNC_POLICY_AUTO; });
  value("any priority", CU_LAUNCH_ATTRIBUTE_PRIORITY, CUDA_SUCCESS, [](V& v) { v.priority = 100; });
  value("a remote domain", CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, CUDA_SUCCESS,
        [](V& v) { v.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE; });
  value("no such domain", CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, kBad,
        [](V& v) { v.memSyncDomain = static_cast<CUlaunchMemSyncDomain>(5); });
  value("a map to no such domain", CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, kBad,
        [](V& v) { v.memSyncDomainMap.remote = 200; });
  value("no such policy", CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, kBad, [](V& v) {
    v.clusterSchedulingPolicyPreference = static_cast<CUclusterSchedulingPolicy>(7);
  });
  value("101 per cent of shared memory", CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, kBad,
        [](V& v) { v.sharedMemCarveout = 101; });
  value("half of it", CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CUDA_SUCCESS,
        [](V& v) { v.sharedMemCarveout = 50; });
  CUaccessPolicyWindow window{};
  window.base_ptr = reinterpret_cast<void*>(bench.word.address);
  window.num_bytes = 4;
  window.hitRatio = 1;
  window.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
  window.missProp = CU_ACCESS_PROPERTY_STREAMING;
  const auto windowed = [&](const char* what, CUresult wanted,
                            const std::function<void(CUaccessPolicyWindow&)>& change) {
    value(what, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, wanted, [&](V& v) {
      v.accessPolicyWindow = window;
      change(v.accessPolicyWindow);
    });
  };
  windowed("a window", CUDA_SUCCESS, [](auto&) {});
  windowed("one of 8 GiB", kBad, [](auto& w) { w.num_bytes = 1ull << 33; });
  windowed("two hits of one", kBad, [](auto& w) { w.hitRatio = 2; });
  windowed("misses that persist", kBad,
           [](auto& w) { w.missProp = CU_ACCESS_PROPERTY_PERSISTING; });
  windowed("hits of any kind", CUDA_SUCCESS,
           [](auto& w) { w.hitProp = static_cast<CUaccessProperty>(9); });

  CUevent quick = nullptr;
  CUevent timed = nullptr;
  CHECK_CU(cuEventCreate(&quick, CU_EVENT_DISABLE_TIMING));
  CHECK_CU(cuEventCreate(&timed, CU_EVENT_DEFAULT));
  const auto event = [&](const char* what, CUevent which, int flags, CUresult wanted) {
    value(what, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, wanted, [=](V& v) {
      v.programmaticEvent.event = which;
      v.programmaticEvent.flags = flags;
    });
    value("at the kernel's end", CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, wanted, [=](V& v) {
      v.launchCompletionEvent.event = which;
      v.launchCompletionEvent.flags = flags;
    });
  };
  event("an event", quick, 0, CUDA_SUCCESS);
  event("an event that takes times", timed, 0, CUDA_ERROR_NOT_SUPPORTED);
  event("an event with flags", quick, 3, kBad);
  event("no event", nullptr, 0, CUDA_ERROR_INVALID_HANDLE);
  value("a node that devices update, in a stream", CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
        CUDA_ERROR_NOT_SUPPORTED, [](V& v) { v.deviceUpdatableKernelNode.deviceUpdatable = 1; });
  CHECK_CU(cuEventDestroy_v2(quick));
  CHECK_CU(cuEventDestroy_v2(timed));

  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = bench.stream;
  config.numAttrs = 1;
  bench.says("attributes that are not there", cuLaunchKernelEx(&config, plain, nullptr, nullptr),
             kBad);
  bench.says("no configuration", cuLaunchKernelEx(nullptr, plain, nullptr, nullptr), kBad);
}

void contexts(Bench& bench) {
  const CUfunction plain = bench.kernel("plain");
  const auto launch = [](CUfunction function, CUstream stream) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  };
  CUlibrary library = nullptr;
  CUkernel everywhere = nullptr;
  CHECK_CU(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK_CU(cuLibraryGetKernel(&everywhere, library, "plain"));
  const auto kernel = reinterpret_cast<CUfunction>(everywhere);

  CUcontext other = nullptr;
  CHECK_CU(cuCtxCreate_v4(&other, nullptr, 0, bench.device));
  CUstream others = nullptr;
  CHECK_CU(cuStreamCreate(&others, CU_STREAM_NON_BLOCKING));
  expect_result("a function of another context", launch(plain, nullptr), CUDA_ERROR_INVALID_HANDLE);
  expect_result("in a stream of this one", launch(plain, others), CUDA_ERROR_INVALID_HANDLE);
  expect_result("in a stream of its own", launch(plain, bench.stream), CUDA_SUCCESS);
  CHECK_CU(cuCtxSetCurrent(bench.context));
  expect_result("a stream of another context", launch(plain, others), CUDA_ERROR_INVALID_HANDLE);
  expect_result("a kernel of a library there", launch(kernel, others), CUDA_SUCCESS);
  expect_result("and here", launch(kernel, bench.stream), CUDA_SUCCESS);
  CHECK_CU(cuCtxSynchronize());
  CHECK_CU(cuStreamSynchronize(others));
  CHECK_CU(cuLibraryUnload(library));
  CHECK_CU(cuCtxDestroy_v2(other));
}

void captures(Bench& bench) {
  const CUfunction plain = bench.kernel("plain");
  const auto captured = [&](const char* what, const std::function<CUresult()>& launch,
                            CUresult wanted, bool survives) {
    CHECK_CU(cuStreamBeginCapture_v2(bench.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    expect_result(what, launch(), wanted);
    CUgraph graph = nullptr;
    const CUresult ended = cuStreamEndCapture(bench.stream, &graph);
    expect_result(survives ? "  the capture goes on" : "  the capture is over", ended,
                  survives ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (ended == CUDA_SUCCESS) CHECK_CU(cuGraphDestroy(graph));
  };
  const auto plainly = [&](unsigned grid, unsigned block, unsigned shared) {
    return [&bench, plain, grid, block, shared] {
      return cuLaunchKernel(plain, grid, 1, 1, block, 1, 1, shared, bench.stream, nullptr, nullptr);
    };
  };
  captured("a good launch", plainly(1, 1, 0), CUDA_SUCCESS, true);
  captured("no blocks", plainly(0, 1, 0), CUDA_ERROR_INVALID_VALUE, false);
  captured("2048 threads", plainly(1, 2048, 0), CUDA_ERROR_INVALID_VALUE, false);
  captured("too much shared memory", plainly(1, 1, 49153), CUDA_ERROR_INVALID_VALUE, false);
  captured(
      "clusters of 3 in a grid of 4",
      [&] { return bench.launch_with(plain, 4, {cluster(3, 1, 1)}); },
      CUDA_ERROR_INVALID_CLUSTER_SIZE, false);
  captured(
      "a cooperative launch that is too large",
      [&] {
        return cuLaunchCooperativeKernel(plain, 1000000, 1, 1, 1024, 1, 1, 0, bench.stream,
                                         nullptr);
      },
      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, false);
  captured(
      "no function",
      [&] { return cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, bench.stream, nullptr, nullptr); },
      CUDA_ERROR_INVALID_HANDLE, true);
  captured(
      "an unknown attribute",
      [&] {
        return bench.launch_with(plain, 1,
                                 {attribute(static_cast<CUlaunchAttributeID>(99), [](auto&) {})});
      },
      CUDA_ERROR_INVALID_VALUE, true);

  // For nodes of graphs, the error is returned by the call that adds or changes them.
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  const auto add = [&](unsigned grid, unsigned block, unsigned shared, CUgraphNode* node) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = plain;
    params.gridDimX = grid;
    params.blockDimX = block;
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.sharedMemBytes = shared;
    return cuGraphAddKernelNode_v2(node, graph, nullptr, 0, &params);
  };
  CUgraphNode node = nullptr;
  expect_result("a node without blocks", add(0, 1, 0, &node), CUDA_ERROR_INVALID_VALUE);
  expect_result("of 2048 threads", add(1, 2048, 0, &node), CUDA_ERROR_INVALID_VALUE);
  expect_result("with too much shared memory", add(1, 1, 49153, &node), CUDA_ERROR_INVALID_VALUE);
  expect_result("a good one", add(4, 1, 0, &node), CUDA_SUCCESS);
  CUkernelNodeAttrValue value{};
  value.clusterDim.x = 3;
  value.clusterDim.y = value.clusterDim.z = 1;
  expect_result("with clusters of 3 in its grid of 4",
                cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value),
                CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphLaunch(exec, bench.stream));
  expect_result("which runs without them", cuStreamSynchronize(bench.stream), CUDA_SUCCESS);
  CHECK_CU(cuGraphExecDestroy(exec));
  CHECK_CU(cuGraphDestroy(graph));
}

}  // namespace

int main(int argc, char** argv) {
  Bench bench;
  const std::string group = argc > 1 ? argv[1] : "shapes";
  if (group == "shapes") shapes(bench);
  if (group == "attributes") attributes(bench);
  if (group == "contexts") contexts(bench);
  if (group == "captures") captures(bench);
  return e2e::finish();
}
