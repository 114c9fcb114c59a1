// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// The exported entry points of the client library: each jumps through its member of
// g_entry, which first leads to the decision between OpenMPS and pass-through, and
// then to the implementation or straight to the driver below. Any thread.

#include <cxxabi.h>
#include <unistd.h>

#include <cstring>

#include "api/client_impl.h"
#include "api/default_stream.h"
#include "api/prototypes.h"
#include "base/environment.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace openmps::client {
namespace {

namespace first {
CUresult cuEventRecord(CUevent hEvent, CUstream hStream);
CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream);
CUresult cuGraphAddThings(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text, int bytes,
    int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag);
CUresult cuInit(unsigned int Flags);
CUresult cuLater();
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra);
CUresult cuMemsetD8(CUdeviceptr dstDevice, unsigned char uc, size_t N);
CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N);
CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N);
CUresult cuNever(int x);
}  // namespace first

// Written by install_*, read by every call. Members are loaded with acquire, so
// that a caller that sees a new entry sees what was set up before it.
constinit DriverTable g_entry = {
    first::cuEventRecord,
    first::cuEventRecord_ptsz,
    first::cuGraphAddThings,
    first::cuInit,
    first::cuLater,
    first::cuLaunchKernelEx,
    first::cuLaunchKernelEx_ptsz,
    first::cuMemsetD8,
    first::cuMemsetD8_v2,
    first::cuMemsetD8_v2_ptds,
    first::cuNever,
};

// The implementation of a symbol, and its result told to the hooks. What it throws ends here: the
// compiler's tables hold the way, so calls that throw nothing pay nothing. A thread that is
// cancelled inside a call unwinds through it.
template <DriverSymbol symbol, auto implementation>
struct Called;
template <DriverSymbol symbol, typename... Arguments, CUresult (*implementation)(Arguments...)>
struct Called<symbol, implementation> {
  static CUresult run(Arguments... arguments) {
    CUresult result = CUDA_SUCCESS;
    try {
      result = implementation(arguments...);
    } catch (abi::__forced_unwind&) {
      throw;
    } catch (...) {
      result = result_of_exception();
    }
    if (result != CUDA_SUCCESS) [[unlikely]] {
      call_failed(symbol, result);
    }
    return result;
  }
  static CUresult call(Arguments... arguments) {
    if (g_attention.load(std::memory_order_relaxed) == 0) [[likely]] {
      return run(arguments...);
    }
    CUresult result = before_call(symbol);
    if (result == CUDA_SUCCESS) result = run(arguments...);
    if (result == CUDA_SUCCESS) call_succeeded(symbol);
    return result;
  }
};

constexpr DriverTable kRemoteEntries = {
    Called<DriverSymbol::cuEventRecord, impl::cuEventRecord>::call,
    Called<DriverSymbol::cuEventRecord_ptsz, impl::cuEventRecord_ptsz>::call,
    Called<DriverSymbol::cuGraphAddThings, impl::cuGraphAddThings>::call,
    Called<DriverSymbol::cuInit, impl::cuInit>::call,
    Called<DriverSymbol::cuLater, impl::cuLater>::call,
    Called<DriverSymbol::cuLaunchKernelEx, impl::cuLaunchKernelEx>::call,
    Called<DriverSymbol::cuLaunchKernelEx_ptsz, impl::cuLaunchKernelEx_ptsz>::call,
    Called<DriverSymbol::cuMemsetD8, impl::cuMemsetD8>::call,
    Called<DriverSymbol::cuMemsetD8_v2, impl::cuMemsetD8_v2>::call,
    Called<DriverSymbol::cuMemsetD8_v2_ptds, impl::cuMemsetD8_v2_ptds>::call,
    Called<DriverSymbol::cuNever, impl::cuNever>::call,
};

// resolve_mode() for an entry: CUDA_SUCCESS, or what became of it. The next call tries again.
CUresult decided() {
  try {
    resolve_mode();
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return result_of_exception();
  }
  return CUDA_SUCCESS;
}

// One byte per symbol: whether its name was logged.
bool g_reported[kDriverSymbolCount];

// Logs the name of a missing function once, if OPENMPS_DEBUG asks. No stdio: a program may call
// this from anywhere.
CUresult stub_called(DriverSymbol symbol, CUresult result, const char* reason) {
  explain_failure(reason);
  bool* reported = &g_reported[static_cast<size_t>(symbol)];
  if (__atomic_exchange_n(reported, true, __ATOMIC_RELAXED)) return result;
  if (environment_variable("OPENMPS_DEBUG") == nullptr) return result;
  char line[512] = "openmps: not supported: ";
  const auto append = [&line](const char* text) {
    strncat(line, text, sizeof(line) - strlen(line) - 1);
  };
  append(driver_symbol_name(symbol));
  append(": ");
  append(reason);
  append("\n");
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, line, strlen(line));
  return result;
}

// Stands for what the driver below lacks. One function for all signatures: by the x86-64 calling
// convention a callee may ignore arguments.
CUresult missing_below() { return CUDA_ERROR_NOT_SUPPORTED; }

template <typename Entry>
inline Entry load(Entry* member) {
  return __atomic_load_n(member, __ATOMIC_ACQUIRE);
}

void** entry_slot(size_t symbol) { return reinterpret_cast<void**>(&g_entry) + symbol; }

