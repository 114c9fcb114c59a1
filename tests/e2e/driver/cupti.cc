// SPDX-License-Identifier: Apache-2.0
// A profiler in small, by CUPTI's activity functions as Kineto (torch.profiler) calls them: kernels
// on two streams, copies, fills and a graph, and what the records say of them. Our two libraries,
// one after the other: the first with CUPTI's own clock, the second with the processor's time stamp
// counter. With an argument it is about that library, which on a GPU may be NVIDIA's; if a libcupti
// is preloaded, about that one. Run by run_e2e.py. usage: drv_cupti [LIBRARY]
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "cupti/abi.h"
#include "driver.h"

namespace {

constexpr unsigned kLaunches = 8;
constexpr unsigned kGraphLaunches = 3;
constexpr unsigned kWords = 4096;
constexpr unsigned kBlock = 128;
constexpr uint64_t kFirstExternal = 1000;
constexpr CUpti_CallbackId kLaunchKernel = 307;  // cupti_driver_cbid.h
constexpr CUpti_CallbackId kLaunchGraph = 514;

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_OVERHEAD,
                                         CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

void* g_library = nullptr;

// One of the library's functions.
template <typename... Arguments>
CUptiResult cupti(const char* name, Arguments... arguments) {
  auto* function = reinterpret_cast<CUptiResult (*)(Arguments...)>(dlsym(g_library, name));
  if (function == nullptr) {
    e2e::expect(false, "there is no %s", name);
    exit(e2e::finish());
  }
  return function(arguments...);
}

void expect_success(const char* what, CUptiResult result) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = "?";
  cupti("cuptiGetResultString", result, &text);
  e2e::expect(false, "%s: %s", what, text);
}

uint64_t timestamp() {
  uint64_t time = 0;
  expect_success("cuptiGetTimestamp", cupti("cuptiGetTimestamp", &time));
  return time;
}

// Kineto's clock, where there is one like it.
uint64_t processor_ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
#endif
}

// What was recorded. CUPTI's callbacks don't say whose they are.
struct Records {
  std::mutex lock;
  std::vector<CUpti_ActivityKernel10> kernels;
  std::vector<std::string> names;  // of these
  std::vector<CUpti_ActivityMemcpy6> copies;
  std::vector<CUpti_ActivityMemset4> fills;
  std::map<uint32_t, CUpti_ActivityAPI> calls;  // by correlation
  std::map<uint32_t, uint64_t> external;
  void clear() {
    kernels.clear();
    names.clear();
    copies.clear();
    fills.clear();
    calls.clear();
    external.clear();
  }
};
Records g_records;

template <typename T>
T read(const CUpti_Activity* record) {
  T value;
  memcpy(static_cast<void*>(&value), record, sizeof value);
  return value;
}

void take(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      g_records.kernels.push_back(read<CUpti_ActivityKernel10>(record));
      g_records.names.emplace_back(g_records.kernels.back().name);
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      g_records.copies.push_back(read<CUpti_ActivityMemcpy6>(record));
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      g_records.fills.push_back(read<CUpti_ActivityMemset4>(record));
      break;
    case CUPTI_ACTIVITY_KIND_DRIVER: {
      const auto call = read<CUpti_ActivityAPI>(record);
      g_records.calls[call.correlationId] = call;
      break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto external = read<CUpti_ActivityExternalCorrelation>(record);
      g_records.external[external.correlationId] = external.externalId;
      break;
    }
    default: break;  // of kinds that our libraries accept and have no records of
  }
}

void buffer_requested(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = size_t{64} << 10;  // several of them are filled
  *buffer = static_cast<uint8_t*>(aligned_alloc(8, *size));
  *most_records = 0;
}

void buffer_completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard guard(g_records.lock);
  CUpti_Activity* record = nullptr;
  while (cupti("cuptiActivityGetNextRecord", buffer, valid, &record) == CUPTI_SUCCESS) take(record);
  free(buffer);
}

void ignore_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

// Calls that give work have a number, which their records are found by.
class External {
 public:
  explicit External(uint64_t id) {
    expect_success("push", cupti("cuptiActivityPushExternalCorrelationId",
                                 CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, kFirstExternal + id));
  }
  External(const External&) = delete;
  External& operator=(const External&) = delete;
  ~External() {
    uint64_t* const nobody = nullptr;
    expect_success("pop", cupti("cuptiActivityPopExternalCorrelationId",
                                CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, nobody));
  }
};

