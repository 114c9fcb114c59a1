// SPDX-License-Identifier: Apache-2.0
// The SMs on which the kernels of a program run, by every kind of launch: no more than the number
// of SMs that the program is told. Behind a server that limits the program (an active thread
// percentage), these are fewer than the device has. Run by run_e2e.py.
// usage: drv_sm_share [hold | contexts WISH...]
// `hold`: repeats the launches until standard input ends, and prints "# told N seen A B ...": the
// number of SMs that it is told, and the numbers of the SMs on which kernels ran.
// `contexts`: does so in a context for each WISH, one after the other, and then once more in each.
// "16": a number of SMs by execution affinity; "25%": CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is set to
// 25 before the context is created; "-": neither.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>

#include "driver.h"

namespace {

using Sms = std::set<uint32_t>;

constexpr uint32_t kRounds = 2000;
constexpr unsigned kThreads = 32;
constexpr unsigned kPiled = 600;  // launches one after the other: more than a batch has

struct Census {
  CUdevice device;
  CUfunction where = nullptr;
  unsigned told = 0;
  unsigned blocks = 0;
  Sms seen;

  // For the current context, in which `module` is loaded.
  Census(CUdevice of, CUmodule module) : device(of) {
    CHECK_CU(cuModuleGetFunction(&where, module, "where"));
    int count = 0;
    CHECK_CU(cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    told = static_cast<unsigned>(count);
    blocks = 64 * told;
  }

  // The SMs on which the work runs that `run` gives a stream. Its argument is the address of a word
  // for each block.
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
    // The worker learns the kernel's duration from the first launch.
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

  // A launch of as many blocks as fit by the occupancy; one more block is refused.
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

  // The SM resource that can be split has as many SMs as the device is said to have.
  void green() {
    CUdevResource all{};
    CUcontext current = nullptr;
    CHECK_CU(cuCtxGetCurrent(&current));
    CHECK_CU(cuCtxGetDevResource(current, &all, CU_DEV_RESOURCE_TYPE_SM));
    e2e::expect(all.sm.smCount == told, "the resource is as large as the device");
    CUexecAffinityParam affinity{};
    CHECK_CU(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
    e2e::expect(affinity.param.smCount.val == told, "so is the context's affinity");
  }

  void all() {
    launches();
    graphs();
    cooperative();
    green();
    report();
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

// A context whose work runs on as many SMs as the context is told.
class LimitedContext {
 public:
  LimitedContext(CUdevice device, const std::string& wish) {
    CUexecAffinityParam affinity{};
    affinity.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT;
    const bool is_number = wish.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) affinity.param.smCount.val = static_cast<unsigned>(std::stoul(wish));
    if (wish.back() == '%') {
      setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", wish.substr(0, wish.size() - 1).c_str(), 1);
    }
    CHECK_CU(cuCtxCreate_v3(&context_, &affinity, is_number ? 1 : 0, 0, device));
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    CHECK_CU(cuModuleLoadData(&module_, e2e::kernels_ptx()));
    census_ = std::make_unique<Census>(device, module_);
    census_->all();
    CHECK_CU(cuCtxPopCurrent_v2(nullptr));
  }
  LimitedContext(const LimitedContext&) = delete;
  LimitedContext& operator=(const LimitedContext&) = delete;
  ~LimitedContext() { CHECK_CU(cuCtxDestroy_v2(context_)); }

  void again() {
    CHECK_CU(cuCtxPushCurrent_v2(context_));
    census_->all();
    CHECK_CU(cuCtxPopCurrent_v2(nullptr));
  }

 private:
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  std::unique_ptr<Census> census_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "contexts") {
    CHECK_CU(cuInit(0));
    std::vector<std::unique_ptr<LimitedContext>> contexts;
    for (int i = 2; i < argc; i++) contexts.push_back(std::make_unique<LimitedContext>(0, argv[i]));
    for (const auto& context : contexts) context->again();
    return e2e::finish();
  }
  e2e::Session session;
  Census census(session.device, session.module);
  do {
    census.all();
  } while (mode == "hold" && !input_has_ended());
  return e2e::finish();
}
