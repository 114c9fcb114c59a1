// SPDX-License-Identifier: Apache-2.0
// A program whose SMs are changed while it runs. Each round has launches, a batch of launches, and
// a launch of an executable graph; streams and graph were created at the start. The program prints
// the SMs on which the kernels ran, and checks their results. The code may be loaded in the cold
// context, and moves later. Run by scenarios.py, until the program's standard input ends.
// usage: drv_live_sms [BLOCKS TURNS | variables | compiled | green | cooperative | updates]
// "# round N at T most M SMs A B ...": the SMs of a round that began at T ns of CLOCK_MONOTONIC,
// and the most SMs that one launch of the round had. The launches that report SMs have 16 blocks
// for each SM. BLOCKS TURNS: they have BLOCKS blocks, each of which spins for TURNS turns, and a
// round has little else. variables: machine code with a variable, which the host writes each round
// (docs/decisions/0032). compiled: PTX. green: the streams are in a green context of half the SMs
// that the program has at the start. cooperative: the graph's kernel is cooperative, and such
// launches have a block for each SM of the device. updates: the graph is captured anew each round,
// with another parameter, and the executable graph is updated from it.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "driver.h"
#include "fresh_code.h"

namespace {

constexpr uint32_t kTurns = 400;  // so long that the next block of `where` gets another SM
constexpr unsigned kThreads = 32;
constexpr unsigned kPiled = 48;  // launches one after the other: more than a batch has
constexpr unsigned kLooks = 16;
constexpr size_t kWords = 512;
constexpr uint32_t kGraphKey = 77;

bool input_has_ended() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char byte;
  return poll(&input, 1, 0) == 1 && read(STDIN_FILENO, &byte, 1) <= 0;
}

struct Code {
  CUfunction where;
  CUfunction mix;
  CUdeviceptr bias = 0;  // the address of a variable that `mix` adds to its key; 0: none
};

// Stateless kernels and one with a variable, in one module.
class ModuleWithVariable {
 public:
  // `is_linked`: linked to machine code beforehand, else compiled when it is loaded, with an
  // option.
  explicit ModuleWithVariable(bool is_linked) {
    constexpr uint32_t kConstant = 0;
    const std::string step = fresh::step_ptx(kConstant, true);
    if (is_linked) {
      link(step);
    } else {
      constexpr std::string_view kHeadEnd = ".address_size 64\n";
      const std::string both =
          e2e::stateless_kernels_ptx() + step.substr(step.find(kHeadEnd) + kHeadEnd.size());
      CUjit_option option = CU_JIT_MAX_REGISTERS;
      void* value = reinterpret_cast<void*>(uintptr_t{64});
      CHECK_CU(cuModuleLoadDataEx(&module_, both.c_str(), 1, &option, &value));
    }
    size_t bytes = 0;
    CHECK_CU(cuModuleGetFunction(&code_.where, module_, "where"));
    CHECK_CU(cuModuleGetFunction(&code_.mix, module_, "step"));
    CHECK_CU(cuModuleGetGlobal_v2(&code_.bias, &bytes, module_, "bias"));
  }
  ~ModuleWithVariable() {
    CHECK_CU(cuModuleUnload(module_));
    if (link_ != nullptr) CHECK_CU(cuLinkDestroy(link_));
  }
  ModuleWithVariable(const ModuleWithVariable&) = delete;
  ModuleWithVariable& operator=(const ModuleWithVariable&) = delete;
  [[nodiscard]] const Code& code() const { return code_; }

 private:
  void link(const std::string& step) {
    CHECK_CU(cuLinkCreate_v2(0, nullptr, nullptr, &link_));
    for (const char* ptx : {e2e::stateless_kernels_ptx(), step.c_str()}) {
      CHECK_CU(cuLinkAddData_v2(link_, CU_JIT_INPUT_PTX, const_cast<char*>(ptx), strlen(ptx) + 1,
                                nullptr, 0, nullptr, nullptr));
    }
    void* image = nullptr;
    size_t bytes = 0;
    CHECK_CU(cuLinkComplete(link_, &image, &bytes));
    CHECK_CU(cuModuleLoadData(&module_, image));
  }

