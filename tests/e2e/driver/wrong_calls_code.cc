// SPDX-License-Identifier: Apache-2.0
// Wrong calls about code: modules, libraries, functions, occupancy, launches, the linker.
#include "wrong_calls.h"

namespace e2e {
namespace {

using Attributes = std::vector<CUlaunchAttribute>;

constexpr char kGarbage[] = "This is not a module at all.\n";

CUresult load(const char* text, std::vector<CUjit_option> options, std::vector<void*> values) {
  CUmodule made = nullptr;
  return cuModuleLoadDataEx(&made, text, static_cast<unsigned>(options.size()), options.data(),
                            values.data());
}

CUlaunchAttribute cluster(unsigned x, unsigned y = 1, unsigned z = 1) {
  CUlaunchAttribute made{};
  made.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  made.value.clusterDim.x = x;
  made.value.clusterDim.y = y;
  made.value.clusterDim.z = z;
  return made;
}
CUlaunchAttribute attribute(CUlaunchAttributeID id, int value) {
  CUlaunchAttribute made{};
  made.id = id;
  made.value.priority = value;
  return made;
}
struct Shape {
  unsigned x = 1, y = 1, z = 1;
};
struct Configuration {
  CUlaunchConfig value{};
  operator const CUlaunchConfig*() const { return &value; }  // NOLINT(google-explicit-constructor)
};
Configuration of(const Stage& s, Shape grid, Shape block, CUlaunchAttribute* attributes = nullptr,
                 unsigned count = 0) {
  return {{grid.x, grid.y, grid.z, block.x, block.y, block.z, 0, s.stream, attributes, count}};
}
CUresult start(const Stage& s, Shape grid, Shape block, unsigned shared = 0) {
  return cuLaunchKernel(s.world.empty, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
                        s.stream, nullptr, nullptr);
}
CUresult start_cooperative(const Stage& s, Shape grid, Shape block) {
  return cuLaunchCooperativeKernel(s.world.empty, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                   0, s.stream, nullptr);
}
// The arguments of mix(words, n, key) in a buffer of `bytes`.
CUresult start_with_buffer(const Stage& s, size_t bytes) {
  struct {
    CUdeviceptr words;
    uint32_t n, key;
  } arguments{s.memory, 1, 1};
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(s.world.mix, 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr, extra);
}
CUresult start_with_both(Stage& s) {
  size_t bytes = 16;
  unsigned n = 1, key = 1;
  void* parameters[] = {&s.memory, &n, &key};
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, s.pageable, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  return cuLaunchKernel(s.world.mix, 1, 1, 1, 1, 1, 1, 0, s.stream, parameters, extra);
}

// A linker without inputs.
CUlinkState linker() {
  CUlinkState made = nullptr;
  CHECK_CU(cuLinkCreate_v2(0, nullptr, nullptr, &made));
  return made;
}
void* text(const char* of) { return const_cast<char*>(of); }

}  // namespace

const WrongCalls kModuleCalls = {
    WRONG(cuModuleLoad(nullptr, "/nonexistent")),
    WRONG(cuModuleLoad(out<CUmodule>(), nullptr)),
    WRONG(cuModuleLoad(out<CUmodule>(), "")),
    WRONG(cuModuleLoad(out<CUmodule>(), "/nonexistent")),
    WRONG(cuModuleLoad(out<CUmodule>(), "/")),
    WRONG(cuModuleLoad(out<CUmodule>(), "/dev/null")),
    WRONG(cuModuleLoadData(nullptr, kernels_ptx())),
    WRONG(cuModuleLoadData(nullptr, kGarbage)),
    WRONG(cuModuleLoadData(out<CUmodule>(), nullptr)),
    WRONG(cuModuleLoadData(out<CUmodule>(), kGarbage)),
    WRONG(cuModuleLoadData(out<CUmodule>(), ".version 7.0\n.target sm_9999\n.address_size 64\n")),
    WRONG(cuModuleLoadData(out<CUmodule>(), ".version 7.0\n.target sm_70\n.address_size 64\n")),
    WRONG(cuModuleLoadData(out<CUmodule>(), ".version 7.0\n")),
    WRONG(cuModuleLoadData(out<CUmodule>(), ".target sm_70\n.address_size 64\n")),
    WRONG(cuModuleLoadDataEx(out<CUmodule>(), kernels_ptx(), 1, nullptr, nullptr)),
    WRONG(cuModuleLoadDataEx(out<CUmodule>(), kernels_ptx(), 1, list({CU_JIT_MAX_REGISTERS}),
                             nullptr)),
    WRONG(load(kernels_ptx(), {bad<CUjit_option>}, {nullptr})),
    WRONG(load(kernels_ptx(), {CU_JIT_OPTIMIZATION_LEVEL}, {pointer(9)})),
    WRONG(load(kernels_ptx(), {CU_JIT_TARGET}, {pointer(9999)})),
    WRONG(load(kernels_ptx(), {CU_JIT_FALLBACK_STRATEGY}, {pointer(9999)})),
    WRONG(load(kernels_ptx(), {CU_JIT_CACHE_MODE}, {pointer(9999)})),
    WRONG(load(kernels_ptx(), {CU_JIT_ERROR_LOG_BUFFER}, {nullptr})),
    WRONG(load(kernels_ptx(), {CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES}, {pointer(64)})),
    WRONG(load(kGarbage, {bad<CUjit_option>}, {nullptr})),
    WRONG(cuModuleLoadFatBinary(out<CUmodule>(), nullptr)),
    WRONG(cuModuleLoadFatBinary(nullptr, kernels_ptx())),
    WRONG(cuModuleUnload(nullptr)),
    WRONG(cuModuleGetFunction(nullptr, s.world.module, "mix")),
    WRONG(cuModuleGetFunction(out<CUfunction>(), nullptr, "mix")),
    WRONG(cuModuleGetFunction(out<CUfunction>(), s.world.module, nullptr)),
    WRONG(cuModuleGetFunction(out<CUfunction>(), s.world.module, "")),
    WRONG(cuModuleGetFunction(out<CUfunction>(), s.world.module, "nothing")),
    WRONG(cuModuleGetFunction(out<CUfunction>(), s.world.module, "counter")),
    WRONG(cuModuleGetFunction(nullptr, s.world.module, "nothing")),
    WRONG(cuModuleGetFunction(nullptr, nullptr, nullptr)),
    WRONG(cuModuleGetGlobal_v2(nullptr, nullptr, s.world.module, "counter")),
    WRONG(cuModuleGetGlobal_v2(out<CUdeviceptr>(), nullptr, s.world.module, "counter")),
    WRONG(cuModuleGetGlobal_v2(out<CUdeviceptr>(), out<size_t>(), nullptr, "counter")),
    WRONG(cuModuleGetGlobal_v2(out<CUdeviceptr>(), out<size_t>(), s.world.module, nullptr)),
    WRONG(cuModuleGetGlobal_v2(out<CUdeviceptr>(), out<size_t>(), s.world.module, "")),
    WRONG(cuModuleGetGlobal_v2(out<CUdeviceptr>(), out<size_t>(), s.world.module, "nothing")),
    WRONG(cuModuleGetGlobal_v2(out<CUdeviceptr>(), out<size_t>(), s.world.module, "mix")),
    WRONG(cuModuleGetGlobal_v2(nullptr, nullptr, s.world.module, "nothing")),
    WRONG(cuModuleGetFunctionCount(nullptr, s.world.module)),
    WRONG(cuModuleGetFunctionCount(out<unsigned>(), nullptr)),
    WRONG(cuModuleEnumerateFunctions(nullptr, 1, s.world.module)),
    WRONG(cuModuleEnumerateFunctions(out<CUfunction>(), 0, s.world.module)),
    WRONG(cuModuleEnumerateFunctions(out<CUfunction>(), 1, nullptr)),
};

const WrongCalls kLibraryCalls = {
    WRONG(cuLibraryLoadData(nullptr, kernels_ptx(), nullptr, nullptr, 0, nullptr, nullptr, 0)),
    WRONG(cuLibraryLoadData(out<CUlibrary>(), nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0)),
    WRONG(cuLibraryLoadData(out<CUlibrary>(), kernels_ptx(), nullptr, nullptr, 1, nullptr, nullptr,
                            0)),
    WRONG(cuLibraryLoadData(out<CUlibrary>(), kernels_ptx(), nullptr, nullptr, 0,
                            list({bad<CUlibraryOption>}), list<void*>({nullptr}), 1)),
    WRONG(cuLibraryLoadData(out<CUlibrary>(), kernels_ptx(), list({bad<CUjit_option>}),
                            list<void*>({nullptr}), 1, nullptr, nullptr, 0)),
    WRONG(cuLibraryLoadFromFile(nullptr, "/nonexistent", nullptr, nullptr, 0, nullptr, nullptr, 0)),
    WRONG(
        cuLibraryLoadFromFile(out<CUlibrary>(), nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0)),
    WRONG(cuLibraryLoadFromFile(out<CUlibrary>(), "/nonexistent", nullptr, nullptr, 0, nullptr,
                                nullptr, 0)),
    WRONG(cuLibraryUnload(nullptr)),
    WRONG(cuLibraryGetKernel(nullptr, s.world.library, "mix")),
    WRONG(cuLibraryGetKernel(out<CUkernel>(), nullptr, "mix")),
    WRONG(cuLibraryGetKernel(out<CUkernel>(), s.world.library, nullptr)),
    WRONG(cuLibraryGetKernel(out<CUkernel>(), s.world.library, "nothing")),
    WRONG(cuLibraryGetKernel(nullptr, nullptr, nullptr)),
    WRONG(cuLibraryGetModule(nullptr, s.world.library)),
    WRONG(cuLibraryGetModule(out<CUmodule>(), nullptr)),
    WRONG(cuLibraryGetGlobal(nullptr, nullptr, s.world.library, "counter")),
    WRONG(cuLibraryGetGlobal(out<CUdeviceptr>(), out<size_t>(), nullptr, "counter")),
    WRONG(cuLibraryGetGlobal(out<CUdeviceptr>(), out<size_t>(), s.world.library, nullptr)),
    WRONG(cuLibraryGetGlobal(out<CUdeviceptr>(), out<size_t>(), s.world.library, "nothing")),
    WRONG(cuLibraryGetGlobal(nullptr, nullptr, s.world.library, "nothing")),
    WRONG(cuLibraryGetManaged(out<CUdeviceptr>(), out<size_t>(), nullptr, "counter")),
    WRONG(cuLibraryGetManaged(out<CUdeviceptr>(), out<size_t>(), s.world.library, nullptr)),
    WRONG(cuLibraryGetManaged(out<CUdeviceptr>(), out<size_t>(), s.world.library, "counter")),
    WRONG(cuLibraryGetManaged(out<CUdeviceptr>(), out<size_t>(), s.world.library, "nothing")),
    WRONG(cuLibraryGetUnifiedFunction(nullptr, s.world.library, "mix")),
    WRONG(cuLibraryGetUnifiedFunction(out<void*>(), nullptr, "mix")),
    WRONG(cuLibraryGetUnifiedFunction(out<void*>(), s.world.library, "nothing")),
    WRONG(cuLibraryGetKernelCount(nullptr, s.world.library)),
    WRONG(cuLibraryGetKernelCount(out<unsigned>(), nullptr)),
    WRONG(cuLibraryEnumerateKernels(nullptr, 1, s.world.library)),
    WRONG(cuLibraryEnumerateKernels(out<CUkernel>(), 0, s.world.library)),
    WRONG(cuLibraryEnumerateKernels(out<CUkernel>(), 1, nullptr)),
    WRONG(cuKernelGetFunction(nullptr, s.world.kernel)),
    WRONG(cuKernelGetFunction(out<CUfunction>(), nullptr)),
    WRONG(cuKernelGetLibrary(nullptr, s.world.kernel)),
    WRONG(cuKernelGetLibrary(out<CUlibrary>(), nullptr)),
    WRONG(cuKernelGetName(nullptr, s.world.kernel)),
    WRONG(cuKernelGetName(out<const char*>(), nullptr)),
    WRONG(cuKernelGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, s.world.kernel, s.device)),
    WRONG(cuKernelGetAttribute(out<int>(), CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr, s.device)),
    WRONG(cuKernelGetAttribute(out<int>(), bad<CUfunction_attribute>, s.world.kernel, s.device)),
    WRONG(cuKernelGetAttribute(out<int>(), CU_FUNC_ATTRIBUTE_NUM_REGS, s.world.kernel, kNoDevice)),
    WRONG(cuKernelGetAttribute(out<int>(), bad<CUfunction_attribute>, s.world.kernel, kNoDevice)),
    WRONG(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024, nullptr,
                               s.device)),
    WRONG(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 24,
                               s.world.kernel, s.device)),
    WRONG(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 1, s.world.kernel, s.device)),
    WRONG(cuKernelSetAttribute(bad<CUfunction_attribute>, 1, s.world.kernel, s.device)),
    WRONG(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024,
                               s.world.kernel, kNoDevice)),
    WRONG(cuKernelSetCacheConfig(nullptr, CU_FUNC_CACHE_PREFER_L1, s.device)),
    WRONG(cuKernelSetCacheConfig(s.world.kernel, bad<CUfunc_cache>, s.device)),
    WRONG(cuKernelSetCacheConfig(s.world.kernel, CU_FUNC_CACHE_PREFER_L1, kNoDevice)),
    WRONG(cuKernelGetParamInfo(s.world.kernel, 99, out<size_t>(), out<size_t>())),
    WRONG(cuKernelGetParamInfo(nullptr, 0, out<size_t>(), out<size_t>())),
    WRONG(cuKernelGetParamInfo(s.world.kernel, 0, nullptr, out<size_t>())),
    WRONG(cuKernelGetParamInfo(s.world.kernel, 0, out<size_t>(), nullptr)),
    WRONG(cuKernelGetParamInfo(s.world.kernel, 99, nullptr, nullptr)),
};

