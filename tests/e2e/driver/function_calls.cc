// SPDX-License-Identifier: Apache-2.0
// Functions, kernels, modules and libraries: queries, loading from files, lists, settings;
// occupancy; cooperative launches. Run by run_e2e.py. usage: drv_function_calls
// occupancy|cooperative|modules|libraries|settings
#include <unistd.h>

#include <set>
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr auto kInvalid = CUDA_ERROR_INVALID_VALUE;

// fill(u64 words, u32 value) and count(u64 counter, u8 step, u32 limit): every block of count adds
// to the counter and waits until `limit` blocks have done so, which ends only if all blocks run at
// once.
constexpr char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 words, .param .u32 value) {
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry count(.param .u64 counter, .param .u8 step, .param .u32 limit) {
  .reg .b32 %r<6>;
  .reg .b64 %rd<2>;
  .reg .pred %p;
  ld.param.u64 %rd1, [counter];
  ld.param.u8 %r1, [step];
  ld.param.u32 %r2, [limit];
  atom.global.add.u32 %r3, [%rd1], %r1;
again:
  ld.volatile.global.u32 %r4, [%rd1];
  setp.lt.u32 %p, %r4, %r2;
  @%p bra again;
  ret;
}
)";

int device_attribute(CUdevice_attribute which) {
  int value = 0;
  CHECK_CU(cuDeviceGetAttribute(&value, which, 0));
  return value;
}

// ---- Occupancy ---------------------------------------------------------------------------------

size_t no_shared(int) { return 0; }
// Blocks of more than 256 threads would need more shared memory than there is.
size_t much_above_256(int threads) { return threads > 256 ? size_t{1} << 24 : 1024; }

void occupancy(const e2e::Session& session) {
  const CUfunction mix = session.function("mix");
  const int most_threads = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  const int most_blocks = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  const int sm_shared = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  const int processors = device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  int last = 1 << 20;
  bool falls = true, within = true, same = true;
  for (int threads = 32; threads <= 1024; threads *= 2) {
    int blocks = 0, with_flags = 0;
    CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, mix, threads, 0));
    CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&with_flags, mix, threads, 0,
                                                                  CU_OCCUPANCY_DEFAULT));
    falls &= blocks <= last && blocks >= 1;
    within &= blocks * threads <= most_threads && blocks <= most_blocks;
    same &= blocks == with_flags;
    last = blocks;
  }
  expect(falls, "larger blocks: fewer of them");
  expect(within, "within what a multiprocessor has");
  expect(same, "the default flags change nothing");
  int few = 0;
  constexpr size_t kShared = 40 * 1024;
  CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&few, mix, 32, kShared));
  expect(few >= 1 && few * static_cast<int>(kShared) <= sm_shared, "shared memory limits them");
  CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&few, mix, 32, size_t{1} << 24));
  expect(few == 0, "none fits with more than there is");
  expect_result("blocks without threads",
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&few, mix, 0, 0), kInvalid);

  const auto fits = [&](int grid, int block, size_t shared) {
    int blocks = 0;
    CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, mix, block, shared));
    return blocks >= 1 && grid == blocks * processors;
  };
  int grid = 0, block = 0, other_grid = 0, other_block = 0;
  CHECK_CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, mix, nullptr, 0, 0));
  expect(block > 0 && block % 32 == 0 && block <= 1024 && fits(grid, block, 0),
         "the block size of the highest occupancy");
  CHECK_CU(cuOccupancyMaxPotentialBlockSizeWithFlags(&other_grid, &other_block, mix, no_shared, 0,
                                                     0, CU_OCCUPANCY_DEFAULT));
  expect(other_grid == grid && other_block == block, "the same with a function that says nothing");
  CHECK_CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, mix, nullptr, 0, 96));
  expect(block > 0 && block <= 96 && fits(grid, block, 0), "blocks of at most 96 threads");
  CHECK_CU(cuOccupancyMaxPotentialBlockSize(&grid, &block, mix, much_above_256, 0, 0));
  expect(block > 0 && block <= 256 && fits(grid, block, 1024),
         "blocks whose shared memory there is");

  CUlaunchAttribute single{};
  single.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  single.value.clusterDim = {1, 1, 1};
  CUlaunchConfig config{};
  config.gridDimX = 8;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 128;
  int size = 0, clusters = 0, blocks = 0;
  CHECK_CU(cuOccupancyMaxPotentialClusterSize(&size, mix, &config));
  printf("# clusters of up to %d blocks\n", size);
  expect(size >= 1 && (size & (size - 1)) == 0 && size <= 16, "the largest cluster");
  config.attrs = &single;
  config.numAttrs = 1;
  CHECK_CU(cuOccupancyMaxActiveClusters(&clusters, mix, &config));
  CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, mix, 128, 0));
  printf("# %d clusters of one block, %d blocks on each of %d multiprocessors\n", clusters, blocks,
         processors);
  expect(clusters >= 1 && clusters <= blocks * processors, "clusters of one block");
  expect_result("clusters of no configuration",
                cuOccupancyMaxActiveClusters(&clusters, mix, nullptr), kInvalid);
}