  CUlinkState link_ = nullptr;
  CUmodule module_ = nullptr;
  Code code_{};
};

// A green context of half the SMs.
class GreenHalf {
 public:
  explicit GreenHalf(CUdevice device) {
    CUdevResource all{}, half{};
    CHECK_CU(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    unsigned groups = 1;
    CHECK_CU(cuDevSmResourceSplitByCount(&half, &groups, &all, nullptr, 0, all.sm.smCount / 2));
    CUdevResourceDesc description = nullptr;
    CHECK_CU(cuDevResourceGenerateDesc(&description, &half, 1));
    CHECK_CU(cuGreenCtxCreate(&green_, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
  }
  ~GreenHalf() { CHECK_CU(cuGreenCtxDestroy(green_)); }
  GreenHalf(const GreenHalf&) = delete;
  GreenHalf& operator=(const GreenHalf&) = delete;
  [[nodiscard]] CUgreenCtx get() const { return green_; }

 private:
  CUgreenCtx green_ = nullptr;
};

// All work of a round is in one order, so that the host can compute the results.
class Rounds {
 public:
  // `blocks` 0: by the number of SMs. `green`: the green context of the streams; null: none.
  Rounds(e2e::Session& session, const Code& code, unsigned blocks, uint32_t turns, CUgreenCtx green,
         bool is_cooperative, bool updates)
      : code_(code),
        blocks_(blocks),
        turns_(turns),
        only_looks_(blocks != 0),
        is_cooperative_(is_cooperative),
        updates_(updates) {
    int count = 0;
    CHECK_CU(
        cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, session.device));
    if (blocks_ == 0) blocks_ = (is_cooperative ? 1 : 16) * static_cast<unsigned>(count);
    at_ = std::make_unique<e2e::Buffer<uint32_t>>(std::vector<uint32_t>(2 * blocks_, ~0u));
    words_ = std::make_unique<e2e::Buffer<uint32_t>>(expected_);
    if (green != nullptr) {
      CHECK_CU(cuGreenCtxStreamCreate(&stream_, green, CU_STREAM_NON_BLOCKING, 0));
      CHECK_CU(cuGreenCtxStreamCreate(&other_, green, CU_STREAM_NON_BLOCKING, 0));
    } else {
      CHECK_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
      CHECK_CU(cuStreamCreate(&other_, CU_STREAM_DEFAULT));
    }
    CHECK_CU(cuEventCreate(&passed_, CU_EVENT_DISABLE_TIMING));
    const CUgraph graph = captured(kGraphKey);
    CHECK_CU(cuGraphInstantiateWithFlags(&exec_, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
  }
  ~Rounds() {
    CHECK_CU(cuGraphExecDestroy(exec_));
    CHECK_CU(cuEventDestroy_v2(passed_));
    CHECK_CU(cuStreamDestroy_v2(other_));
    CHECK_CU(cuStreamDestroy_v2(stream_));
  }
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  void run() {
    const auto began = std::chrono::steady_clock::now();  // Linux: CLOCK_MONOTONIC
    const auto key = static_cast<uint32_t>(++number_);
    if (code_.bias != 0) {
      bias_ = key * 3;
      CHECK_CU(cuMemcpyHtoD_v2(code_.bias, &bias_, sizeof(bias_)));
    }
    mix(stream_, key);
    if (updates_) update(key);
    CHECK_CU(cuGraphLaunch(exec_, stream_));
    follow(updates_ ? key : kGraphKey);
    for (uint32_t i = 0; i < (only_looks_ ? 0 : kPiled); i++) mix(stream_, key + i);
    for (uint32_t i = 0; i < (only_looks_ ? kLooks : 0); i++) {
      e2e::launch(code_.where, blocks_, kThreads, 0, stream_, at_->address, turns_);
    }
    CHECK_CU(cuEventRecord(passed_, stream_));
    CHECK_CU(cuStreamWaitEvent(other_, passed_, 0));
    e2e::launch(code_.where, blocks_, kThreads, 0, other_,
                at_->address + blocks_ * sizeof(uint32_t), turns_);
    mix(other_, key);
    CHECK_CU(cuStreamSynchronize(other_));
    report(std::chrono::nanoseconds(began.time_since_epoch()).count());
  }
  void check() const { e2e::expect(words_->get() == expected_, "%zu rounds", number_); }

 private:
  void mix(CUstream stream, uint32_t key) {
    launch_mix(stream, key);
    follow(key);
  }
  void launch_mix(CUstream stream, uint32_t key) {
    e2e::launch(code_.mix, kWords / kThreads, kThreads, 0, stream, words_->address,
                static_cast<uint32_t>(kWords), key);
  }
  CUgraph captured(uint32_t key) {
    CUgraph graph = nullptr;
    CHECK_CU(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch_mix(stream_, key);
    if (is_cooperative_) {
      uint32_t turns_of_it = turns_;
      void* arguments[] = {&at_->address, &turns_of_it};
      CHECK_CU(cuLaunchCooperativeKernel(code_.where, blocks_, 1, 1, kThreads, 1, 1, 0, stream_,
                                         arguments));
    } else {
      e2e::launch(code_.where, blocks_, kThreads, 0, stream_, at_->address, turns_);
    }
    CHECK_CU(cuStreamEndCapture(stream_, &graph));
    return graph;
  }
  void update(uint32_t key) {
    const CUgraph graph = captured(key);
    CUgraphExecUpdateResultInfo info{};
    CHECK_CU(cuGraphExecUpdate_v2(exec_, graph, &info));
    e2e::expect(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "update %zu: %d", number_,
                info.result);
    CHECK_CU(cuGraphDestroy(graph));
  }
  void follow(uint32_t key) { e2e::mix_on_host(expected_, key + bias_); }
  void report(int64_t began_ns) const {
    const std::vector<uint32_t> found = at_->get();
    std::set<uint32_t> sms(found.begin(), found.begin() + blocks_);
    const std::set<uint32_t> others(found.begin() + blocks_, found.end());
    const size_t most = std::max(sms.size(), others.size());
    sms.insert(others.begin(), others.end());
    printf("# round %zu at %" PRId64 " most %zu SMs", number_, began_ns, most);
    for (const uint32_t sm : sms) printf(" %u", sm);
    printf("\n");
    fflush(stdout);
  }

  const Code code_;
  uint32_t bias_ = 0;
  unsigned blocks_;
  const uint32_t turns_;
  const bool only_looks_;
  const bool is_cooperative_;
  const bool updates_;
  std::vector<uint32_t> expected_ = std::vector<uint32_t>(kWords, 5);
  std::unique_ptr<e2e::Buffer<uint32_t>> at_;
  std::unique_ptr<e2e::Buffer<uint32_t>> words_;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
  CUevent passed_ = nullptr;
  CUgraphExec exec_ = nullptr;
  size_t number_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  e2e::Session session(e2e::stateless_kernels_ptx());
  const auto argument = [&](int i) { return static_cast<uint32_t>(strtoul(argv[i], nullptr, 10)); };
  const bool is_told = argc == 3;
  const auto is = [&](const char* what) { return argc == 2 && strcmp(argv[1], what) == 0; };
  std::optional<ModuleWithVariable> module;
  if (is("variables") || is("compiled")) module.emplace(is("variables"));
  std::optional<GreenHalf> green;
  if (is("green")) green.emplace(session.device);
  const Code code =
      module ? module->code() : Code{session.function("where"), session.function("mix")};
  Rounds rounds(session, code, is_told ? argument(1) : 0, is_told ? argument(2) : kTurns,
                green ? green->get() : nullptr, is("cooperative"), is("updates"));
  do {
    rounds.run();
  } while (!input_has_ended());
  rounds.check();
  return e2e::finish();
}
