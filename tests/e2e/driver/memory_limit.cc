// SPDX-License-Identifier: Apache-2.0
// A client's memory limit is exact for every kind of allocation: allocations that fit succeed, one
// more is refused, freed memory can be allocated again by every other kind, and at the end all
// memory is free. Run by run_e2e.py, behind OpenMPS. drv_ipc tests memory of other processes.
// usage: drv_memory_limit paths|hold|heap: hold does what paths does, prints a line, and waits
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr size_t kMiB = 1 << 20;
constexpr size_t kLimit = 64 * kMiB;
constexpr auto kNoMemory = CUDA_ERROR_OUT_OF_MEMORY;

size_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  CHECK_CU(cuMemGetInfo_v2(&free, &total));
  if (total != kLimit) expect(false, "cuMemGetInfo says %zu bytes in all", total);
  return free;
}

// A kind of allocation: a function that allocates `bytes`, and one that frees them by the handle or
// address.
struct Path {
  const char* name;
  size_t bytes;
  std::function<CUresult(uint64_t* piece)> take;
  std::function<CUresult(uint64_t piece)> give;
};

template <typename Handle>
uint64_t number_of(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}
template <typename Handle>
Handle handle_of(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

CUresult allocate(size_t bytes, uint64_t* piece) {
  CUdeviceptr address = 0;
  const CUresult result = cuMemAlloc_v2(&address, bytes);
  *piece = address;
  return result;
}

// ---- The kinds of allocation --------------------------------------------------------------------

Path linear(const char* name, size_t bytes) {
  return {name, bytes, [=](uint64_t* piece) { return allocate(bytes, piece); }, cuMemFree_v2};
}

Path pitched() {
  // 8,192 rows of 500 bytes, each in a pitch of 512.
  return {"cuMemAllocPitch", 4 * kMiB,
          [](uint64_t* piece) {
            CUdeviceptr address = 0;
            size_t pitch = 0;
            const CUresult result = cuMemAllocPitch_v2(&address, &pitch, 500, 8192, 4);
            *piece = address;
            return result;
          },
          cuMemFree_v2};
}

// From the device's default pool, or from `pool`; freed in stream order.
Path pooled(const char* name, CUmemoryPool pool) {
  return {name, 2 * kMiB,
          [pool](uint64_t* piece) {
            CUdeviceptr address = 0;
            const CUresult result =
                pool == nullptr ? cuMemAllocAsync(&address, 2 * kMiB, nullptr)
                                : cuMemAllocFromPoolAsync(&address, 2 * kMiB, pool, nullptr);
            *piece = address;
            return result;
          },
          [](uint64_t piece) { return cuMemFreeAsync(piece, nullptr); }};
}

CUmemAllocationProp on_the_device() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return prop;
}

CUresult create(uint64_t* piece) {
  const CUmemAllocationProp prop = on_the_device();
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = cuMemCreate(&handle, 2 * kMiB, &prop, 0);
  *piece = handle;
  return result;
}

// Memory that is mapped twice, and whose handle has been released, counts once.
Path mapped() {
  constexpr size_t kBytes = 2 * kMiB;
  return {"cuMemCreate, mapped twice", kBytes,
          [](uint64_t* piece) -> CUresult {
            uint64_t handle = 0;
            const CUresult result = create(&handle);
            if (result != CUDA_SUCCESS) return result;
            CUdeviceptr address = 0;
            CHECK_CU(cuMemAddressReserve(&address, 2 * kBytes, 0, 0, 0));
            CHECK_CU(cuMemMap(address, kBytes, 0, handle, 0));
            CHECK_CU(cuMemMap(address + kBytes, kBytes, 0, handle, 0));
            CHECK_CU(cuMemRelease(handle));
            *piece = address;
            return CUDA_SUCCESS;
          },
          [](uint64_t piece) {
            CHECK_CU(cuMemUnmap(piece, 2 * kBytes));
            return cuMemAddressFree(piece, 2 * kBytes);
          }};
}

Path array(const char* name, size_t bytes, CUDA_ARRAY3D_DESCRIPTOR descriptor) {
  return {name, bytes,
          [=](uint64_t* piece) {
            CUarray made = nullptr;
            const CUresult result = cuArray3DCreate_v2(&made, &descriptor);
            *piece = number_of(made);
            return result;
          },
          [](uint64_t piece) { return cuArrayDestroy(handle_of<CUarray>(piece)); }};
}