// ---- Cooperative launches ----------------------------------------------------------------------

void cooperative() {
  CUmodule module = nullptr;
  CHECK_CU(cuModuleLoadData(&module, kPtx));
  CUfunction count = nullptr;
  CHECK_CU(cuModuleGetFunction(&count, module, "count"));
  const int processors = device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  expect(device_attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == 1,
         "the device launches cooperatively");
  int blocks = 0;
  CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, count, 1, 0));
  const auto grid = static_cast<unsigned>(processors);
  e2e::Buffer<uint32_t> counter(std::vector<uint32_t>{0});
  uint8_t step = 1;
  uint32_t limit = grid;
  void* arguments[] = {&counter.address, &step, &limit};
  CHECK_CU(cuLaunchCooperativeKernel(count, grid, 1, 1, 1, 1, 1, 0, nullptr, arguments));
  CHECK_CU(cuStreamSynchronize(nullptr));
  expect(counter.get()[0] == grid, "all blocks ran at once");
  const unsigned more = grid * static_cast<unsigned>(blocks) + 1;
  expect_result("more blocks than run at once",
                cuLaunchCooperativeKernel(count, more, 1, 1, 1, 1, 1, 0, nullptr, arguments),
                CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  expect_result("no blocks",
                cuLaunchCooperativeKernel(count, 0, 1, 1, 1, 1, 1, 0, nullptr, arguments),
                kInvalid);
  CHECK_CU(cuStreamSynchronize(nullptr));
  expect(counter.get()[0] == grid, "neither ran");
  CHECK_CU(cuModuleUnload(module));
}

// ---- Names, parameters, files ------------------------------------------------------------------

// A file with the PTX, which exists as long as this object.
struct PtxFile {
  std::string path = "/tmp/openmps_ptx_XXXXXX";
  PtxFile() {
    const int descriptor = mkstemp(path.data());
    const ssize_t bytes = sizeof(kPtx) - 1;
    if (descriptor < 0 || write(descriptor, kPtx, bytes) != bytes) {
      perror("a file for the PTX");
      exit(1);
    }
    close(descriptor);
  }
  PtxFile(const PtxFile&) = delete;
  ~PtxFile() { unlink(path.c_str()); }
};

using Names = std::set<std::string>;
const Names kNames{"fill", "count"};

template <typename Handle>
using ParameterQuery = CUresult (*)(Handle, size_t, size_t*, size_t*);

template <typename Handle>
void parameters(ParameterQuery<Handle> query, Handle count) {
  const size_t offsets[] = {0, 8, 12}, sizes[] = {8, 1, 4};
  bool right = true;
  for (size_t i = 0; i < 3; i++) {
    size_t offset = 99, size = 99;
    CHECK_CU(query(count, i, &offset, &size));
    right &= offset == offsets[i] && size == sizes[i];
  }
  expect(right, "offsets and sizes of the parameters");
  size_t offset = 99;
  CHECK_CU(query(count, 2, &offset, nullptr));
  expect(offset == 12, "an offset alone");
  expect_result("a parameter that is not there", query(count, 3, &offset, nullptr), kInvalid);
}

void runs(const char* what, CUfunction fill) {
  e2e::Buffer<uint32_t> words(32);
  e2e::launch(fill, 1, 32, 0, nullptr, words.address, 41u);
  expect(words.get() == std::vector<uint32_t>(32, 41), "%s", what);
}

