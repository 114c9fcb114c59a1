// SPDX-License-Identifier: Apache-2.0
// A program that loads code and runs it, in every way: modules and libraries, with and without
// variables, in streams, graphs and threads. All results are compared with a model. With `hold` it
// prints "ready" after the first round and waits for a line on standard input; then the loaded code
// runs again. Behind OpenMPS it runs beside neighbours that keep the GPU busy for any time. Run by
// run_e2e.py. usage: drv_fresh_code [hold]
#include "fresh_code.h"

#include <functional>
#include <memory>
#include <thread>

#include "driver.h"

namespace {

constexpr uint32_t kWords = 3000;
constexpr unsigned kBlock = 128;
constexpr uint32_t kThreads = 4;
// More than the 48 KiB that a block may have without an opt-in.
constexpr uint32_t kSharedWords = 16 * 1024;
constexpr int kSharedBytes = kSharedWords * sizeof(uint32_t);

using Words = std::vector<uint32_t>;

Words numbers(uint32_t count, uint32_t seed) {
  Words words(count);
  e2e::Random random(seed);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random.next());
  return words;
}

// Words on the device, their model on the host, and a stream for the work on them.
struct Lane {
  explicit Lane(uint32_t seed, uint32_t count = kWords)
      : model(numbers(count, seed)), words(model) {
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() { CHECK_CU(cuStreamDestroy_v2(stream)); }

  void step(CUfunction function, uint32_t key, uint32_t constants) {
    e2e::launch(function, e2e::blocks_for(kWords, kBlock), kBlock, 0, stream, words.address, kWords,
                key);
    e2e::mix_on_host(model, key + constants);
  }
  [[nodiscard]] bool right() {
    Words seen(model.size());
    CHECK_CU(cuMemcpyDtoHAsync_v2(seen.data(), words.address, words.bytes(), stream));
    CHECK_CU(cuStreamSynchronize(stream));
    return seen == model;
  }

  Words model;
  e2e::Buffer<uint32_t> words;
  CUstream stream = nullptr;
};

// Something that is loaded once and runs any number of times.
struct Part {
  virtual ~Part() = default;
  virtual bool run(uint32_t round) = 0;
};

CUlibrary load_library(const std::string& text) {
  CUlibrary library = nullptr;
  CHECK_CU(cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  return library;
}

// Runs the kernel with the variable set by a fill, then with it set by a copy, and reads it back.
bool run_with_bias(Lane& lane, CUfunction step, CUdeviceptr bias, uint32_t constant,
                   uint32_t round) {
  CHECK_CU(cuMemsetD32Async(bias, 100 + round, 1, lane.stream));
  lane.step(step, round, constant + 100 + round);
  const uint32_t copied = 7000 + round;
  CHECK_CU(cuMemcpyHtoDAsync_v2(bias, &copied, sizeof copied, lane.stream));
  lane.step(step, round + 1, constant + copied);
  uint32_t seen = 0;
  CHECK_CU(cuMemcpyDtoHAsync_v2(&seen, bias, sizeof seen, lane.stream));
  return lane.right() && seen == copied;
}

struct ModuleWithVariable final : Part {
  static constexpr uint32_t kConstant = 11;
  ModuleWithVariable() {
    CHECK_CU(cuModuleLoadData(&module, fresh::step_ptx(kConstant, true).c_str()));
    CHECK_CU(cuModuleGetFunction(&step, module, "step"));
    size_t bytes = 0;
    CHECK_CU(cuModuleGetGlobal_v2(&bias, &bytes, module, "bias"));
  }
  ~ModuleWithVariable() override { CHECK_CU(cuModuleUnload(module)); }
  bool run(uint32_t round) override { return run_with_bias(lane, step, bias, kConstant, round); }

  CUmodule module = nullptr;
  CUfunction step = nullptr;
  CUdeviceptr bias = 0;
  Lane lane{1};
};

struct LibraryWithVariable final : Part {
  static constexpr uint32_t kConstant = 23;
  LibraryWithVariable() : library(load_library(fresh::step_ptx(kConstant, true))) {
    CUkernel kernel = nullptr;
    CHECK_CU(cuLibraryGetKernel(&kernel, library, "step"));
    step = reinterpret_cast<CUfunction>(kernel);
    size_t bytes = 0;
    CHECK_CU(cuLibraryGetGlobal(&bias, &bytes, library, "bias"));
  }
  ~LibraryWithVariable() override { CHECK_CU(cuLibraryUnload(library)); }
  bool run(uint32_t round) override { return run_with_bias(lane, step, bias, kConstant, round); }

  CUlibrary library = nullptr;
  CUfunction step = nullptr;
  CUdeviceptr bias = 0;
  Lane lane{2};
};

// A kernel of a library by both of its handles, in several streams that events order.
struct LibraryInStreams final : Part {
  static constexpr uint32_t kConstant = 37;
  LibraryInStreams() : library(load_library(fresh::step_ptx(kConstant, false))) {
    CHECK_CU(cuLibraryGetKernel(&kernel, library, "step"));
    CHECK_CU(cuKernelGetFunction(&step, kernel));
    CHECK_CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  }
  ~LibraryInStreams() override {
    CHECK_CU(cuEventDestroy_v2(event));
    CHECK_CU(cuStreamDestroy_v2(other));
    CHECK_CU(cuLibraryUnload(library));
  }
  bool run(uint32_t round) override {
    for (uint32_t turn = 0; turn < 6; turn++) {
      lane.step(turn % 2 == 0 ? step : reinterpret_cast<CUfunction>(kernel), round + turn,
                kConstant);
      CHECK_CU(cuEventRecord(event, lane.stream));
      std::swap(lane.stream, other);
      CHECK_CU(cuStreamWaitEvent(lane.stream, event, 0));
    }
    return lane.right();
  }

  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction step = nullptr;
  CUstream other = nullptr;
  CUevent event = nullptr;
  Lane lane{3};
};

// A kernel with more dynamic shared memory than is allowed without an opt-in.
struct LargeShared final : Part {
  static constexpr uint32_t kConstant = 41;
  LargeShared() {
    CHECK_CU(cuModuleLoadData(&module, fresh::reverse_ptx(kConstant).c_str()));
    CHECK_CU(cuModuleGetFunction(&reverse, module, "reverse"));
    CHECK_CU(
        cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kSharedBytes));
  }
  ~LargeShared() override { CHECK_CU(cuModuleUnload(module)); }
  bool run(uint32_t) override {
    int most = 0, blocks = 0;
    CHECK_CU(cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, reverse));
    CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, 256, kSharedBytes));
    e2e::launch(reverse, 1, 256, kSharedBytes, lane.stream, lane.words.address, kSharedWords);
    const Words before = lane.model;
    for (uint32_t i = 0; i < kSharedWords; i++) {
      lane.model[i] = before[kSharedWords - 1 - i] + kConstant;
    }
    return lane.right() && most == kSharedBytes && blocks == 3;
  }

  CUmodule module = nullptr;
  CUfunction reverse = nullptr;
  Lane lane{4, kSharedWords};
};

