// SPDX-License-Identifier: Apache-2.0
// Where the kernels of a program run, whichever way they are launched: on no more SMs than the
// program is told that the device has. Behind a server that limits the program (an active thread
// percentage), those are fewer than the device's. Run by run_e2e.py. usage: drv_sm_share [hold]
// `hold`: prints what it has seen, and goes on with it until its input ends. "# told N seen A B
// ...": the SMs by number.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "driver.h"

namespace {

using Sms = std::set<uint32_t>;

constexpr uint32_t kRounds = 2000;
constexpr unsigned kThreads = 32;
constexpr unsigned kPiled = 600;  // launches one behind the other: more than a batch has

struct Census {
  e2e::Session& session;
  CUfunction where = session.function("where");
  CUfunction kernel = session.function("empty");
  unsigned told = 0;
  unsigned blocks = 0;
  Sms seen;

  explicit Census(e2e::Session& the_session) : session(the_session) {
    int count = 0;
    CHECK_CU(
        cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, session.device));
    told = static_cast<unsigned>(count);
    blocks = 64 * told;
  }

  // The SMs that what `run` gives a stream is on: f(address of a word for each block).
  template <typename F>
  Sms sms_of(unsigned words, CUstream stream, F&& run) {
    e2e::Buffer<uint32_t> at(std::vector<uint32_t>(words, ~0u));
    CHECK_CU(cuCtxSynchronize());
    run(at.address);
    CHECK_CU(cuStreamSynchronize(stream));
    const std::vector<uint32_t> found = at.get();
    const Sms sms(found.begin(), found.end());
    seen.insert(sms.begin(), sms.end());
    return sms;
  }
  void expect(const Sms& sms, const char* what) {
    e2e::expect(sms.count(~0u) == 0 && !sms.empty() && seen.size() <= told, "%s", what);
  }

  void launches() {
    CUstream stream = nullptr;
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (const CUstream in : {CUstream{nullptr}, stream}) {
      expect(
          sms_of(blocks, in,
                 [&](CUdeviceptr at) { e2e::launch(where, blocks, kThreads, 0, in, at, kRounds); }),
          in == nullptr ? "a launch in the default stream" : "a launch in a stream");
    }
    // The first teaches how long it takes.
    const Sms piled = sms_of(kPiled * 8, stream, [&](CUdeviceptr at) {
      for (unsigned i = 0; i < kPiled; i++) {
        e2e::launch(where, 8, kThreads, 0, stream, at + i * 8 * sizeof(uint32_t), 8u);
      }
    });
    expect(piled, "many launches one behind the other");
    CHECK_CU(cuStreamDestroy_v2(stream));
  }

  void graphs() {
    CUstream stream = nullptr;
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (const bool captured : {false, true}) {
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      const Sms sms = sms_of(blocks, stream, [&](CUdeviceptr at) {
        uint32_t rounds = kRounds;
        void* parameters[] = {&at, &rounds};
        if (captured) {
          CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
          CHECK_CU(
              cuLaunchKernel(where, blocks, 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr));
          CHECK_CU(cuStreamEndCapture(stream, &graph));
        } else {
          CUDA_KERNEL_NODE_PARAMS node{};
          node.func = where;
          node.gridDimX = blocks;
          node.blockDimX = kThreads;
          node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
          node.kernelParams = parameters;
          CUgraphNode made = nullptr;
          CHECK_CU(cuGraphCreate(&graph, 0));
          CHECK_CU(cuGraphAddKernelNode_v2(&made, graph, nullptr, 0, &node));
        }
        CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CHECK_CU(cuGraphLaunch(exec, stream));
      });
      expect(sms, captured ? "a captured graph" : "a graph");
      CHECK_CU(cuGraphExecDestroy(exec));
      CHECK_CU(cuGraphDestroy(graph));
    }
    CHECK_CU(cuStreamDestroy_v2(stream));
  }

  // As many blocks as there is said to be room for; one more is refused.
  void cooperative() {
    int each = 0;
    CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, where, kThreads, 0));
    const unsigned most = static_cast<unsigned>(each) * told;
    uint32_t rounds = 8;
    CUresult result = CUDA_SUCCESS;
    const auto launch = [&](unsigned count, CUdeviceptr at) {
      void* parameters[] = {&at, &rounds};
      result =
          cuLaunchCooperativeKernel(where, count, 1, 1, kThreads, 1, 1, 0, nullptr, parameters);
    };
    expect(sms_of(most, nullptr, [&](CUdeviceptr at) { launch(most, at); }),
           "a cooperative launch that fills all SMs");
    CHECK_CU(result);
    e2e::Buffer<uint32_t> at(most + 1);
    launch(most + 1, at.address);
    e2e::expect_result("one block more", result, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  }

  // What the device is said to have is what can be split.
  void green() {
    CUdevResource all{};
    CHECK_CU(cuDeviceGetDevResource(session.device, &all, CU_DEV_RESOURCE_TYPE_SM));
    e2e::expect(all.sm.smCount == told, "the resource is as large as the device");
    CUcontext current = nullptr;
    CHECK_CU(cuCtxGetCurrent(&current));
    CUexecAffinityParam affinity{};
    CHECK_CU(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
    e2e::expect(affinity.param.smCount.val == told, "so is the context's affinity");
  }

  void report() const {
    printf("# told %u seen", told);
    for (const uint32_t sm : seen) printf(" %u", sm);
    printf("\n");
  }
};

bool input_has_ended() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char byte;
  return poll(&input, 1, 0) == 1 && read(STDIN_FILENO, &byte, 1) <= 0;
}

}  // namespace

int main(int argc, char** argv) {
  e2e::Session session;
  Census census(session);
  const bool holds = argc > 1 && strcmp(argv[1], "hold") == 0;
  do {
    census.launches();
    census.graphs();
    census.cooperative();
    census.green();
    census.report();
  } while (holds && !input_has_ended());
  return e2e::finish();
}