void modules() {
  const PtxFile file;
  CUmodule module = nullptr, of_function = nullptr;
  CHECK_CU(cuModuleLoad(&module, file.path.c_str()));
  unsigned count = 0;
  CHECK_CU(cuModuleGetFunctionCount(&count, module));
  expect(count == 2, "%u functions in the file's module", count);
  CUfunction functions[3] = {nullptr, nullptr, nullptr}, found = nullptr;
  CHECK_CU(cuModuleEnumerateFunctions(functions, 1, module));
  expect(functions[0] != nullptr && functions[1] == nullptr, "one of them");
  CHECK_CU(cuModuleEnumerateFunctions(functions, 2, module));
  Names names;
  for (int i = 0; i < 2; i++) {
    const char* name = nullptr;
    CHECK_CU(cuFuncGetName(&name, functions[i]));
    names.insert(name);
    CHECK_CU(cuFuncGetModule(&of_function, functions[i]));
    expect(of_function == module, "a function knows its module");
  }
  expect(names == kNames && functions[2] == nullptr, "both of them");
  CHECK_CU(cuModuleGetFunction(&found, module, "count"));
  parameters<CUfunction>(cuFuncGetParamInfo, found);
  CHECK_CU(cuModuleGetFunction(&found, module, "fill"));
  expect(found == functions[0] || found == functions[1], "the same function by its name");
  CHECK_CU(cuFuncLoad(found));
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  CHECK_CU(cuFuncIsLoaded(&state, found));
  expect(state == CU_FUNCTION_LOADING_STATE_LOADED, "a function that was loaded");
  runs("a function of a file", found);
  CHECK_CU(cuModuleUnload(module));
  expect_result("a file that is not there", cuModuleLoad(&module, "/nonexistent/openmps.ptx"),
                CUDA_ERROR_FILE_NOT_FOUND);
  expect_result("no file name", cuModuleLoad(&module, nullptr), kInvalid);
  expect_result("a file that is no image", cuModuleLoad(&module, "/proc/self/comm"),
                {CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_INVALID_SOURCE,
                 CUDA_ERROR_UNSUPPORTED_PTX_VERSION});

  // PTX text is accepted as a fat binary, too.
  CHECK_CU(cuModuleLoadFatBinary(&module, kPtx));
  CHECK_CU(cuModuleGetFunction(&found, module, "fill"));
  runs("a function of an image", found);
  CHECK_CU(cuModuleUnload(module));
}

void libraries() {
  const PtxFile file;
  CUlibrary library = nullptr, of_kernel = nullptr;
  CHECK_CU(
      cuLibraryLoadFromFile(&library, file.path.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  CHECK_CU(cuLibraryGetKernelCount(&count, library));
  expect(count == 2, "%u kernels in the file's library", count);
  CUkernel kernels[3] = {nullptr, nullptr, nullptr}, found = nullptr;
  CHECK_CU(cuLibraryEnumerateKernels(kernels, 2, library));
  Names names;
  for (int i = 0; i < 2; i++) {
    const char* name = nullptr;
    CHECK_CU(cuKernelGetName(&name, kernels[i]));
    names.insert(name);
    CHECK_CU(cuKernelGetLibrary(&of_kernel, kernels[i]));
    expect(of_kernel == library, "a kernel knows its library");
  }
  expect(names == kNames && kernels[2] == nullptr, "both of them");
  CHECK_CU(cuLibraryGetKernel(&found, library, "count"));
  expect(found == kernels[0] || found == kernels[1], "the same kernel by its name");
  parameters<CUkernel>(cuKernelGetParamInfo, found);
  CHECK_CU(cuLibraryGetKernel(&found, library, "fill"));
  CHECK_CU(cuKernelSetCacheConfig(found, CU_FUNC_CACHE_PREFER_SHARED, 0));
  expect_result("no such preference",
                cuKernelSetCacheConfig(found, static_cast<CUfunc_cache>(9), 0), kInvalid);
  expect_result("a preference on no device",
                cuKernelSetCacheConfig(found, CU_FUNC_CACHE_PREFER_L1, 99),
                CUDA_ERROR_INVALID_DEVICE);
  runs("a kernel of a file", reinterpret_cast<CUfunction>(found));
  CUfunction function = nullptr;
  const char* name = nullptr;
  CHECK_CU(cuKernelGetFunction(&function, found));
  CHECK_CU(cuFuncGetName(&name, function));
  expect(std::string(name) == "fill", "the name of a kernel's function");
  CHECK_CU(cuLibraryUnload(library));
  expect_result("a file that is not there",
                cuLibraryLoadFromFile(&library, "/nonexistent/openmps.ptx", nullptr, nullptr, 0,
                                      nullptr, nullptr, 0),
                {CUDA_ERROR_FILE_NOT_FOUND, kInvalid});
}

// ---- Settings ----------------------------------------------------------------------------------

// The occupancy of a function follows its settings, whether or not it was queried before they
// changed.
void occupancy_follows_settings() {
  CUmodule modules[2];
  CUfunction stores[2];
  for (int i = 0; i < 2; ++i) {
    CHECK_CU(cuModuleLoadData(&modules[i], e2e::kernels_ptx()));
    CHECK_CU(cuModuleGetFunction(&stores[i], modules[i], "store_at"));
  }
  constexpr size_t kShapes[] = {0, 16 * 1024, 60 * 1024};
  const auto occupancy_of = [](CUfunction function, size_t shared) {
    int blocks = -1;
    CHECK_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, shared));
    return blocks;
  };
  for (size_t shared : kShapes) (void)occupancy_of(stores[0], shared);
  for (CUfunction store : stores) {
    CHECK_CU(cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60 * 1024));
    CHECK_CU(cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100));
  }
  bool same = true;
  for (size_t shared : kShapes) {
    const int asked = occupancy_of(stores[0], shared), fresh = occupancy_of(stores[1], shared);
    printf("# %zu bytes: %d blocks, %d of a function not asked before\n", shared, asked, fresh);
    same &= asked == fresh && asked == occupancy_of(stores[0], shared);
  }
  expect(same, "occupancy follows the settings");
  for (CUmodule module : modules) CHECK_CU(cuModuleUnload(module));
}