Path mipmapped() {
  // 4 MiB for the first level, and less than 4 MiB for all others together.
  return {
      "a mipmapped array", 8 * kMiB,
      [](uint64_t* piece) {
        const CUDA_ARRAY3D_DESCRIPTOR descriptor{512, 512, 0, CU_AD_FORMAT_FLOAT, 4, 0};
        CUmipmappedArray made = nullptr;
        const CUresult result = cuMipmappedArrayCreate(&made, &descriptor, 10);
        *piece = number_of(made);
        return result;
      },
      [](uint64_t piece) { return cuMipmappedArrayDestroy(handle_of<CUmipmappedArray>(piece)); }};
}

// The memory is allocated when the node is added (docs/compatibility.md), so no launch fails for
// lack of memory.
Path graph_node() {
  return {"a graph's allocation", 2 * kMiB,
          [](uint64_t* piece) {
            CUgraph graph = nullptr;
            CHECK_CU(cuGraphCreate(&graph, 0));
            CUDA_MEM_ALLOC_NODE_PARAMS wanted{};
            wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            wanted.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
            wanted.bytesize = 2 * kMiB;
            CUgraphNode node = nullptr;
            const CUresult result = cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &wanted);
            if (result != CUDA_SUCCESS) {
              CHECK_CU(cuGraphDestroy(graph));
              return result;
            }
            CUgraphNode freed = nullptr;
            CHECK_CU(cuGraphAddMemFreeNode(&freed, graph, &node, 1, wanted.dptr));
            CUgraphExec exec = nullptr;
            CHECK_CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
            CHECK_CU(cuGraphDestroy(graph));
            CHECK_CU(cuGraphUpload(exec, nullptr));
            CHECK_CU(cuGraphLaunch(exec, nullptr));
            *piece = number_of(exec);
            return result;
          },
          [](uint64_t piece) { return cuGraphExecDestroy(handle_of<CUgraphExec>(piece)); }};
}

// A capture in which an allocation is refused continues without that node.
Path captured() {
  return {"a captured cuMemAllocAsync", 2 * kMiB,
          [](uint64_t* piece) {
            CUstream stream = nullptr;
            CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            CHECK_CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
            CUdeviceptr address = 0;
            const CUresult result = cuMemAllocAsync(&address, 2 * kMiB, stream);
            if (result == CUDA_SUCCESS) CHECK_CU(cuMemFreeAsync(address, stream));
            CUgraph graph = nullptr;
            const CUresult ended = cuStreamEndCapture(stream, &graph);
            if (result == CUDA_SUCCESS) CHECK_CU(ended);
            if (result != CUDA_SUCCESS && graph != nullptr) CHECK_CU(cuGraphDestroy(graph));
            CHECK_CU(cuStreamDestroy_v2(stream));
            *piece = number_of(graph);
            return result;
          },
          [](uint64_t piece) { return cuGraphDestroy(handle_of<CUgraph>(piece)); }};
}

std::string module_with(size_t bytes) {
  return ".version 6.0\n.target sm_70\n.address_size 64\n"
         ".visible .global .align 4 .b8 data[" +
         std::to_string(bytes) + "];\n.visible .entry nothing() { ret; }\n";
}

Path module() {
  return {"a module's variables", 8 * kMiB,
          [text = module_with(8 * kMiB)](uint64_t* piece) {
            CUmodule made = nullptr;
            const CUresult result = cuModuleLoadData(&made, text.c_str());
            *piece = number_of(made);
            return result;
          },
          [](uint64_t piece) { return cuModuleUnload(handle_of<CUmodule>(piece)); }};
}

