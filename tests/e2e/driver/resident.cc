// SPDX-License-Identifier: Apache-2.0
// A program with device memory of every kind, which computes with all of it when it is asked to and
// rests otherwise: plain allocations, of a pool, handles that are mapped twice, for reading only,
// or not at all, a variable of a module, and an executable graph that names some of it. Run by
// memory_scenarios.py. usage: drv_resident [MIB [SEED]]: so many MiB of plain memory. Each line on
// standard input is a command: "step" computes and compares, and prints "ok" or what is wrong;
// "more N" allocates N MiB more, and prints "ok" or the error; "free" prints cuMemGetInfo in MiB;
// "hold" lets the stream wait, which is work under way, until the next "go", which is a step.
#include <chrono>
#include <string>

#include "driver.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGranule = 2 * kMiB;
constexpr unsigned kBlock = 128;
// Of each piece only some words are compared: the test's machine computes them, too.
constexpr size_t kWords = 4096;
constexpr size_t kSmallest = kWords * sizeof(uint32_t);

// Words at the beginning and the end of some memory, and what they should be.
class Piece {
 public:
  Piece(const char* name, CUdeviceptr address, size_t bytes, uint32_t seed)
      : name_(name),
        places_{address, address + bytes - kSmallest},
        count_(bytes < 2 * kSmallest ? 1 : 2) {
    for (size_t i = 0; i < count_; ++i) {
      words_[i].resize(kWords);
      for (size_t at = 0; at < kWords; ++at) {
        words_[i][at] = static_cast<uint32_t>(at * 7 + i) ^ seed;
      }
      CHECK_CU(cuMemcpyHtoD_v2(places_[i], words_[i].data(), kSmallest));
    }
  }
  void launch(CUfunction mix, CUstream stream, uint32_t key) {
    for (size_t i = 0; i < count_; ++i) {
      e2e::launch(mix, e2e::blocks_for(kWords, kBlock), kBlock, 0, stream, places_[i],
                  static_cast<uint32_t>(kWords), key);
      e2e::mix_on_host(words_[i], key);
    }
  }
  // "": all words are as they should be. `through`: an alias of the memory's address; 0: none.
  [[nodiscard]] std::string compare(CUdeviceptr through = 0) const {
    std::vector<uint32_t> got(kWords);
    for (size_t i = 0; i < count_; ++i) {
      const CUdeviceptr from = through == 0 ? places_[i] : through + (places_[i] - places_[0]);
      CHECK_CU(cuMemcpyDtoH_v2(got.data(), from, kSmallest));
      if (got != words_[i]) return std::string("WRONG ") + name_;
    }
    return "";
  }

 private:
  const char* name_;
  CUdeviceptr places_[2];
  size_t count_;
  std::vector<uint32_t> words_[2];
};

CUmemGenericAllocationHandle create(size_t bytes) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  CHECK_CU(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes, CUmemAccess_flags flags) {
  CUdeviceptr address = 0;
  CHECK_CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK_CU(cuMemMap(address, bytes, 0, handle, 0));
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
  CHECK_CU(cuMemSetAccess(address, bytes, &access, 1));
  return address;
}

