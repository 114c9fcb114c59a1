// SPDX-License-Identifier: Apache-2.0
// Random programs that launch functions which are loaded already and functions which they have just
// loaded, in legacy, blocking and non-blocking streams, with graphs, fills, copies, variables of
// modules and events. A model runs the same operations one after the other. Operations on one
// buffer are ordered by their stream, by the rules of the legacy stream, by an event or by a
// synchronisation, so every result is defined. Run by run_e2e.py. usage: drv_fresh_order [PROGRAMS
// [SEED]]
#include <memory>
#include <utility>

#include "driver.h"
#include "fresh_code.h"

namespace {

constexpr uint32_t kWords = 96;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr uint32_t kBuffers = 4;
constexpr uint32_t kStreams = 5;  // the legacy stream, two blocking ones, two non-blocking ones
constexpr uint32_t kLegacy = 0;
constexpr uint32_t kBlocking = 2;  // the last one that the legacy stream's rules apply to
constexpr uint32_t kSteps = 60;    // per program
constexpr size_t kMostCode = 6;    // modules and libraries that are loaded at a time

using Words = std::vector<uint32_t>;

// Something that one operation at a time may use, and the stream of its last use.
struct Place {
  CUdeviceptr address = 0;
  uint32_t stream = kLegacy;
  Words model;
};

// A module or library with the function `step`, with or without a variable.
struct Code {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  CUfunction step = nullptr;
  CUkernel kernel = nullptr;  // set if `step` is this handle, which only launches accept
  uint32_t constant = 0;
  std::unique_ptr<Place> bias;
  CUgraphExec graph = nullptr;  // one step of the first buffer, key 5; made when first used