namespace first {

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuEventRecord);
  if (entry == first::cuEventRecord) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(hEvent, hStream);
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuEventRecord_ptsz);
  if (entry == first::cuEventRecord_ptsz) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(hEvent, hStream);
}

CUresult cuGraphAddThings(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text, int bytes,
    int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuGraphAddThings);
  if (entry == first::cuGraphAddThings) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(node, graph, before, count, fill, label, text, bytes, state, pairs, place, dev,
      tag);
}

CUresult cuInit(unsigned int Flags) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuInit);
  if (entry == first::cuInit) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(Flags);
}

CUresult cuLater() {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuLater);
  if (entry == first::cuLater) return CUDA_ERROR_NOT_INITIALIZED;
  return entry();
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuLaunchKernelEx);
  if (entry == first::cuLaunchKernelEx) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(config, f, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuLaunchKernelEx_ptsz);
  if (entry == first::cuLaunchKernelEx_ptsz) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(config, f, kernelParams, extra);
}

CUresult cuMemsetD8(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuMemsetD8);
  if (entry == first::cuMemsetD8) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(dstDevice, uc, N);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuMemsetD8_v2);
  if (entry == first::cuMemsetD8_v2) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(dstDevice, uc, N);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuMemsetD8_v2_ptds);
  if (entry == first::cuMemsetD8_v2_ptds) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(dstDevice, uc, N);
}

CUresult cuNever(int x) {
  if (const CUresult failed = decided(); failed != CUDA_SUCCESS) return failed;
  const auto entry = load(&g_entry.cuNever);
  if (entry == first::cuNever) return CUDA_ERROR_NOT_INITIALIZED;
  return entry(x);
}

}  // namespace first
}  // namespace

void install_remote_entries() {
  const auto* source = reinterpret_cast<void* const*>(&kRemoteEntries);
  for (size_t i = 0; i < kDriverSymbolCount; ++i)
    __atomic_store_n(entry_slot(i), source[i], __ATOMIC_RELEASE);
}

void install_pass_through_entries(const DriverTable& driver) {
  const auto* source = reinterpret_cast<void* const*>(&driver);
  for (size_t i = 0; i < kDriverSymbolCount; ++i) {
    void* entry = source[i] != nullptr ? source[i] : reinterpret_cast<void*>(&missing_below);
    __atomic_store_n(entry_slot(i), entry, __ATOMIC_RELEASE);
  }
}

void* entry_target(uint16_t symbol) {
  if (symbol >= kDriverSymbolCount) return nullptr;
  return __atomic_load_n(entry_slot(symbol), __ATOMIC_ACQUIRE);
}

namespace impl {

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  return impl::cuEventRecord(hEvent, hStream ? hStream : CU_STREAM_PER_THREAD);
}

CUresult cuGraphAddThings(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text, int bytes,
    int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag) {
  return stub_called(DriverSymbol::cuGraphAddThings,
                     CUDA_ERROR_NOT_SUPPORTED,
                     "every direction that there is");
}

CUresult cuLater() {
  return stub_called(DriverSymbol::cuLater,
                     CUDA_ERROR_NOT_SUPPORTED,
                     "not written yet");
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchConfig per_thread_config = *config;
  if (per_thread_config.hStream == nullptr)
    per_thread_config.hStream = CU_STREAM_PER_THREAD;
  return impl::cuLaunchKernelEx(&per_thread_config, f, kernelParams, extra);
}

CUresult cuMemsetD8(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return impl::cuMemsetD8_v2(dstDevice, uc, N);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  DefaultStreamScope per_thread;
  return impl::cuMemsetD8_v2(dstDevice, uc, N);
}

CUresult cuNever(int x) {
  return stub_called(DriverSymbol::cuNever,
                     CUDA_ERROR_NOT_FOUND,
                     "cannot be");
}

}  // namespace impl
}  // namespace openmps::client

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return openmps::client::load(&openmps::client::g_entry.cuEventRecord)(hEvent, hStream);
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  return openmps::client::load(&openmps::client::g_entry.cuEventRecord_ptsz)(hEvent, hStream);
}

CUresult cuGraphAddThings(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
    size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text, int bytes,
    int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag) {
  return openmps::client::load(&openmps::client::g_entry.cuGraphAddThings)(node, graph, before,
      count, fill, label, text, bytes, state, pairs, place, dev, tag);
}

CUresult cuInit(unsigned int Flags) {
  return openmps::client::load(&openmps::client::g_entry.cuInit)(Flags);
}

CUresult cuLater() {
  return openmps::client::load(&openmps::client::g_entry.cuLater)();
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra) {
  return openmps::client::load(&openmps::client::g_entry.cuLaunchKernelEx)(config, f,
      kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
    void** extra) {
  return openmps::client::load(&openmps::client::g_entry.cuLaunchKernelEx_ptsz)(config, f,
      kernelParams, extra);
}

CUresult cuMemsetD8(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return openmps::client::load(&openmps::client::g_entry.cuMemsetD8)(dstDevice, uc, N);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return openmps::client::load(&openmps::client::g_entry.cuMemsetD8_v2)(dstDevice, uc, N);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return openmps::client::load(&openmps::client::g_entry.cuMemsetD8_v2_ptds)(dstDevice, uc, N);
}

CUresult cuNever(int x) {
  return openmps::client::load(&openmps::client::g_entry.cuNever)(x);
}