class Program {
 public:
  Program(size_t mib, uint32_t seed) : mix_(session_.function("mix")), seed_(seed) {
    CHECK_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (size_t part = mib / 2; mib != 0; part = std::max<size_t>(1, mib / 2)) {
      const size_t now = std::min(std::max<size_t>(part, 1), mib);
      if (take(now) != CUDA_SUCCESS) exit(1);
      mib -= now;
    }
    CUdeviceptr small = 0;
    CHECK_CU(cuMemAlloc_v2(&small, kSmallest));
    add("small memory", small, kSmallest);
    CUdeviceptr pooled = 0;
    CHECK_CU(cuMemAllocAsync(&pooled, 3 * kMiB, stream_));
    add("memory of a pool", pooled, 3 * kMiB);
    // Mapped twice, once for reading only.
    const CUmemGenericAllocationHandle twice = create(2 * kGranule);
    const CUdeviceptr first = map(twice, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    add("memory that is mapped twice", first, 2 * kGranule);
    aliased_ = pieces_.size() - 1;
    alias_ = map(twice, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    hidden_ = create(2 * kGranule);
    fill_hidden();
    build_graph();
    CHECK_CU(cuModuleLoadData(&with_variables_, e2e::kernels_ptx()));
    CHECK_CU(cuModuleGetFunction(&use_globals_, with_variables_, "use_globals"));
    size_t bytes = 0;
    CHECK_CU(cuModuleGetGlobal_v2(&variable_, &bytes, with_variables_, "words_global"));
    CHECK_CU(cuMemAlloc_v2(&out_, kSmallest));
    CHECK_CU(cuMemHostAlloc(reinterpret_cast<void**>(&gate_), sizeof(*gate_), 0));
    *gate_ = 0;
    if (const std::string said = step(); said != "ok") {
      printf("%s\n", said.c_str());
      exit(1);
    }
  }

  std::string step() {
    ++round_;
    const uint32_t key = seed_ + round_;
    for (Piece& piece : pieces_) piece.launch(mix_, stream_, key);
    CHECK_CU(cuGraphLaunch(graph_, stream_));
    e2e::launch(use_globals_, 1, kBlock, 0, stream_, out_);
    CHECK_CU(cuStreamSynchronize(stream_));
    uint32_t variable = 0;
    CHECK_CU(cuMemcpyDtoH_v2(&variable, variable_ + 4, 4));
    if (variable != 2 + 100 * round_) return "WRONG variable";
    for (const Piece& piece : pieces_) {
      if (std::string wrong = piece.compare(); !wrong.empty()) return wrong;
    }
    if (std::string wrong = pieces_[aliased_].compare(alias_); !wrong.empty()) {
      return wrong + ", read through its second address";
    }
    if (std::string wrong = compare_graph(key); !wrong.empty()) return wrong;
    if (!hidden_is_right()) return "WRONG memory that was mapped nowhere";
    return "ok";
  }

  void hold() {
    CHECK_CU(cuStreamWaitValue32_v2(stream_, reinterpret_cast<CUdeviceptr>(gate_), ++holds_,
                                    CU_STREAM_WAIT_VALUE_GEQ));
  }
  void go() { __atomic_store_n(gate_, holds_, __ATOMIC_RELEASE); }

  CUresult take(size_t mib) {
    CUdeviceptr address = 0;
    const CUresult result = cuMemAlloc_v2(&address, mib * kMiB);
    if (result == CUDA_SUCCESS) add("memory", address, mib * kMiB);
    return result;
  }

 private:
  void add(const char* name, CUdeviceptr address, size_t bytes) {
    pieces_.emplace_back(name, address, bytes, seed_ + static_cast<uint32_t>(pieces_.size()));
  }

  uint32_t hidden_word() const { return seed_ * 3 + 0xabcd0000u; }
  void fill_hidden() const {
    const CUdeviceptr at = map(hidden_, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_CU(cuMemsetD32_v2(at, hidden_word(), 2 * kGranule / 4));
    CHECK_CU(cuStreamSynchronize(nullptr));
    CHECK_CU(cuMemUnmap(at, 2 * kGranule));
    CHECK_CU(cuMemAddressFree(at, 2 * kGranule));
  }
  bool hidden_is_right() const {
    const CUdeviceptr at = map(hidden_, 2 * kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    std::vector<uint32_t> words(kWords);
    CHECK_CU(cuMemcpyDtoH_v2(words.data(), at + 2 * kGranule - kSmallest, kSmallest));
    CHECK_CU(cuMemUnmap(at, 2 * kGranule));
    CHECK_CU(cuMemAddressFree(at, 2 * kGranule));
    for (const uint32_t word : words) {
      if (word != hidden_word()) return false;
    }
    return true;
  }

  // source -> copied -> mixed, and a fill beside it.
  void build_graph() {
    CHECK_CU(cuMemAlloc_v2(&source_, kSmallest));
    CHECK_CU(cuMemAlloc_v2(&copied_, kSmallest));
    CHECK_CU(cuMemAlloc_v2(&filled_, kSmallest));
    CHECK_CU(cuMemsetD32_v2(source_, seed_, kWords));
    CHECK_CU(cuStreamSynchronize(nullptr));
    CHECK_CU(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK_CU(cuMemcpyDtoDAsync_v2(copied_, source_, kSmallest, stream_));
    e2e::launch(mix_, e2e::blocks_for(kWords, kBlock), kBlock, 0, stream_, copied_,
                static_cast<uint32_t>(kWords), 5u);
    CHECK_CU(cuMemsetD32Async(filled_, seed_ + 9, kWords, stream_));
    CUgraph graph = nullptr;
    CHECK_CU(cuStreamEndCapture(stream_, &graph));
    CHECK_CU(cuGraphInstantiateWithFlags(&graph_, graph, 0));
    CHECK_CU(cuGraphDestroy(graph));
  }
  // The graph's results, which are made anew each time: they are overwritten here.
  std::string compare_graph(uint32_t key) const {
    std::vector<uint32_t> wanted(kWords, seed_);
    e2e::mix_on_host(wanted, 5);
    std::vector<uint32_t> got(kWords);
    CHECK_CU(cuMemcpyDtoH_v2(got.data(), copied_, kSmallest));
    if (got != wanted) return "WRONG results of the graph";
    CHECK_CU(cuMemcpyDtoH_v2(got.data(), filled_, kSmallest));
    if (got != std::vector<uint32_t>(kWords, seed_ + 9)) return "WRONG fill of the graph";
    CHECK_CU(cuMemsetD32_v2(copied_, key, kWords));
    CHECK_CU(cuMemsetD32_v2(filled_, key, kWords));
    CHECK_CU(cuStreamSynchronize(nullptr));
    return "";
  }

  e2e::Session session_{e2e::stateless_kernels_ptx()};
  const CUfunction mix_;
  const uint32_t seed_;
  uint32_t round_ = 0;
  CUstream stream_ = nullptr;
  std::vector<Piece> pieces_;
  size_t aliased_ = 0;
  CUdeviceptr alias_ = 0;
  CUmemGenericAllocationHandle hidden_ = 0;  // mapped to be filled and compared
  CUgraphExec graph_ = nullptr;
  CUdeviceptr source_ = 0;
  CUdeviceptr copied_ = 0;
  CUdeviceptr filled_ = 0;
  CUmodule with_variables_ = nullptr;
  CUfunction use_globals_ = nullptr;
  CUdeviceptr variable_ = 0;
  CUdeviceptr out_ = 0;
  uint32_t* gate_ = nullptr;  // for which the stream waits
  uint32_t holds_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  // Not destroyed: the process ends with all that it has.
  Program& program = *new Program(e2e::argument(argc, argv, 1, 16),
                                  static_cast<uint32_t>(e2e::argument(argc, argv, 2, 1)));
  printf("ready\n");
  fflush(stdout);
  for (char line[64]; fgets(line, sizeof(line), stdin) != nullptr;) {
    const auto begin = std::chrono::steady_clock::now();
    size_t mib = 0;
    if (sscanf(line, "more %zu", &mib) == 1) {
      const CUresult result = program.take(mib);
      printf("%s", result == CUDA_SUCCESS ? "ok" : e2e::name(result));
    } else if (strcmp(line, "free\n") == 0) {
      size_t free = 0;
      size_t total = 0;
      CHECK_CU(cuMemGetInfo_v2(&free, &total));
      printf("%zu of %zu", free / kMiB, total / kMiB);
    } else if (strcmp(line, "hold\n") == 0) {
      program.hold();
      printf("ok");
    } else {
      if (strcmp(line, "go\n") == 0) program.go();
      printf("%s", program.step().c_str());
    }
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf(" %.1f\n", ms);
    fflush(stdout);
  }
  fflush(stdout);
  _Exit(0);
}
