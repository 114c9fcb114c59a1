// SPDX-License-Identifier: Apache-2.0
// Modules, libraries, functions, launches and occupancy.
#include "device_fixture.h"

#include <cstdlib>
#include <cstring>

#include "softgpu/device/machine/config.h"
#include "softgpu/device/machine/sm.h"

namespace openmps::softgpu::testing {
namespace {

using ModuleTest = DeviceTest;

TEST_F(ModuleTest, LaunchByPointersAndByBuffer) {
  uint32_t* word = words(1);
  FakeParameters p{FakeAction::kAdd, address_of(word), 3};
  void* pointers[] = {&p.action, &p.address, &p.value};
  EXPECT_CU(cuLaunchKernel(function("run"), 2, 1, 1, 32, 1, 1, 0, nullptr, pointers, nullptr));
  EXPECT_CU(try_launch(function("run"), nullptr, p));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(load(word), 9u);
}

TEST_F(ModuleTest, BadLaunches) {
  CUfunction run = function("run");
  FakeParameters p;
  EXPECT_EQ(try_launch(run, nullptr, p, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_launch(run, nullptr, p, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_launch(run, nullptr, p, 1, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_launch(run, nullptr, p, 1, 32, 49 << 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(try_launch(nullptr, nullptr, p), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(run, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &p, CU_LAUNCH_PARAM_END};
  EXPECT_EQ(cuLaunchKernel(run, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuCtxSynchronize());
}

// It fails by itself, however it is come by.
TEST_F(ModuleTest, AKernelBeyondItsLimits) {
  CUfunction functions[3] = {};
  EXPECT_EQ(cuModuleGetFunction(&functions[2], module_, "unusable"), CUDA_ERROR_INVALID_PTX);
  ASSERT_CU(cuModuleEnumerateFunctions(functions, 3, module_));
  EXPECT_EQ(try_launch(functions[2], nullptr, {}), CUDA_ERROR_INVALID_PTX);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_CU(cuLibraryLoadData(&library, kFakeImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(cuLibraryGetKernel(&kernel, library, "unusable"));
  EXPECT_EQ(try_launch(reinterpret_cast<CUfunction>(kernel), nullptr, {}), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(cuKernelGetFunction(&functions[2], kernel), CUDA_ERROR_INVALID_PTX);
  EXPECT_CU(try_launch(function("run"), nullptr, {}));
  EXPECT_CU(cuLibraryUnload(library));
}

TEST_F(ModuleTest, LibraryOptionsWithoutValues) {
  CUlibrary library = nullptr;
  CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
  EXPECT_CU(cuLibraryLoadData(&library, kFakeImage, nullptr, nullptr, 0, &option, nullptr, 1));
  EXPECT_CU(cuLibraryUnload(library));
  EXPECT_EQ(cuLibraryLoadData(&library, kFakeImage, nullptr, nullptr, 0, nullptr, nullptr, 1),
            CUDA_ERROR_INVALID_VALUE);
}

// Code that can't be used ends a program that asks for it.
TEST_F(ModuleTest, Strict) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  CUmodule module = nullptr;
  CUfunction found = nullptr;
  setenv("SOFTGPU_STRICT", "0", 1);
  EXPECT_EQ(cuModuleLoadData(&module, "nonsense"), CUDA_ERROR_INVALID_PTX);
  setenv("SOFTGPU_STRICT", "1", 1);
  EXPECT_EQ(cuModuleGetFunction(&found, module_, "nothing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_DEATH(cuModuleLoadData(&module, "nonsense"), "softgpu: error 218: .*line 1");
  EXPECT_DEATH(cuModuleGetFunction(&found, module_, "unusable"), "too much shared data");
  EXPECT_DEATH(
      {
        launch(nullptr, FakeAction::kFault, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION);
        cuCtxSynchronize();
      },
      "softgpu: error 715");
  unsetenv("SOFTGPU_STRICT");
}

TEST_F(ModuleTest, SharedMemoryBeyondTheDefaultIsOptIn) {
  CUfunction run = function("run");
  EXPECT_CU(cuFuncSetAttribute(run, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  EXPECT_CU(try_launch(run, nullptr, {}, 1, 32, 100 << 10));
  EXPECT_EQ(cuFuncSetAttribute(run, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 << 10),
            CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  EXPECT_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function("wide")));
  EXPECT_EQ(value, 64 << 10);
  // Seen on an H200: with more than 48 KiB of static shared memory a kernel may use all the rest.
  EXPECT_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               function("wide")));
  EXPECT_EQ(value, (227 - 64) << 10);
  EXPECT_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, run));
  EXPECT_EQ(value, 32);
  EXPECT_EQ(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, run), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, ParameterLayout) {
  size_t offset = 0;
  size_t size = 0;
  EXPECT_CU(cuFuncGetParamInfo(function("run"), 2, &offset, &size));
  EXPECT_EQ(offset, 16u);
  EXPECT_EQ(size, 8u);
  EXPECT_EQ(cuFuncGetParamInfo(function("run"), 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, GlobalsAndEnumeration) {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  EXPECT_CU(cuModuleGetGlobal_v2(&address, &bytes, module_, "counter"));
  EXPECT_EQ(bytes, 4u);
  launch(nullptr, FakeAction::kAdd, address, 6);
  uint32_t value = 0;
  EXPECT_CU(cuMemcpyDtoH_v2(&value, address, 4));
  EXPECT_EQ(value, 6u);
  EXPECT_EQ(cuModuleGetGlobal_v2(&address, &bytes, module_, "nothing"), CUDA_ERROR_NOT_FOUND);
  unsigned count = 0;
  EXPECT_CU(cuModuleGetFunctionCount(&count, module_));
  ASSERT_EQ(count, 4u);
  CUfunction functions[4] = {};
  EXPECT_CU(cuModuleEnumerateFunctions(functions, 4, module_));
  const char* name = nullptr;
  EXPECT_CU(cuFuncGetName(&name, functions[1]));
  EXPECT_STREQ(name, "wide");
}

TEST_F(ModuleTest, UnloadEndsItsHandles) {
  CUmodule second = nullptr;
  ASSERT_CU(cuModuleLoadData(&second, kFakeImage));
  CUfunction run = nullptr;
  ASSERT_CU(cuModuleGetFunction(&run, second, "run"));
  EXPECT_CU(cuModuleUnload(second));
  EXPECT_EQ(cuModuleUnload(second), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleGetFunction(&run, second, "run"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(try_launch(run, nullptr, {}), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, ABadImageFillsTheErrorLog) {
  char log[128] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadDataEx(&module, "nonsense", 2, options, values), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(strstr(log, "line 1"), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(values[1]), strlen(log));
  EXPECT_EQ(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(ModuleTest, WhoShipsMachineCodeOnlyIsNamed) {
  char log[4096] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadDataEx(&module, testing::kFakeMachineCode, 2, options, values),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_NE(strstr(log, program_invocation_short_name), nullptr) << log;
  // What the program has built itself is of no file.
  const std::string own = testing::kFakeMachineCode;
  void* again[] = {log, reinterpret_cast<void*>(sizeof log)};
  EXPECT_EQ(cuModuleLoadDataEx(&module, own.c_str(), 2, options, again),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_STREQ(log, "machine code");
}

TEST_F(ModuleTest, LibrariesServeEveryContext) {
  CUlibrary library = nullptr;
  ASSERT_CU(cuLibraryLoadData(&library, kFakeImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  ASSERT_CU(cuLibraryGetKernel(&kernel, library, "run"));
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "walk"), CUDA_ERROR_NOT_FOUND);
  uint32_t* word = words(1);
  FakeParameters p{FakeAction::kAdd, address_of(word), 1};
  EXPECT_CU(try_launch(reinterpret_cast<CUfunction>(kernel), nullptr, p));
  CUfunction here = nullptr;
  EXPECT_CU(cuKernelGetFunction(&here, kernel));
  EXPECT_CU(try_launch(here, nullptr, p));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(load(word), 2u);
  CUcontext second = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&second, 0, 0));
  CUfunction there = nullptr;
  EXPECT_CU(cuKernelGetFunction(&there, kernel));
  EXPECT_NE(there, here);
  EXPECT_EQ(try_launch(here, nullptr, p), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CU(cuCtxDestroy_v2(second));
  size_t offset = 0;
  size_t size = 0;
  EXPECT_CU(cuKernelGetParamInfo(kernel, 1, &offset, &size));
  EXPECT_EQ(offset, 8u);
  EXPECT_CU(cuLibraryUnload(library));
  EXPECT_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuKernelGetParamInfo(kernel, 1, &offset, &size), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, LaunchAttributes) {
  uint32_t* word = words(1);
  FakeParameters p{FakeAction::kGridSync, address_of(word), 4};
  void* pointers[] = {&p.action, &p.address, &p.value};
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[0].value.cooperative = 1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[1].value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {};
  config.gridDimX = 4;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  EXPECT_CU(cuLaunchKernelEx(&config, function("run"), pointers, nullptr));
  EXPECT_CU(cuCtxSynchronize());
}

// A launch of `grid` blocks of one warp in clusters of `blocks`.
struct ClusterLaunch {
  ClusterLaunch(unsigned grid, unsigned blocks) {
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {blocks, 1, 1};
    config.gridDimX = grid;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 32;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  CUresult operator()(CUfunction function, FakeParameters p) const {
    void* pointers[] = {&p.action, &p.address, &p.value};
    return cuLaunchKernelEx(&config, function, pointers, nullptr);
  }
  CUlaunchAttribute attribute = {};
  CUlaunchConfig config = {};
};

TEST_F(ModuleTest, ClustersRunWholeAndWhereTheyFit) {
  uint32_t* word = words(8);
  EXPECT_CU(ClusterLaunch(8, 4)(function("run"), {FakeAction::kAdd, address_of(word), 1}));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(*word, 8u);
  // Three blocks of "wide" fill an SM: a cluster of eight takes three of the four.
  EXPECT_CU(ClusterLaunch(8, 8)(function("wide"), {FakeAction::kRecordSm, address_of(word)}));
  EXPECT_CU(cuCtxSynchronize());
  for (uint32_t sm = 1; sm <= kSms; ++sm) EXPECT_EQ(std::count(word, word + 8, sm), 2);
}

TEST_F(ModuleTest, AClusterIsPlacedAtOnceOrNotAtAll) {
  uint32_t* gate = words(1);
  CUstream first = stream();
  // Two of three places of each SM are taken, then all but four.
  ASSERT_CU(
      try_launch(function("wide"), first, {FakeAction::kWait, address_of(gate), 1}, 2 * kSms));
  ClusterLaunch eight(8, 8);
  eight.config.hStream = stream();
  ASSERT_CU(eight(function("wide"), {FakeAction::kNothing}));
  const auto placed = [&] {
    int count = 0;
    for (const TraceEvent& event : trace()) {
      count += event.name == "place" && event.stream == stream_id(eight.config.hStream);
    }
    return count;
  };
  EXPECT_EQ(placed(), 0);
  store(gate, 1);
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(placed(), 8);
}

TEST_F(ModuleTest, ClustersThatNeverFitAreRefused) {
  const CUfunction wide = function("wide");
  const FakeParameters nothing;
  EXPECT_EQ(ClusterLaunch(16, 16)(wide, nothing), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_CU(cuFuncSetAttribute(wide, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  EXPECT_EQ(ClusterLaunch(16, 16)(wide, nothing), CUDA_ERROR_INVALID_CLUSTER_SIZE);  // 12 fit
  EXPECT_CU(ClusterLaunch(12, 12)(wide, nothing));
  const CUfunction run = function("run");
  EXPECT_EQ(ClusterLaunch(16, 16)(run, nothing), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_CU(cuFuncSetAttribute(run, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  EXPECT_CU(ClusterLaunch(16, 16)(run, nothing));
  EXPECT_EQ(ClusterLaunch(32, 32)(run, nothing), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(ClusterLaunch(9, 2)(run, nothing), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_CU(cuCtxSynchronize());
}

TEST_F(ModuleTest, ClusterOccupancy) {
  int count = 0;
  const CUfunction wide = function("wide");
  const ClusterLaunch four(8, 4);
  EXPECT_CU(cuOccupancyMaxActiveClusters(&count, wide, &four.config));
  EXPECT_EQ(count, 3);
  EXPECT_CU(cuOccupancyMaxPotentialClusterSize(&count, wide, &four.config));
  EXPECT_EQ(count, 8);
  const ClusterLaunch odd(8, 3);
  EXPECT_EQ(cuOccupancyMaxActiveClusters(&count, wide, &odd.config),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
  const CUfunction run = function("run");
  EXPECT_CU(cuFuncSetAttribute(run, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  EXPECT_CU(cuOccupancyMaxPotentialClusterSize(&count, run, &four.config));
  EXPECT_EQ(count, 16);
}

TEST_F(ModuleTest, Occupancy) {
  int blocks = 0;
  CUfunction run = function("run");
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, run, 256, 0));
  EXPECT_EQ(blocks, 8);  // by threads and by registers
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, run, 32, 0));
  EXPECT_EQ(blocks, kBlocksPerSm);
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, run, 32, 40 << 10));
  EXPECT_EQ(blocks, 5);  // 228 KiB over 41 KiB
  EXPECT_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function("wide"), 32, 0));
  EXPECT_EQ(blocks, 3);
  size_t shared = 0;
  EXPECT_CU(cuOccupancyAvailableDynamicSMemPerBlock(&shared, run, 2, 256));
  EXPECT_EQ(shared, 113u << 10);
  int grid = 0;
  int size = 0;
  EXPECT_CU(cuOccupancyMaxPotentialBlockSize(&grid, &size, run, nullptr, 0, 0));
  EXPECT_EQ(size, 1024);
  EXPECT_EQ(grid, 2 * kSms);
}

TEST_F(ModuleTest, DevicePrintfAppearsAtSynchronisation) {
  launch(nullptr, FakeAction::kPrint);
  ::testing::internal::CaptureStdout();
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "hello\n");
}

uint32_t capability_of(const char* text) {
  setenv("SOFTGPU_CC", text, 1);
  const Result<Config> config = read_config();
  setenv("SOFTGPU_CC", "9.0", 1);
  return config.ok() ? config->compute_capability : 0;
}

TEST(Capability, UpToThoseThatNoMachineCodeIsFor) {
  EXPECT_EQ(capability_of("12.1"), 121u);
  EXPECT_EQ(capability_of("13.0"), 130u);
  EXPECT_EQ(capability_of("139"), 139u);
  EXPECT_EQ(capability_of("14.0"), 0u);
  EXPECT_EQ(capability_of("13.x"), 0u);
}

TEST(Capability, Limits) {
  EXPECT_EQ(sm_limits(120).shared_per_block_optin, 99u << 10);
  for (const uint32_t capability : {90u, 130u, 139u}) {
    EXPECT_EQ(sm_limits(capability).shared_per_block_optin, 227u << 10);
    EXPECT_EQ(sm_limits(capability).threads, 2048u);
    EXPECT_EQ(sm_limits(capability).blocks, 32u);
  }
}

}  // namespace
}  // namespace openmps::softgpu::testing