const WrongCalls kFunctionCalls = {
    WRONG(cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, s.world.mix)),
    WRONG(cuFuncGetAttribute(out<int>(), CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr)),
    WRONG(cuFuncGetAttribute(out<int>(), bad<CUfunction_attribute>, s.world.mix)),
    WRONG(cuFuncGetAttribute(out<int>(), CU_FUNC_ATTRIBUTE_MAX, s.world.mix)),
    WRONG(cuFuncGetAttribute(nullptr, bad<CUfunction_attribute>, nullptr)),
    WRONG(cuFuncSetAttribute(nullptr, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024)),
    WRONG(
        cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 24)),
    WRONG(cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1)),
    WRONG(cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101)),
    WRONG(cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -2)),
    WRONG(cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_NUM_REGS, 1)),
    WRONG(cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1)),
    WRONG(cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 1)),
    WRONG(cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, -1)),
    WRONG(cuFuncSetAttribute(s.world.mix, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                             99)),
    WRONG(cuFuncSetAttribute(s.world.mix, bad<CUfunction_attribute>, 1)),
    WRONG(cuFuncSetAttribute(nullptr, bad<CUfunction_attribute>, 1)),
    WRONG(cuFuncGetName(nullptr, s.world.mix)),
    WRONG(cuFuncGetName(out<const char*>(), nullptr)),
    WRONG(cuFuncGetModule(nullptr, s.world.mix)),
    WRONG(cuFuncGetModule(out<CUmodule>(), nullptr)),
    WRONG(cuFuncGetParamInfo(s.world.mix, 99, out<size_t>(), out<size_t>())),
    WRONG(cuFuncGetParamInfo(nullptr, 0, out<size_t>(), out<size_t>())),
    WRONG(cuFuncGetParamInfo(s.world.mix, 0, nullptr, out<size_t>())),
    WRONG(cuFuncGetParamInfo(s.world.mix, 0, out<size_t>(), nullptr)),
    WRONG(cuFuncIsLoaded(nullptr, s.world.mix)),
    WRONG(cuFuncIsLoaded(out<CUfunctionLoadingState>(), nullptr)),
    WRONG(cuFuncLoad(nullptr)),
    WRONG(cuFuncSetCacheConfig(nullptr, CU_FUNC_CACHE_PREFER_L1)),
    WRONG(cuFuncSetCacheConfig(s.world.mix, bad<CUfunc_cache>)),
    WRONG(cuFuncSetSharedMemConfig(nullptr, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE)),
    WRONG(cuFuncSetSharedMemConfig(s.world.mix, bad<CUsharedconfig>)),
    WRONG(cuFuncSetBlockShape(nullptr, 1, 1, 1)),
    WRONG(cuFuncSetBlockShape(s.world.mix, 0, 1, 1)),
    WRONG(cuFuncSetBlockShape(s.world.mix, -1, 1, 1)),
    WRONG(cuFuncSetBlockShape(s.world.mix, 2048, 1, 1)),
    WRONG(cuFuncSetBlockShape(s.world.mix, 64, 32, 1)),
    WRONG(cuFuncSetSharedSize(nullptr, 16)),
    WRONG(cuFuncSetSharedSize(s.world.mix, 1 << 24)),
    WRONG(cuParamSetSize(nullptr, 16)),
    WRONG(cuParamSetSize(s.world.mix, 1 << 20)),
    WRONG(cuParamSeti(s.world.mix, 1 << 20, 1)),
    WRONG(cuParamSetv(s.world.mix, 0, nullptr, 4)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, s.world.mix, 32, 0)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor(out<int>(), nullptr, 32, 0)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor(out<int>(), s.world.mix, 0, 0)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor(out<int>(), s.world.mix, -1, 0)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor(out<int>(), s.world.mix, 2048, 0)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessor(out<int>(), s.world.mix, 32, kHuge)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out<int>(), s.world.mix, 32, 0, 99)),
    WRONG(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(nullptr, nullptr, 0, 0, 99)),
    WRONG(cuOccupancyMaxPotentialBlockSize(nullptr, out<int>(), s.world.mix, nullptr, 0, 0)),
    WRONG(cuOccupancyMaxPotentialBlockSize(out<int>(), nullptr, s.world.mix, nullptr, 0, 0)),
    WRONG(cuOccupancyMaxPotentialBlockSize(out<int>(), out<int>(), nullptr, nullptr, 0, 0)),
    WRONG(cuOccupancyMaxPotentialBlockSize(out<int>(), out<int>(), s.world.mix, nullptr, 0, -1)),
    WRONG(cuOccupancyMaxPotentialBlockSize(out<int>(), out<int>(), s.world.mix, nullptr, kHuge, 0)),
    WRONG(cuOccupancyMaxPotentialBlockSizeWithFlags(out<int>(), out<int>(), s.world.mix, nullptr, 0,
                                                    0, 99)),
    WRONG(cuOccupancyAvailableDynamicSMemPerBlock(out<size_t>(), nullptr, 1, 32)),
    WRONG(cuOccupancyAvailableDynamicSMemPerBlock(out<size_t>(), s.world.mix, 0, 32)),
    WRONG(cuOccupancyAvailableDynamicSMemPerBlock(out<size_t>(), s.world.mix, 1, 0)),
    WRONG(cuOccupancyAvailableDynamicSMemPerBlock(out<size_t>(), s.world.mix, 9999, 32)),
    WRONG(cuOccupancyAvailableDynamicSMemPerBlock(out<size_t>(), s.world.mix, 1, 2048)),
    WRONG(cuOccupancyMaxActiveClusters(nullptr, s.world.mix, of(s, {8}, {32}))),
    WRONG(cuOccupancyMaxActiveClusters(out<int>(), nullptr, of(s, {8}, {32}))),
    WRONG(cuOccupancyMaxActiveClusters(out<int>(), s.world.mix, nullptr)),
    WRONG(cuOccupancyMaxActiveClusters(out<int>(), s.world.mix, of(s, {8}, {32}))),
    WRONG(cuOccupancyMaxActiveClusters(out<int>(), s.world.mix,
                                       of(s, {8}, {2048}, list({cluster(2)}), 1))),
    WRONG(cuOccupancyMaxActiveClusters(out<int>(), s.world.mix,
                                       of(s, {8}, {32}, list({cluster(64)}), 1))),
    WRONG(cuOccupancyMaxPotentialClusterSize(nullptr, s.world.mix, of(s, {8}, {32}))),
    WRONG(cuOccupancyMaxPotentialClusterSize(out<int>(), nullptr, of(s, {8}, {32}))),
    WRONG(cuOccupancyMaxPotentialClusterSize(out<int>(), s.world.mix, nullptr)),
    WRONG(cuOccupancyMaxPotentialClusterSize(out<int>(), s.world.mix, of(s, {8}, {2048}))),
};