struct Streams {
  CUstream left = nullptr;
  CUstream right = nullptr;
  Streams() {
    CHECK_CU(cuStreamCreate(&left, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamCreate(&right, CU_STREAM_NON_BLOCKING));
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    CHECK_CU(cuStreamDestroy_v2(left));
    CHECK_CU(cuStreamDestroy_v2(right));
  }
};

// A fill and two kernels behind it.
CUgraphExec make_graph(CUfunction mix, CUdeviceptr words, CUstream stream) {
  CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_CU(cuMemsetD32Async(words, 7, kWords, stream));
  e2e::launch(mix, kWords / kBlock, kBlock, 0, stream, words, kWords, 1u);
  e2e::launch(mix, kWords / kBlock, kBlock, 0, stream, words, kWords, 2u);
  CUgraph graph = nullptr;
  CHECK_CU(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CHECK_CU(cuGraphDestroy(graph));
  return exec;
}

void enable_all() {
  for (const CUpti_ActivityKind kind : kKinds) {
    expect_success("cuptiActivityEnable", cupti("cuptiActivityEnable", kind));
  }
}

void flush(uint32_t flag) {
  expect_success("cuptiActivityFlushAll", cupti("cuptiActivityFlushAll", flag));
}

// Of kernels on one stream, in the order of their numbers.
void check_order(std::vector<CUpti_ActivityKernel10> kernels, uint32_t stream, const char* which) {
  std::erase_if(kernels, [&](const auto& kernel) { return kernel.streamId != stream; });
  std::stable_sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) {
    return a.correlationId != b.correlationId ? a.correlationId < b.correlationId
                                              : a.start < b.start;
  });
  bool in_order = true;
  for (size_t i = 1; i < kernels.size(); ++i) in_order &= kernels[i].start >= kernels[i - 1].end;
  e2e::expect(in_order && !kernels.empty(), "%s: one kernel after another", which);
}

// The number of the call that has this external one, among those with `cbid` (0: any).
uint32_t correlation_of(uint64_t external, CUpti_CallbackId cbid) {
  for (const auto& [correlation, id] : g_records.external) {
    if (id != kFirstExternal + external) continue;
    const auto call = g_records.calls.find(correlation);
    if (call == g_records.calls.end()) continue;
    if (cbid == 0 || call->second.cbid == cbid) return correlation;
  }
  return 0;
}

struct Bracket {
  uint64_t before = 0;
  uint64_t after = 0;
};

template <typename T>
bool within(const std::vector<T>& work, Bracket times) {
  return std::all_of(work.begin(), work.end(), [&](const T& one) {
    return times.before <= one.start && one.start < one.end && one.end <= times.after;
  });
}

struct Numbers {
  uint32_t context = 0;
  uint32_t left = 0;
  uint32_t right = 0;
};

Numbers numbers_of(CUcontext context, const Streams& streams) {
  Numbers numbers;
  const CUcontext any = nullptr;
  expect_success("context", cupti("cuptiGetContextId", context, &numbers.context));
  expect_success("stream",
                 cupti("cuptiGetStreamIdEx", any, streams.left, uint8_t{0}, &numbers.left));
  expect_success("stream",
                 cupti("cuptiGetStreamIdEx", any, streams.right, uint8_t{0}, &numbers.right));
  uint32_t device = 9;
  expect_success("device", cupti("cuptiGetDeviceId", context, &device));
  e2e::expect(device == 0, "device 0");
  return numbers;
}

void check_launches(const Numbers& numbers) {
  unsigned right_place = 0;
  unsigned right_shape = 0;
  for (unsigned i = 0; i < 2 * kLaunches; ++i) {
    const uint32_t correlation = correlation_of(i, kLaunchKernel);
    for (size_t k = 0; k < g_records.kernels.size(); ++k) {
      const CUpti_ActivityKernel10& kernel = g_records.kernels[k];
      if (correlation == 0 || kernel.correlationId != correlation) continue;
      const bool left = i < kLaunches;
      right_place += g_records.names[k] == (left ? "mix" : "spin") && kernel.graphId == 0 &&
                     kernel.streamId == (left ? numbers.left : numbers.right) &&
                     kernel.contextId == numbers.context && kernel.deviceId == 0;
      right_shape += kernel.gridX == static_cast<int32_t>(i % kLaunches + 1) && kernel.gridY == 1 &&
                     kernel.gridZ == 1 && kernel.blockX == static_cast<int32_t>(kBlock) &&
                     kernel.blockY == 1 && kernel.blockZ == 1;
    }
  }
  e2e::expect(right_place == 2 * kLaunches, "launches: by call and number, name, stream, context");
  e2e::expect(right_shape == 2 * kLaunches, "launches: grids and blocks");
}