Path library() {
  return {"a library's variables", 8 * kMiB,
          [text = module_with(8 * kMiB)](uint64_t* piece) {
            CUlibrary made = nullptr;
            const CUresult result =
                cuLibraryLoadData(&made, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
            *piece = number_of(made);
            return result;
          },
          [](uint64_t piece) { return cuLibraryUnload(handle_of<CUlibrary>(piece)); }};
}

Path green_context() {
  return {"a green context", 5 * kMiB,
          [](uint64_t* piece) {
            CUdevResource all{};
            CHECK_CU(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
            CUdevResourceDesc description = nullptr;
            CHECK_CU(cuDevResourceGenerateDesc(&description, &all, 1));
            CUgreenCtx made = nullptr;
            const CUresult result =
                cuGreenCtxCreate(&made, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
            *piece = number_of(made);
            return result;
          },
          [](uint64_t piece) { return cuGreenCtxDestroy(handle_of<CUgreenCtx>(piece)); }};
}

// ---- Checks of each kind ------------------------------------------------------------------------

// Allocates pieces by `path` until one is refused. As many must succeed as fit, also if freed
// memory is kept for reuse. Then once more after the last piece has been freed.
void walk(const Path& path, const Path& other) {
  std::vector<uint64_t> pieces;
  uint64_t piece = 0;
  CUresult result = CUDA_SUCCESS;
  while ((result = path.take(&piece)) == CUDA_SUCCESS) pieces.push_back(piece);
  expect(result == kNoMemory && pieces.size() == kLimit / path.bytes, "%s: %zu of %zu pieces: %s",
         path.name, pieces.size(), kLimit / path.bytes, e2e::name(result));
  expect(free_bytes() == kLimit % path.bytes, "%s: %zu bytes are left", path.name,
         kLimit % path.bytes);
  const bool fits = other.bytes <= kLimit % path.bytes;
  result = other.take(&piece);
  expect(result == (fits ? CUDA_SUCCESS : kNoMemory), "%s: %s: %s", path.name, other.name,
         e2e::name(result));
  if (result == CUDA_SUCCESS) CHECK_CU(other.give(piece));
  // Then one more by another kind of allocation, if it fits.
  CHECK_CU(path.give(pieces.back()));
  pieces.pop_back();
  if (other.bytes <= path.bytes) {
    CHECK_CU(other.take(&piece));
    CHECK_CU(other.give(piece));
  }
  CHECK_CU(path.take(&piece));
  pieces.push_back(piece);
  expect(path.take(&piece) == kNoMemory, "%s: given back, taken again, and no more", path.name);
  for (const uint64_t taken : pieces) CHECK_CU(path.give(taken));
}

// Leaves freed memory that remains mapped for the program's next allocations.
void leave_kept(const Path& keeping) {
  std::vector<uint64_t> pieces(kLimit / keeping.bytes);
  for (uint64_t& piece : pieces) CHECK_CU(keeping.take(&piece));
  for (const uint64_t piece : pieces) CHECK_CU(keeping.give(piece));
}

// Host memory and the memory of contexts and streams do not count against the limit
// (docs/limits.md): they can be allocated when the limit is reached.
void check_uncounted() {
  uint64_t all = 0;
  CHECK_CU(allocate(kLimit, &all));
  CUdeviceptr managed = 0;
  expect_result("managed memory at the limit",
                cuMemAllocManaged(&managed, 2 * kLimit, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  void* pinned = nullptr;
  expect_result("pinned memory", cuMemAllocHost_v2(&pinned, 2 * kLimit), CUDA_SUCCESS);
  CUcontext context = nullptr;
  expect_result("a context", cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  CUstream stream = nullptr;
  expect_result("a stream", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUmodule code = nullptr;
  expect_result("code", cuModuleLoadData(&code, e2e::kernels_ptx()), kNoMemory);
  expect_result("code without variables",
                cuModuleLoadData(&code,
                                 ".version 6.0\n.target sm_70\n.address_size 64\n"
                                 ".visible .entry nothing() { ret; }\n"),
                CUDA_SUCCESS);
  CUfunction nothing = nullptr;
  CHECK_CU(cuModuleGetFunction(&nothing, code, "nothing"));
  expect_result("a launch", cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
                CUDA_SUCCESS);
  CHECK_CU(cuStreamSynchronize(stream));
  CHECK_CU(cuModuleUnload(code));
  CHECK_CU(cuStreamDestroy_v2(stream));
  CHECK_CU(cuCtxDestroy_v2(context));
  CHECK_CU(cuMemFreeHost(pinned));
  CHECK_CU(cuMemFree_v2(managed));
  CHECK_CU(cuMemFree_v2(all));
}

// Kept pieces are reused by size, so that no smaller allocation occupies a larger piece.
void check_odd_sizes() {
  for (const bool ordered : {false, true}) {
    const auto take = [&](size_t bytes) {
      CUdeviceptr address = 0;
      const CUresult result =
          ordered ? cuMemAllocAsync(&address, bytes, nullptr) : cuMemAlloc_v2(&address, bytes);
      return std::pair(result, address);
    };
    const auto give = [&](CUdeviceptr address) {
      CHECK_CU(ordered ? cuMemFreeAsync(address, nullptr) : cuMemFree_v2(address));
    };
    give(take(18 * kMiB).second);
    const auto [first, small] = take(16 * kMiB);
    const auto [second, rest] = take(48 * kMiB);
    expect(first == CUDA_SUCCESS && second == CUDA_SUCCESS, "18 MiB, then 16 and 48: %s",
           e2e::name(second));
    give(small);
    give(rest);
  }
  CHECK_CU(cuStreamSynchronize(nullptr));
  uint64_t piece = 0;
  expect_result("a byte more than the limit", allocate(kLimit + 1, &piece), kNoMemory);
  expect_result("more than there are addresses", allocate(size_t{1} << 62, &piece), kNoMemory);
}

// The memory of a graph that is destroyed while it runs is released when the launch has ended. An
// allocation that finds too little memory waits for that.
void check_in_use() {
  const Path path = graph_node();
  uint64_t graph = 0;
  uint64_t rest = 0;
  CHECK_CU(path.take(&graph));
  CHECK_CU(cuStreamSynchronize(nullptr));
  CHECK_CU(allocate(kLimit - path.bytes, &rest));
  const CUhostFn sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  CHECK_CU(cuLaunchHostFunc(nullptr, sleep, nullptr));
  CHECK_CU(cuGraphLaunch(handle_of<CUgraphExec>(graph), nullptr));
  CHECK_CU(path.give(graph));
  uint64_t piece = 0;
  const CUresult result = allocate(path.bytes, &piece);
  expect_result("memory that a destroyed graph still uses", result, CUDA_SUCCESS);
  CHECK_CU(cuStreamSynchronize(nullptr));
  if (result == CUDA_SUCCESS) CHECK_CU(cuMemFree_v2(piece));
  CHECK_CU(cuMemFree_v2(rest));
}

// A raised limit of the context is charged to the client that raised it, until that client ends.
void check_heap() {
  size_t heap = 0;
  CHECK_CU(cuCtxGetLimit(&heap, CU_LIMIT_MALLOC_HEAP_SIZE));
  uint64_t piece = 0;
  CHECK_CU(allocate(48 * kMiB, &piece));
  expect_result("a heap of 32 MiB more beside 48",
                cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 32 * kMiB), kNoMemory);
  CHECK_CU(cuMemFree_v2(piece));
  expect_result("by itself", cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, heap + 32 * kMiB),
                CUDA_SUCCESS);
  expect(free_bytes() == 32 * kMiB, "half is left");
  expect_result("48 MiB beside it", allocate(48 * kMiB, &piece), kNoMemory);
}

void check_paths() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CHECK_CU(cuMemPoolCreate(&pool, &properties));
  cuuint64_t all = ~0ull;
  CHECK_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));

  const Path granules = linear("cuMemAlloc of 2 MiB", 2 * kMiB);
  const Path keeping = pooled("a pool that keeps all", pool);
  const Path created{"cuMemCreate", 2 * kMiB, create, cuMemRelease};
  const Path paths[] = {
      granules,
      linear("cuMemAlloc of 4 KiB", 4096),
      linear("cuMemAlloc of all", kLimit),
      pitched(),
      pooled("cuMemAllocAsync", nullptr),
      keeping,
      created,
      mapped(),
      array("a 1D array", kMiB / 4, {65536, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0}),
      array("a 2D array", 4 * kMiB, {1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0}),
      array("a 3D array", 16 * kMiB, {128, 128, 64, CU_AD_FORMAT_FLOAT, 4, 0}),
      array("a layered array", 8 * kMiB,
            {1024, 1024, 2, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED}),
      mipmapped(),
      graph_node(),
      captured(),
      module(),
      library(),
      green_context(),
  };
  for (const Path& path : paths) {
    leave_kept(keeping);
    leave_kept(granules);
    walk(path, path.name == granules.name ? created : granules);
  }
  check_uncounted();
  check_in_use();
  check_odd_sizes();
  CHECK_CU(cuMemPoolDestroy(pool));
  expect(free_bytes() == kLimit, "at the end all is free");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "";
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=64M", 0);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  CHECK_CU(cuInit(0));
  size_t total = 0;
  CHECK_CU(cuDeviceTotalMem_v2(&total, 0));
  expect(total == kLimit, "the device has as much as the limit");
  CUcontext context = nullptr;
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuCtxSetCurrent(context));
  expect(free_bytes() == kLimit, "all of it is free");

  if (group == "heap") {
    check_heap();
  } else {
    check_paths();
  }
  if (group == "hold") {
    printf("ready\n");
    (void)getchar();
  }
  return e2e::finish();
}