  ~Code() {
    if (graph != nullptr) CHECK_CU(cuGraphExecDestroy(graph));
    if (library != nullptr) CHECK_CU(cuLibraryUnload(library));
    if (module != nullptr) CHECK_CU(cuModuleUnload(module));
  }
};

class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed), seed_(seed) {
    CHECK_CU(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    for (uint32_t i = 1; i < kStreams; i++) {
      CHECK_CU(cuStreamCreate(&streams_[i],
                              i <= kBlocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    }
    for (Place& buffer : buffers_) {
      CHECK_CU(cuMemAlloc_v2(&buffer.address, kBytes));
      buffer.model.assign(kWords, 1);
      CHECK_CU(cuMemsetD32_v2(buffer.address, 1, kWords));
    }
    CHECK_CU(cuCtxSynchronize());
  }
  Program(const Program&) = delete;
  ~Program() {
    code_.clear();
    for (Place& buffer : buffers_) CHECK_CU(cuMemFree_v2(buffer.address));
    for (uint32_t i = 1; i < kStreams; i++) CHECK_CU(cuStreamDestroy_v2(streams_[i]));
    CHECK_CU(cuEventDestroy_v2(event_));
  }

  [[nodiscard]] bool run() {
    for (uint32_t i = 0; i < kSteps; i++) step();
    CHECK_CU(cuCtxSynchronize());
    bool right = true;
    for (const Place& buffer : buffers_) right = check(buffer) && right;
    for (const auto& code : code_) {
      if (code->bias != nullptr) right = check(*code->bias) && right;
    }
    return right;
  }

 private:
  void step() {
    const uint32_t stream = random_.below(kStreams);
    Place& buffer = buffers_[random_.below(kBuffers)];
    const uint32_t kind = random_.below(10);
    if (code_.empty() || kind == 0) load();
    Code& code = *code_[random_.below(static_cast<uint32_t>(code_.size()))];
    if (kind <= 4)  // 0: the code that was loaded last
      launch(kind == 0 ? *code_.back() : code, buffer, stream);
    else if (kind == 5) {
      launch_graph(code, stream);
    } else if (kind == 6) {
      fill(buffer, stream);
    } else if (kind == 7) {
      copy(buffer, buffers_[random_.below(kBuffers)], stream);
    } else if (kind == 8) {
      set_bias(code, stream);
    } else {
      unload();
    }
  }

  // Orders the next operation in `stream` after the last use of the place.
  void order(Place& place, uint32_t stream) {
    const uint32_t before = std::exchange(place.stream, stream);
    const bool barrier =
        (before == kLegacy && stream <= kBlocking) || (stream == kLegacy && before <= kBlocking);
    if (before == stream || barrier) return;
    if (random_.below(4) == 0) {
      CHECK_CU(cuStreamSynchronize(streams_[before]));
      return;
    }
    CHECK_CU(cuEventRecord(event_, streams_[before]));
    CHECK_CU(cuStreamWaitEvent(streams_[stream], event_, 0));
  }

  void load() {
    if (code_.size() == kMostCode) unload();
    auto code = std::make_unique<Code>();
    // A constant that no other code has, so that the code is new to the driver.
    code->constant = static_cast<uint32_t>(seed_ * 1000 + ++loaded_);
    const bool bias = random_.below(2) == 0;
    const std::string text = fresh::step_ptx(code->constant, bias);
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (random_.below(2) == 0) {
      CHECK_CU(cuModuleLoadData(&code->module, text.c_str()));
      CHECK_CU(cuModuleGetFunction(&code->step, code->module, "step"));
      if (bias) CHECK_CU(cuModuleGetGlobal_v2(&address, &bytes, code->module, "bias"));
    } else {
      CHECK_CU(cuLibraryLoadData(&code->library, text.c_str(), nullptr, nullptr, 0, nullptr,
                                 nullptr, 0));
      CHECK_CU(cuLibraryGetKernel(&code->kernel, code->library, "step"));
      code->step = reinterpret_cast<CUfunction>(code->kernel);
      if (random_.below(2) == 0) {
        CHECK_CU(cuKernelGetFunction(&code->step, code->kernel));
        code->kernel = nullptr;
      }
      if (bias) CHECK_CU(cuLibraryGetGlobal(&address, &bytes, code->library, "bias"));
    }
    if (bias) {
      code->bias = std::make_unique<Place>();
      code->bias->address = address;
      code->bias->model = {0};
    }
    code_.push_back(std::move(code));
  }
  void unload() {
    if (code_.empty()) return;
    code_.erase(code_.begin() + random_.below(static_cast<uint32_t>(code_.size())));
  }

  void mix(const Code& code, Place& buffer, uint32_t key) {
    e2e::mix_on_host(buffer.model,
                     key + code.constant + (code.bias == nullptr ? 0 : code.bias->model[0]));
  }
  void launch(Code& code, Place& buffer, uint32_t stream) {
    order(buffer, stream);
    if (code.bias != nullptr) order(*code.bias, stream);
    const uint32_t key = random_.below(1000);
    e2e::launch(code.step, 3, 32, 0, streams_[stream], buffer.address, kWords, key);
    mix(code, buffer, key);
  }
  void launch_graph(Code& code, uint32_t stream) {
    constexpr uint32_t kKey = 5;
    if (code.graph == nullptr) make_graph(code, kKey);
    order(buffers_[0], stream);
    if (code.bias != nullptr) order(*code.bias, stream);
    CHECK_CU(cuGraphLaunch(code.graph, streams_[stream]));
    mix(code, buffers_[0], kKey);
  }
  void make_graph(Code& code, uint32_t key) {
    uint32_t count = kWords;
    void* arguments[] = {&buffers_[0].address, &count, &key};
    CUDA_KERNEL_NODE_PARAMS parameters{};
    if (code.kernel == nullptr) {
      parameters.func = code.step;
    } else {
      parameters.kern = code.kernel;
    }
    parameters.gridDimX = 3;
    parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = 32;
    parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = arguments;
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &parameters));
    CHECK_CU(cuGraphInstantiateWithFlags(&code.graph, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
  }
  void fill(Place& buffer, uint32_t stream) {
    order(buffer, stream);
    const uint32_t value = random_.below(1000);
    CHECK_CU(cuMemsetD32Async(buffer.address, value, kWords, streams_[stream]));
    buffer.model.assign(kWords, value);
  }
  void copy(Place& to, Place& from, uint32_t stream) {
    if (&to == &from) return;
    order(to, stream);
    order(from, stream);
    CHECK_CU(cuMemcpyDtoDAsync_v2(to.address, from.address, kBytes, streams_[stream]));
    to.model = from.model;
  }
  // Sets the variable by a fill, or by a copy of a buffer's first word.
  void set_bias(Code& code, uint32_t stream) {
    if (code.bias == nullptr) return;
    Place& bias = *code.bias;
    order(bias, stream);
    if (random_.below(2) == 0) {
      bias.model[0] = random_.below(1000);
      CHECK_CU(cuMemsetD32Async(bias.address, bias.model[0], 1, streams_[stream]));
      return;
    }
    Place& from = buffers_[random_.below(kBuffers)];
    order(from, stream);
    CHECK_CU(cuMemcpyDtoDAsync_v2(bias.address, from.address, 4, streams_[stream]));
    bias.model[0] = from.model[0];
  }
  [[nodiscard]] bool check(const Place& place) const {
    Words seen(place.model.size());
    CHECK_CU(cuMemcpyDtoH_v2(seen.data(), place.address, seen.size() * sizeof(uint32_t)));
    return seen == place.model;
  }

  e2e::Random random_;
  const uint64_t seed_;
  uint64_t loaded_ = 0;
  CUevent event_ = nullptr;
  CUstream streams_[kStreams] = {};  // the first is the legacy stream
  Place buffers_[kBuffers];
  std::vector<std::unique_ptr<Code>> code_;
};

}  // namespace

int main(int argc, char** argv) {
  const e2e::Session session;
  const size_t programs = e2e::argument(argc, argv, 1, 20);
  const size_t first = e2e::argument(argc, argv, 2, 1);
  size_t right = 0;
  for (size_t seed = first; seed < first + programs; seed++) {
    if (Program(seed).run()) {
      right++;
    } else {
      printf("# program %zu is wrong\n", seed);
    }
  }
  e2e::expect(right == programs, "%zu of %zu programs came to the model's results", right,
              programs);
  return e2e::finish();
}