// A graph of kernels of a module and of a library; each round changes a node of the executable one.
struct Graph final : Part {
  static constexpr uint32_t kFirst = 53, kSecond = 59;
  Graph() : library(load_library(fresh::step_ptx(kSecond, false))) {
    CHECK_CU(cuModuleLoadData(&module, fresh::step_ptx(kFirst, false).c_str()));
    CUkernel kernel = nullptr;
    CHECK_CU(cuModuleGetFunction(&first, module, "step"));
    CHECK_CU(cuLibraryGetKernel(&kernel, library, "step"));
    CHECK_CU(cuKernelGetFunction(&second, kernel));
    CHECK_CU(cuGraphCreate(&graph, 0));
    CUgraphNode node = nullptr;
    with_parameters(first, 1, [&](const CUDA_KERNEL_NODE_PARAMS& parameters) {
      return cuGraphAddKernelNode_v2(&changed, graph, nullptr, 0, &parameters);
    });
    with_parameters(second, 2, [&](const CUDA_KERNEL_NODE_PARAMS& parameters) {
      return cuGraphAddKernelNode_v2(&node, graph, &changed, 1, &parameters);
    });
    CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  }
  ~Graph() override {
    CHECK_CU(cuGraphExecDestroy(exec));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuLibraryUnload(library));
    CHECK_CU(cuModuleUnload(module));
  }
  bool run(uint32_t round) override {
    launch(key);
    key = round + 100;
    with_parameters(first, key, [&](const CUDA_KERNEL_NODE_PARAMS& parameters) {
      return cuGraphExecKernelNodeSetParams_v2(exec, changed, &parameters);
    });
    launch(key);
    lane.step(second, 3, kSecond);
    launch(key);
    return lane.right();
  }

  void launch(uint32_t with_key) {
    CHECK_CU(cuGraphLaunch(exec, lane.stream));
    e2e::mix_on_host(lane.model, with_key + kFirst);
    e2e::mix_on_host(lane.model, 2 + kSecond);
  }
  template <typename Call>
  void with_parameters(CUfunction function, uint32_t with_key, Call&& call) {
    uint32_t count = kWords;
    void* arguments[] = {&lane.words.address, &count, &with_key};
    CUDA_KERNEL_NODE_PARAMS parameters{};
    parameters.func = function;
    parameters.gridDimX = e2e::blocks_for(kWords, kBlock);
    parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = kBlock;
    parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = arguments;
    CHECK_CU(call(parameters));
  }

  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  CUfunction first = nullptr, second = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode changed = nullptr;
  CUgraphExec exec = nullptr;
  uint32_t key = 1;
  Lane lane{5};
};

