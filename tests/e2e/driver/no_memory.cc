// SPDX-License-Identifier: Apache-2.0
// The process has no memory left: every call returns, and the library's state remains consistent.
// The program replaces the C library's malloc() by one that fails on the thread, and for the time,
// that a test sets. Only the client library is tested: softgpu by itself and NVIDIA's driver end
// the process in this case. Run by run_e2e.py. usage: drv_no_memory exhausted|budget
#include <malloc.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <vector>

#include "driver.h"

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);
}

namespace {

// How many bytes the thread may still allocate while it is limited.
constinit thread_local long t_budget = 0;
constinit thread_local bool t_limited = false;
constinit thread_local long t_refused = 0;

bool spend(size_t bytes) {
  if (!t_limited) return true;
  if (static_cast<long>(bytes) > t_budget) {
    ++t_refused;
    errno = ENOMEM;
    return false;
  }
  return true;
}
void* spent(void* block) {
  if (t_limited && block != nullptr) t_budget -= static_cast<long>(malloc_usable_size(block));
  return block;
}
void earn(void* block) {
  if (t_limited && block != nullptr) t_budget += static_cast<long>(malloc_usable_size(block));
}

}  // namespace

extern "C" {
void* malloc(size_t bytes) { return spend(bytes) ? spent(__libc_malloc(bytes)) : nullptr; }
void* calloc(size_t count, size_t bytes) {
  return spend(count * bytes) ? spent(__libc_calloc(count, bytes)) : nullptr;
}
void* realloc(void* old, size_t bytes) {
  if (!spend(bytes)) return nullptr;
  earn(old);
  return spent(__libc_realloc(old, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return spend(bytes) ? spent(__libc_memalign(alignment, bytes)) : nullptr;
}
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  *block = aligned_alloc(alignment, bytes);
  return *block != nullptr ? 0 : ENOMEM;
}
void free(void* block) {
  earn(block);
  __libc_free(block);
}
}

namespace {

using e2e::expect;

// A call that is made with limited memory. The other functions run without a limit: `undo` reverts
// a call that has succeeded, `before` and `after` run before and after each attempt.
struct Case {
  const char* name;
  std::function<CUresult()> call;
  std::function<void()> undo = [] {};
  std::function<void()> before = [] {};
  std::function<void()> after = [] {};
};

struct Fixture {
  e2e::Session session;
  CUfunction store = session.function("store_at");
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraph inner = nullptr;
  CUgraphNode first = nullptr;
  CUevent event = nullptr;
  e2e::Buffer<uint32_t> words{std::vector<uint32_t>(1024, 0)};
  std::vector<uint32_t> host = std::vector<uint32_t>(1024, 7);

  // Objects that the cases create.
  CUstream made_stream = nullptr;
  CUevent made_event = nullptr;
  CUgraph made_graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr memory = 0;
  CUdeviceptr value_address = 0;
  void* pinned = nullptr;
  CUarray array = nullptr;
  CUmemoryPool pool = nullptr;
  CUcontext context = nullptr;
  CUuserObject object = nullptr;
  CUlibrary library = nullptr;

  Fixture() {
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK_CU(cuGraphCreate(&graph, 0));
    CHECK_CU(cuGraphAddEmptyNode(&first, graph, nullptr, 0));
    CHECK_CU(cuGraphCreate(&inner, 0));
    for (int i = 0; i < 3; ++i) CHECK_CU(cuGraphAddEmptyNode(&node, inner, nullptr, 0));
    run_one();
  }
  Fixture(const Fixture&) = delete;
  ~Fixture() {
    CHECK_CU(cuGraphDestroy(inner));
    CHECK_CU(cuGraphDestroy(graph));
    CHECK_CU(cuEventDestroy_v2(event));
    CHECK_CU(cuStreamDestroy_v2(stream));
  }
  CUresult launch(uint32_t value) {
    return e2e::try_launch(store, 1, 1, 0, stream, words.address, value);
  }
  // Expects that a kernel, a copy and a graph still work.
  void run_one() {
    static uint32_t value = 0;
    ++value;
    CHECK_CU(launch(value));
    uint32_t seen = 0;
    CHECK_CU(cuMemcpyDtoHAsync_v2(&seen, words.address, 4, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    if (seen != value) expect(false, "the kernel stored %u, the copy brought %u", value, seen);
    CUgraphExec made = nullptr;
    CHECK_CU(cuGraphInstantiateWithFlags(&made, graph, 0));
    CHECK_CU(cuGraphLaunch(made, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    CHECK_CU(cuGraphExecDestroy(made));
  }
  size_t nodes() const {
    size_t count = 0;
    CHECK_CU(cuGraphGetNodes(graph, nullptr, &count));
    return count;
  }
  size_t edges() const {
    size_t count = 0;
    CHECK_CU(cuGraphGetEdges(graph, nullptr, nullptr, &count));
    return count;
  }
  size_t free_memory() const {
    size_t free_bytes = 0;
    size_t total = 0;
    CHECK_CU(cuMemGetInfo_v2(&free_bytes, &total));
    return free_bytes;
  }
  std::vector<Case> cases();
};

CUDA_KERNEL_NODE_PARAMS kernel_of(CUfunction function, void** parameters) {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = function;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = parameters;
  return kernel;
}

void add_graph_cases(Fixture& f, std::vector<Case>* list) {
  const auto drop_node = [&f] { CHECK_CU(cuGraphDestroyNode(f.node)); };
  list->push_back({"cuGraphCreate", [&f] { return cuGraphCreate(&f.made_graph, 0); },
                   [&f] { CHECK_CU(cuGraphDestroy(f.made_graph)); }});
  list->push_back({"cuGraphAddEmptyNode",
                   [&f] { return cuGraphAddEmptyNode(&f.node, f.graph, &f.first, 1); }, drop_node});
  list->push_back({"cuGraphAddKernelNode",
                   [&f] {
                     CUdeviceptr address = f.words.address;
                     uint32_t value = 3;
                     void* parameters[] = {&address, &value};
                     const CUDA_KERNEL_NODE_PARAMS kernel = kernel_of(f.store, parameters);
                     return cuGraphAddKernelNode_v2(&f.node, f.graph, &f.first, 1, &kernel);
                   },
                   drop_node});
  list->push_back({"cuGraphAddMemsetNode",
                   [&f] {
                     CUDA_MEMSET_NODE_PARAMS fill{};
                     fill.dst = f.words.address;
                     fill.elementSize = 4;
                     fill.width = 4;
                     fill.height = 1;
                     return cuGraphAddMemsetNode(&f.node, f.graph, &f.first, 1, &fill,
                                                 f.session.context);
                   },
                   drop_node});
  list->push_back({"cuGraphAddHostNode",
                   [&f] {
                     const CUDA_HOST_NODE_PARAMS host{[](void*) {}, nullptr};
                     return cuGraphAddHostNode(&f.node, f.graph, &f.first, 1, &host);
                   },
                   drop_node});
  list->push_back({"cuGraphAddChildGraphNode",
                   [&f] { return cuGraphAddChildGraphNode(&f.node, f.graph, nullptr, 0, f.inner); },
                   drop_node});
  list->push_back({"cuGraphClone", [&f] { return cuGraphClone(&f.made_graph, f.inner); },
                   [&f] { CHECK_CU(cuGraphDestroy(f.made_graph)); }});
  list->push_back({"cuGraphInstantiate",
                   [&f] { return cuGraphInstantiateWithFlags(&f.exec, f.graph, 0); },
                   [&f] { CHECK_CU(cuGraphExecDestroy(f.exec)); }});
  list->push_back({"capture of a kernel", [&f] { return f.launch(1); }, [] {},
                   [&f] {
                     CHECK_CU(cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
                     CHECK_CU(f.launch(1));
                   },
                   [&f] {
                     CHECK_CU(cuStreamEndCapture(f.stream, &f.made_graph));
                     CHECK_CU(cuGraphDestroy(f.made_graph));
                   }});
  list->push_back({"cuUserObjectCreate",
                   [&f] {
                     return cuUserObjectCreate(
                         &f.object, nullptr, [](void*) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
                   },
                   [&f] { CHECK_CU(cuUserObjectRelease(f.object, 1)); }});
}

void add_memory_cases(Fixture& f, std::vector<Case>* list) {
  for (const size_t bytes : {size_t{100}, size_t{5} << 20}) {
    list->push_back({"cuMemAlloc", [&f, bytes] { return cuMemAlloc_v2(&f.memory, bytes); },
                     [&f] { CHECK_CU(cuMemFree_v2(f.memory)); }});
    list->push_back({"cuMemAllocAsync",
                     [&f, bytes] { return cuMemAllocAsync(&f.memory, bytes, f.stream); },
                     [&f] {
                       CHECK_CU(cuMemFreeAsync(f.memory, f.stream));
                       CHECK_CU(cuStreamSynchronize(f.stream));
                     }});
    list->push_back({"cuMemHostAlloc", [&f, bytes] { return cuMemHostAlloc(&f.pinned, bytes, 0); },
                     [&f] { CHECK_CU(cuMemFreeHost(f.pinned)); }});
  }
  list->push_back({"cuMemPoolCreate",
                   [&f] {
                     CUmemPoolProps properties{};
                     properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
                     properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
                     return cuMemPoolCreate(&f.pool, &properties);
                   },
                   [&f] { CHECK_CU(cuMemPoolDestroy(f.pool)); }});
  list->push_back({"cuArrayCreate",
                   [&f] {
                     const CUDA_ARRAY_DESCRIPTOR description{64, 64, CU_AD_FORMAT_FLOAT, 1};
                     return cuArrayCreate_v2(&f.array, &description);
                   },
                   [&f] { CHECK_CU(cuArrayDestroy(f.array)); }});
  list->push_back({"cuMemcpyHtoD", [&f] {
                     return cuMemcpyHtoD_v2(f.words.address, f.host.data(), f.words.bytes());
                   }});
  list->push_back({"cuMemcpyHtoDAsync", [&f] {
                     return cuMemcpyHtoDAsync_v2(f.words.address, f.host.data(), f.words.bytes(),
                                                 f.stream);
                   }});
}

std::vector<Case> Fixture::cases() {
  Fixture& f = *this;
  std::vector<Case> list;
  add_graph_cases(f, &list);
  add_memory_cases(f, &list);
  list.push_back({"cuStreamCreate", [&f] { return cuStreamCreate(&f.made_stream, 0); },
                  [&f] { CHECK_CU(cuStreamDestroy_v2(f.made_stream)); }});
  list.push_back({"cuEventCreate", [&f] { return cuEventCreate(&f.made_event, 0); },
                  [&f] { CHECK_CU(cuEventDestroy_v2(f.made_event)); }});
  list.push_back({"cuCtxCreate",
                  [&f] {
                    const CUresult result = cuCtxCreate_v2(&f.context, 0, f.session.device);
                    if (result == CUDA_SUCCESS) CHECK_CU(cuCtxSetCurrent(f.session.context));
                    return result;
                  },
                  [&f] { CHECK_CU(cuCtxDestroy_v2(f.context)); }});
  list.push_back({"cuModuleLoadData",
                  [&f] { return cuModuleLoadData(&f.module, e2e::kernels_ptx()); },
                  [&f] { CHECK_CU(cuModuleUnload(f.module)); }});
  // The library does not know the kernel before the first attempt that succeeds.
  list.push_back({"cuModuleGetFunction",
                  [&f] { return cuModuleGetFunction(&f.function, f.session.module, "reduce"); }});
  list.push_back({"cuLaunchKernel", [&f] { return f.launch(5); }});
  list.push_back({"cuLaunchHostFunc", [&f] {
                    return cuLaunchHostFunc(
                        f.stream, [](void*) {}, nullptr);
                  }});
  list.push_back({"cuEventRecord", [&f] { return cuEventRecord(f.event, f.stream); }});
  list.push_back({"cuStreamSynchronize", [&f] { return cuStreamSynchronize(f.stream); }});
  list.push_back({"cuCtxSynchronize", [] { return cuCtxSynchronize(); }});
  return list;
}

// Makes one call with at most `budget` bytes. True if no allocation failed.
bool try_case(Fixture& f, const Case& one, long budget) {
  CHECK_CU(cuCtxSynchronize());  // with memory, so that the library refills its own reserve
  const size_t nodes = f.nodes();
  const size_t edges = f.edges();
  one.before();
  t_refused = 0;
  t_budget = budget;
  t_limited = true;
  const CUresult result = one.call();
  t_limited = false;
  const bool known = result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY;
  if (!known) expect(false, "%s with %ld bytes: %s", one.name, budget, e2e::name(result));
  if (result == CUDA_SUCCESS) one.undo();
  one.after();
  if (f.nodes() != nodes || f.edges() != edges) {
    expect(false, "%s with %ld bytes: the graph has %zu nodes and %zu edges after %zu and %zu",
           one.name, budget, f.nodes(), f.edges(), nodes, edges);
  }
  return t_refused == 0;
}

// Makes each call with more and more memory, until it suffices.
void with_budgets(Fixture& f) {
  for (const Case& one : f.cases()) {
    for (long budget = 0; !try_case(f, one, budget);) {
      if (e2e::failures() != 0) return;
      budget = budget == 0 ? 16 : budget + budget / 4 + 16;
    }
    f.run_one();
    expect(true, "%s: done or refused, and done with memory", one.name);
  }
}

// The process's address space is full: a call in a loop of the program returns an error instead of
// ending the process. The memory that the program then frees suffices to continue.
void exhausted(Fixture& f) {
  const size_t before = f.free_memory();
  rlimit unlimited{};
  getrlimit(RLIMIT_AS, &unlimited);
  unsigned long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == nullptr || fscanf(file, "%lu", &pages) != 1) exit(1);
  fclose(file);
  constexpr rlim_t kRoom = 24 << 20;
  const rlimit tight{pages * 4096 + kRoom, unlimited.rlim_max};
  CUgraph graph = nullptr;
  CHECK_CU(cuGraphCreate(&graph, 0));
  setrlimit(RLIMIT_AS, &tight);
  CUresult result = CUDA_SUCCESS;
  size_t made = 0;
  for (; made < 4'000'000 && result == CUDA_SUCCESS; ++made) {
    CUgraphNode node = nullptr;
    result = cuGraphAddEmptyNode(&node, graph, nullptr, 0);
  }
  size_t nodes = 0;
  const CUresult counted = cuGraphDestroy(graph);
  e2e::expect_result("adding nodes without end", result, CUDA_ERROR_OUT_OF_MEMORY);
  e2e::expect_result("destroying the graph", counted, CUDA_SUCCESS);
  CHECK_CU(cuGraphGetNodes(f.graph, nullptr, &nodes));
  expect(nodes == 1, "another graph is as it was");
  f.run_one();
  setrlimit(RLIMIT_AS, &unlimited);
  f.run_one();
  expect(f.free_memory() == before, "no device memory was lost");
}

}  // namespace

int main(int argc, char** argv) {
  const char* group = argc > 1 ? argv[1] : "";
  Fixture fixture;
  if (strcmp(group, "exhausted") == 0) exhausted(fixture);
  if (strcmp(group, "budget") == 0) with_budgets(fixture);
  return e2e::finish();
}