void check_graph() {
  unsigned kernels_found = 0;
  unsigned fills_found = 0;
  bool numbered = true;
  std::set<uint64_t> nodes;
  for (unsigned i = 0; i < kGraphLaunches; ++i) {
    const uint32_t correlation = correlation_of(2 * kLaunches + i, kLaunchGraph);
    for (const auto& kernel : g_records.kernels) {
      if (correlation == 0 || kernel.correlationId != correlation) continue;
      ++kernels_found;
      numbered &= kernel.graphId != 0;
      nodes.insert(kernel.graphNodeId);
    }
    for (const auto& fill : g_records.fills) {
      fills_found += correlation != 0 && fill.correlationId == correlation;
    }
  }
  e2e::expect(kernels_found == 2 * kGraphLaunches && fills_found == kGraphLaunches,
              "graph: the work of each launch has the number of its call");
  e2e::expect(numbered && nodes.size() == 2 && !nodes.contains(0), "graph: two nodes");
}

void check_copies(uint64_t bytes) {
  unsigned in = 0;
  unsigned out = 0;
  unsigned across = 0;
  bool linked = true;
  for (const CUpti_ActivityMemcpy6& copy : g_records.copies) {
    in += copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD && copy.bytes == bytes;
    out += copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH && copy.bytes == bytes &&
           copy.dstKind == CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    across += copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD && copy.bytes == bytes / 2;
    linked &= g_records.calls.contains(copy.correlationId) &&
              g_records.external.contains(copy.correlationId);
  }
  e2e::expect(in == 1 && out == 1 && across == 1 && g_records.copies.size() == 3, "three copies");
  e2e::expect(linked, "copies: by call and number");
  const auto fill = std::find_if(g_records.fills.begin(), g_records.fills.end(),
                                 [](const auto& one) { return one.graphId == 0; });
  e2e::expect(fill != g_records.fills.end() && fill->value == 9 && fill->bytes == bytes &&
                  fill->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE &&
                  g_records.external.contains(fill->correlationId),
              "a fill");
}

void begin(bool own_clock) {
  uint32_t version = 0;
  expect_success("cuptiGetVersion", cupti("cuptiGetVersion", &version));
  printf("# version %u\n", version);
  CUpti_SubscriberHandle subscriber = nullptr;
  void* const nothing = nullptr;
  expect_success("cuptiSubscribe", cupti("cuptiSubscribe", &subscriber, &ignore_callback, nothing));
  expect_success("cuptiEnableCallback",
                 cupti("cuptiEnableCallback", 1u, subscriber, CUPTI_CB_DOMAIN_RESOURCE, 1u));
  size_t pools = 20;
  size_t bytes = sizeof pools;
  expect_success("cuptiActivitySetAttribute",
                 cupti("cuptiActivitySetAttribute", CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT,
                       &bytes, static_cast<void*>(&pools)));
  if (own_clock) {
    expect_success("clock", cupti("cuptiActivityRegisterTimestampCallback", &processor_ticks));
  }
  expect_success("callbacks",
                 cupti("cuptiActivityRegisterCallbacks", &buffer_requested, &buffer_completed));
  enable_all();
}

void end(CUpti_ActivityFlag flag) {
  for (const CUpti_ActivityKind kind : kKinds) {
    expect_success("cuptiActivityDisable", cupti("cuptiActivityDisable", kind));
  }
  flush(flag);
}