// Loaded, run and unloaded by several threads at once, in each round anew.
struct Threads final : Part {
  explicit Threads(CUcontext context_in) : context(context_in) {}
  bool run(uint32_t round) override {
    bool right[kThreads] = {};
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; i++) {
      threads.emplace_back([this, i, round, &right] {
        CHECK_CU(cuCtxSetCurrent(context));
        const uint32_t constant = 1000 * round + i;
        CUmodule module = nullptr;
        CUfunction step = nullptr;
        CHECK_CU(cuModuleLoadData(&module, fresh::step_ptx(constant, false).c_str()));
        CHECK_CU(cuModuleGetFunction(&step, module, "step"));
        Lane lane(10 + i);
        for (uint32_t key = 0; key < 20; key++) lane.step(step, key, constant);
        right[i] = lane.right();
        CHECK_CU(cuModuleUnload(module));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const bool one : right) {
      if (!one) return false;
    }
    return true;
  }
  CUcontext context;
};

// Work in the legacy stream, for which all blocking streams wait.
struct Legacy final : Part {
  static constexpr uint32_t kConstant = 71;
  Legacy() {
    CHECK_CU(cuModuleLoadData(&module, fresh::step_ptx(kConstant, false).c_str()));
    CHECK_CU(cuModuleGetFunction(&step, module, "step"));
    CHECK_CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  }
  ~Legacy() override {
    CHECK_CU(cuStreamDestroy_v2(blocking));
    CHECK_CU(cuModuleUnload(module));
  }
  bool run(uint32_t round) override {
    for (uint32_t turn = 0; turn < 6; turn++) {
      e2e::launch(step, e2e::blocks_for(kWords, kBlock), kBlock, 0,
                  turn % 2 == 0 ? blocking : nullptr, words.address, kWords, round + turn);
      e2e::mix_on_host(model, round + turn + kConstant);
    }
    return words.get() == model;
  }
  CUmodule module = nullptr;
  CUfunction step = nullptr;
  CUstream blocking = nullptr;
  Words model = numbers(kWords, 6);
  e2e::Buffer<uint32_t> words{model};
};

struct Named {
  const char* name;
  std::unique_ptr<Part> part;
};

void run_round(const std::vector<Named>& parts, uint32_t round) {
  for (const Named& one : parts) e2e::expect(one.part->run(round), "%s, round %u", one.name, round);
}

}  // namespace

int main(int argc, char** argv) {
  const bool hold = argc > 1 && strcmp(argv[1], "hold") == 0;
  const e2e::Session session;
  std::vector<Named> parts;
  parts.push_back({"a module with a variable", std::make_unique<ModuleWithVariable>()});
  parts.push_back({"a library with a variable", std::make_unique<LibraryWithVariable>()});
  parts.push_back({"a library in two streams", std::make_unique<LibraryInStreams>()});
  parts.push_back({"64 KiB of shared memory", std::make_unique<LargeShared>()});
  parts.push_back({"a graph", std::make_unique<Graph>()});
  parts.push_back({"the legacy stream", std::make_unique<Legacy>()});
  parts.push_back({"threads that load", std::make_unique<Threads>(session.context)});
  run_round(parts, 1);
  run_round(parts, 2);
  if (hold) {
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF) return 2;
  }
  run_round(parts, 3);
  run_round(parts, 4);
  parts.clear();
  return e2e::finish();
}