void settings(const e2e::Session& session) {
  constexpr int kShared = 60 * 1024;
  const CUfunction store = session.function("store_at");
  e2e::Buffer<uint32_t> word(std::vector<uint32_t>{0});
  expect_result("more shared memory than allowed",
                e2e::try_launch(store, 1, 1, kShared, nullptr, word.address, 1u), kInvalid);
  CHECK_CU(cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kShared));
  int value = 0;
  CHECK_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, store));
  expect(value == kShared, "the shared memory that was allowed");
  e2e::launch(store, 1, 1, kShared, nullptr, word.address, 2u);
  expect(word.get()[0] == 2, "a launch with it");
  CHECK_CU(cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
  CHECK_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, store));
  expect(value == 50, "the share of shared memory");
  expect_result("more than the device has",
                cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 24),
                kInvalid);
  expect_result("an attribute to be read alone",
                cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_NUM_REGS, 16), kInvalid);
  expect_result("a share above all",
                cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101),
                kInvalid);
  CHECK_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, store));
  expect(value == kShared, "a refused value changes nothing");

  occupancy_follows_settings();

  CHECK_CU(cuFuncSetCacheConfig(store, CU_FUNC_CACHE_PREFER_L1));
  CHECK_CU(cuFuncSetSharedMemConfig(store, CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  expect_result("no such preference", cuFuncSetCacheConfig(store, static_cast<CUfunc_cache>(9)),
                kInvalid);
  expect_result("no such size of banks",
                cuFuncSetSharedMemConfig(store, static_cast<CUsharedconfig>(9)), kInvalid);
  e2e::launch(store, 1, 1, 0, nullptr, word.address, 3u);
  expect(word.get()[0] == 3, "preferences do not change results");

  const char* text = nullptr;
  CHECK_CU(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
  expect(text != nullptr && strlen(text) > 5, "an error has a text");
  expect_result("an unknown error", cuGetErrorString(static_cast<CUresult>(98765), &text),
                kInvalid);
  expect(text == nullptr, "has none");
  void* entry = nullptr;
  CHECK_CU(cuGetProcAddress("cuDeviceGetCount", &entry, 12000, 0));
  int devices = 0;
  CHECK_CU(reinterpret_cast<CUresult (*)(int*)>(entry)(&devices));
  expect(devices >= 1, "a function by its name");
  expect_result("a name that no function has",
                cuGetProcAddress("cuNoSuchFunction", &entry, 12000, 0), CUDA_ERROR_NOT_FOUND);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "occupancy";
  e2e::Session session;
  if (group == "occupancy") {
    occupancy(session);
  } else if (group == "cooperative") {
    cooperative();
  } else if (group == "modules") {
    modules();
  } else if (group == "libraries") {
    libraries();
  } else {
    settings(session);
  }
  return e2e::finish();
}
