// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Weak definitions of every symbol, so that softgpu's library exports the whole
// driver API: a strong definition in softgpu's own objects takes the place of one.
// Variants and aliases lead to their base. Any thread.

#include <cstdio>

#include "api/default_stream.h"
#include "api/driver_table.h"
#include "api/prototypes.h"
#include "api/softgpu_table.h"
#include "base/environment.h"

namespace {

// One byte per symbol: whether its name was printed.
bool g_reported[openmps::kDriverSymbolCount];

CUresult not_supported(openmps::DriverSymbol symbol, CUresult result) {
  bool* reported = &g_reported[static_cast<size_t>(symbol)];
  if (!__atomic_exchange_n(reported, true, __ATOMIC_RELAXED) &&
      openmps::environment_variable("SOFTGPU_DEBUG") != nullptr)
    fprintf(stderr, "softgpu: %s is not implemented\n",
            openmps::driver_symbol_name(symbol));
  return result;
}

}  // namespace

#pragma GCC diagnostic ignored "-Wunused-parameter"

__attribute__((weak)) CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return not_supported(openmps::DriverSymbol::cuEventRecord,
                       CUDA_ERROR_NOT_SUPPORTED);
}

__attribute__((weak)) CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  return ::cuEventRecord(hEvent, hStream ? hStream : CU_STREAM_PER_THREAD);
}

__attribute__((weak)) CUresult cuGraphAddThings(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text, int bytes,
    int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag) {
  return not_supported(openmps::DriverSymbol::cuGraphAddThings,
                       CUDA_ERROR_NOT_SUPPORTED);
}

__attribute__((weak)) CUresult cuInit(unsigned int Flags) {
  return not_supported(openmps::DriverSymbol::cuInit,
                       CUDA_ERROR_NOT_SUPPORTED);
}

__attribute__((weak)) CUresult cuLater() {
  return not_supported(openmps::DriverSymbol::cuLater,
                       CUDA_ERROR_NOT_SUPPORTED);
}

__attribute__((weak)) CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra) {
  return not_supported(openmps::DriverSymbol::cuLaunchKernelEx,
                       CUDA_ERROR_NOT_SUPPORTED);
}

__attribute__((weak)) CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchConfig per_thread_config = *config;
  if (per_thread_config.hStream == nullptr)
    per_thread_config.hStream = CU_STREAM_PER_THREAD;
  return ::cuLaunchKernelEx(&per_thread_config, f, kernelParams, extra);
}

__attribute__((weak)) CUresult cuMemsetD8(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return ::cuMemsetD8_v2(dstDevice, uc, N);
}

__attribute__((weak)) CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return not_supported(openmps::DriverSymbol::cuMemsetD8_v2,
                       CUDA_ERROR_NOT_SUPPORTED);
}

__attribute__((weak)) CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  openmps::DefaultStreamScope per_thread;
  return ::cuMemsetD8_v2(dstDevice, uc, N);
}

__attribute__((weak)) CUresult cuNever(int x) {
  return not_supported(openmps::DriverSymbol::cuNever,
                       CUDA_ERROR_NOT_FOUND);
}

namespace openmps {

// Addresses only: filled by the loader, no code runs.
const DriverTable kSoftgpuTable = {
    ::cuEventRecord,
    ::cuEventRecord_ptsz,
    ::cuGraphAddThings,
    ::cuInit,
    ::cuLater,
    ::cuLaunchKernelEx,
    ::cuLaunchKernelEx_ptsz,
    ::cuMemsetD8,
    ::cuMemsetD8_v2,
    ::cuMemsetD8_v2_ptds,
    ::cuNever,
};

}  // namespace openmps