const WrongCalls kLaunchCalls = {
    WRONG(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel(nullptr, 0, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(start(s, {0, 1, 1}, {1, 1, 1})),
    WRONG(start(s, {1, 0, 1}, {1, 1, 1})),
    WRONG(start(s, {1, 1, 0}, {1, 1, 1})),
    WRONG(start(s, {1, 1, 1}, {0, 1, 1})),
    WRONG(start(s, {1, 1, 1}, {1, 0, 1})),
    WRONG(start(s, {1, 1, 1}, {1, 1, 0})),
    WRONG(start(s, {1u << 31, 1, 1}, {1, 1, 1})),
    WRONG(start(s, {1, 65536, 1}, {1, 1, 1})),
    WRONG(start(s, {1, 1, 65536}, {1, 1, 1})),
    WRONG(start(s, {1, 1, 1}, {1025, 1, 1})),
    WRONG(start(s, {1, 1, 1}, {1, 1025, 1})),
    WRONG(start(s, {1, 1, 1}, {1, 1, 65})),
    WRONG(start(s, {1, 1, 1}, {32, 32, 2})),
    WRONG(start(s, {0, 1, 1}, {2048, 1, 1})),
    WRONG(start(s, {1, 1, 1}, {1, 1, 1}, 1 << 20)),
    WRONG(start(s, {1, 1, 1}, {1, 1, 1}, 49153)),
    WRONG(start(s, {1, 1, 1}, {2048, 1, 1}, 1 << 20)),
    WRONG(start(s, {0, 1, 1}, {1, 1, 1}, 1 << 20)),
    WRONG(cuLaunchKernel(s.world.mix, 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel(s.world.mix, 0, 1, 1, 1, 1, 1, 0, s.stream, nullptr, nullptr)),
    WRONG(cuLaunchKernel(s.world.empty, 1, 1, 1, 1, 1, 1, 0, s.world.foreign_stream, nullptr,
                         nullptr)),
    WRONG(cuLaunchKernel(s.world.empty, 0, 1, 1, 1, 1, 1, 0, s.world.foreign_stream, nullptr,
                         nullptr)),
    WRONG(start_with_buffer(s, 0)),
    WRONG(start_with_buffer(s, 12)),
    WRONG(start_with_buffer(s, 64)),
    WRONG(start_with_both(s)),
    WRONG(cuLaunchCooperativeKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, s.stream, nullptr)),
    WRONG(start_cooperative(s, {0}, {1})),
    WRONG(start_cooperative(s, {1}, {0})),
    WRONG(start_cooperative(s, {1}, {2048})),
    WRONG(start_cooperative(s, {1 << 20}, {1024})),
    WRONG(start_cooperative(s, {1 << 20}, {2048})),
    WRONG(cuLaunchKernelEx(nullptr, s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {1}, {1}), nullptr, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {0}, {1}), s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {1}, {1}, nullptr, 1), s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {1}, {1}, list({attribute(bad<CUlaunchAttributeID>, 0)}), 1),
                           s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {0}, {1}, list({attribute(bad<CUlaunchAttributeID>, 0)}), 1),
                           s.world.empty, nullptr, nullptr)),
    WRONG(
        cuLaunchKernelEx(of(s, {4}, {1}, list({cluster(0)}), 1), s.world.empty, nullptr, nullptr)),
    WRONG(
        cuLaunchKernelEx(of(s, {4}, {1}, list({cluster(3)}), 1), s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {32}, {1}, list({cluster(16)}), 1), s.world.empty, nullptr,
                           nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {32}, {1}, list({cluster(32)}), 1), s.world.empty, nullptr,
                           nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {4, 4}, {1}, list({cluster(2, 3)}), 1), s.world.empty, nullptr,
                           nullptr)),
    WRONG(cuLaunchKernelEx(of(s, {4}, {2048}, list({cluster(3)}), 1), s.world.empty, nullptr,
                           nullptr)),
    WRONG(
        cuLaunchKernelEx(of(s, {1}, {1}, list({attribute(CU_LAUNCH_ATTRIBUTE_PRIORITY, -100)}), 1),
                         s.world.empty, nullptr, nullptr)),
    WRONG(
        cuLaunchKernelEx(of(s, {1}, {1}, list({attribute(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 7)}), 1),
                         s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(
        of(s, {1}, {1}, list({attribute(CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, 1)}), 1),
        s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(
        of(s, {1}, {1}, list({attribute(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, 9)}), 1),
        s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(
        of(s, {1}, {1},
           list({attribute(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 99)}), 1),
        s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunchKernelEx(
        of(s, {1}, {1},
           list({attribute(CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101)}), 1),
        s.world.empty, nullptr, nullptr)),
    WRONG(cuLaunch(nullptr)),
    WRONG(cuLaunchGrid(nullptr, 1, 1)),
    WRONG(cuLaunchGrid(s.world.empty, 0, 1)),
    WRONG(cuLaunchGrid(s.world.empty, -1, 1)),
    WRONG(cuLaunchGridAsync(s.world.empty, 1, 1 << 20, s.stream)),
};

const WrongCalls kLinkCalls = {
    WRONG(cuLinkCreate_v2(0, nullptr, nullptr, nullptr)),
    WRONG(cuLinkCreate_v2(1, nullptr, nullptr, out<CUlinkState>())),
    WRONG(
        cuLinkCreate_v2(1, list({bad<CUjit_option>}), list<void*>({nullptr}), out<CUlinkState>())),
    WRONG(cuLinkDestroy(nullptr)),
    WRONG(cuLinkComplete(nullptr, out<void*>(), out<size_t>())),
    WRONG(cuLinkAddData_v2(nullptr, CU_JIT_INPUT_PTX, text(kernels_ptx()), 64, "x", 0, nullptr,
                           nullptr)),
    WRONG(cuLinkAddFile_v2(nullptr, CU_JIT_INPUT_PTX, "/nonexistent", 0, nullptr, nullptr)),
    WRONG(cuLinkAddData_v2(linker(), bad<CUjitInputType>, text(kGarbage), sizeof kGarbage, "x", 0,
                           nullptr, nullptr)),
    WRONG(cuLinkAddData_v2(linker(), CU_JIT_INPUT_PTX, nullptr, 64, "x", 0, nullptr, nullptr)),
    WRONG(
        cuLinkAddData_v2(linker(), CU_JIT_INPUT_PTX, text(kGarbage), 0, "x", 0, nullptr, nullptr)),
    WRONG(cuLinkAddData_v2(linker(), CU_JIT_INPUT_PTX, text(kGarbage), sizeof kGarbage, "x", 0,
                           nullptr, nullptr)),
    WRONG(cuLinkAddData_v2(linker(), CU_JIT_INPUT_PTX, text(kernels_ptx()),
                           strlen(kernels_ptx()) + 1, nullptr, 0, nullptr, nullptr)),
    WRONG(cuLinkAddData_v2(linker(), CU_JIT_INPUT_PTX, text(kernels_ptx()),
                           strlen(kernels_ptx()) + 1, "x", 1, nullptr, nullptr)),
    WRONG(cuLinkAddData_v2(linker(), CU_JIT_INPUT_CUBIN, text(kGarbage), sizeof kGarbage, "x", 0,
                           nullptr, nullptr)),
    WRONG(cuLinkAddFile_v2(linker(), CU_JIT_INPUT_PTX, nullptr, 0, nullptr, nullptr)),
    WRONG(cuLinkAddFile_v2(linker(), CU_JIT_INPUT_PTX, "/nonexistent", 0, nullptr, nullptr)),
    WRONG(cuLinkAddFile_v2(linker(), bad<CUjitInputType>, "/nonexistent", 0, nullptr, nullptr)),
    WRONG(cuLinkComplete(linker(), nullptr, out<size_t>())),
    WRONG(cuLinkComplete(linker(), out<void*>(), nullptr)),
    WRONG(cuLinkComplete(linker(), out<void*>(), out<size_t>())),
};

}  // namespace e2e