void profile(bool own_clock) {
  e2e::Session session;
  const CUfunction mix = session.function("mix");
  const CUfunction spin = session.function("spin");
  Streams streams;
  e2e::Buffer<uint32_t> words(kWords), others(kWords);
  void* pinned = nullptr;
  const uint64_t bytes = kWords * sizeof(uint32_t);
  CHECK_CU(cuMemAllocHost_v2(&pinned, bytes));

  begin(own_clock);
  // NVIDIA's shows fills of a graph that was made before as kernels.
  const CUgraphExec graph = make_graph(mix, others.address, streams.left);
  const Numbers numbers = numbers_of(session.context, streams);
  e2e::launch(mix, 1u, kBlock, 0, streams.left, words.address, kWords,
              0u);  // warm up, and forget it
  CHECK_CU(cuCtxSynchronize());
  flush(0);
  e2e::expect(g_records.kernels.size() == 1, "a kernel before the work that counts");
  g_records.clear();

  Bracket times;
  times.before = timestamp();
  for (unsigned i = 0; i < kLaunches; ++i) {
    {
      const External number(i);
      e2e::launch(mix, i + 1, kBlock, 0, streams.left, words.address, kWords, i);
    }
    const External number(kLaunches + i);
    e2e::launch(spin, i + 1, kBlock, 0, streams.right, others.address, 100u);
  }
  CHECK_CU(cuStreamSynchronize(streams.right));
  for (unsigned i = 0; i < kGraphLaunches; ++i) {
    const External number(2 * kLaunches + i);
    CHECK_CU(cuGraphLaunch(graph, streams.left));
  }
  {
    const External number(99);
    CHECK_CU(cuMemsetD32Async(words.address, 9, kWords, streams.left));
    CHECK_CU(cuMemcpyHtoDAsync_v2(words.address, pinned, bytes, streams.left));
    CHECK_CU(cuMemcpyDtoDAsync_v2(others.address, words.address, bytes / 2, streams.left));
    CHECK_CU(cuMemcpyDtoHAsync_v2(pinned, others.address, bytes, streams.left));
  }
  CHECK_CU(cuCtxSynchronize());
  times.after = timestamp();
  end(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  size_t lost = 1;
  expect_success("lost", cupti("cuptiActivityGetNumDroppedRecords", CUcontext{}, 0u, &lost));
  e2e::expect(lost == 0, "nothing is lost");

  e2e::expect(g_records.kernels.size() == 2 * kLaunches + 2 * kGraphLaunches, "%zu kernels",
              g_records.kernels.size());
  check_launches(numbers);
  check_graph();
  check_copies(bytes);
  e2e::expect(within(g_records.kernels, times) && within(g_records.copies, times) &&
                  within(g_records.fills, times),
              "all of it between the first call and the synchronisation");
  check_order(g_records.kernels, numbers.left, "a stream");
  check_order(g_records.kernels, numbers.right, "another stream");
  bool after_call = true;
  for (const auto& kernel : g_records.kernels) {
    const auto call = g_records.calls.find(kernel.correlationId);
    after_call &= call != g_records.calls.end() && call->second.start <= kernel.start;
  }
  e2e::expect(after_call, "no kernel before its call");

  g_records.clear();
  e2e::launch(mix, 1u, kBlock, 0, streams.left, words.address, kWords, 0u);
  CHECK_CU(cuCtxSynchronize());
  flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  e2e::expect(g_records.kernels.empty(), "nothing is recorded afterwards");
  expect_success("cuptiFinalize", cupti("cuptiFinalize"));
  CHECK_CU(cuGraphExecDestroy(graph));
  CHECK_CU(cuMemFreeHost(pinned));
}

// From bin/../.. of the build, or of what was carried elsewhere.
std::string our_library(const char* major) {
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  std::string path(program, length < 0 ? 0 : static_cast<size_t>(length));
  for (int i = 0; i < 3; ++i) {
    path.resize(std::min(path.size(), path.rfind('/')));
  }
  return path + "/lib/openmps/cupti/libcupti.so." + major;
}

void profile_with(const std::string& path, bool own_clock) {
  g_library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!e2e::expect(g_library != nullptr, "a library of CUPTI's functions")) {
    printf("# %s\n", dlerror());
    return;
  }
  profile(own_clock);
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc > 1) {
    profile_with(argv[1], false);
  } else if (dlsym(RTLD_DEFAULT, "cuptiGetVersion") != nullptr) {
    g_library = RTLD_DEFAULT;
    profile(false);
  } else {
    profile_with(our_library("13"), false);
    profile_with(our_library("12"), true);
  }
  return e2e::finish();
}
