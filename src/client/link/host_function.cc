// SPDX-License-Identifier: Apache-2.0
// See host_function.h.
#include "client/link/host_function.h"

#include <algorithm>
#include <atomic>

#include "api/client_hooks.h"

namespace openmps::client {

constinit std::atomic<uint32_t> g_attention{0};

namespace {

constinit thread_local bool t_inside = false;

// Calls that the driver of an H200 executes in a host function although CUDA forbids them
// (cuLaunchKernelEx, but not cuLaunchKernel).
constexpr std::string_view kTolerated[] = {"cuCtxSynchronize",
                                           "cuCtxSynchronize_v2",
                                           "cuDriverGetVersion",
                                           "cuEventDestroy",
                                           "cuEventDestroy_v2",
                                           "cuEventElapsedTime",
                                           "cuEventElapsedTime_v2",
                                           "cuEventQuery",
                                           "cuEventRecord",
                                           "cuEventRecordWithFlags",
                                           "cuEventSynchronize",
                                           "cuGetErrorName",
                                           "cuGetErrorString",
                                           "cuGetExportTable",
                                           "cuGetProcAddress",
                                           "cuGetProcAddress_v2",
                                           "cuGraphAddEmptyNode",
                                           "cuGraphAddHostNode",
                                           "cuGraphLaunch",
                                           "cuGraphUpload",
                                           "cuInit",
                                           "cuLaunchCooperativeKernel",
                                           "cuLaunchHostFunc",
                                           "cuLaunchKernelEx",
                                           "cuMemsetD16Async",
                                           "cuMemsetD2D16Async",
                                           "cuMemsetD2D32Async",
                                           "cuMemsetD2D8Async",
                                           "cuMemsetD32Async",
                                           "cuMemsetD8Async",
                                           "cuStreamAddCallback",
                                           "cuStreamBatchMemOp",
                                           "cuStreamBatchMemOp_v2",
                                           "cuStreamBeginCapture",
                                           "cuStreamBeginCapture_v2",
                                           "cuStreamDestroy",
                                           "cuStreamDestroy_v2",
                                           "cuStreamEndCapture",
                                           "cuStreamGetAttribute",
                                           "cuStreamGetCaptureInfo",
                                           "cuStreamGetCaptureInfo_v2",
                                           "cuStreamGetCaptureInfo_v3",
                                           "cuStreamGetCtx",
                                           "cuStreamGetCtx_v2",
                                           "cuStreamGetDevice",
                                           "cuStreamGetFlags",
                                           "cuStreamGetGreenCtx",
                                           "cuStreamGetId",
                                           "cuStreamGetPriority",
                                           "cuStreamIsCapturing",
                                           "cuStreamQuery",
                                           "cuStreamSetAttribute",
                                           "cuStreamSynchronize",
                                           "cuStreamWaitEvent",
                                           "cuStreamWaitValue32_v2",
                                           "cuStreamWaitValue64_v2",
                                           "cuStreamWriteValue32_v2",
                                           "cuStreamWriteValue64_v2",
                                           "cuThreadExchangeStreamCaptureMode",
                                           "cuUserObjectCreate",
                                           "cuUserObjectRelease",
                                           "cuUserObjectRetain"};

}  // namespace

// From the program's first host function on, all calls check whether they are made in one. Clearing
// the flag after each function would move its cache line between the calling threads (0.4 us of the
// 9 us that a host function takes).
HostFunctionScope::HostFunctionScope() {
  t_inside = true;
  if ((g_attention.load(std::memory_order_relaxed) & kHostFunctions) == 0) {
    g_attention.fetch_or(kHostFunctions, std::memory_order_relaxed);
  }
}

HostFunctionScope::~HostFunctionScope() { t_inside = false; }

bool in_host_function() { return t_inside; }

bool is_any_of(DriverSymbol symbol, std::span<const std::string_view> names) {
  constexpr std::string_view kPerThread = "_ptsz";
  std::string_view name = driver_symbol_name(symbol);
  if (name.ends_with(kPerThread)) name.remove_suffix(kPerThread.size());
  return std::find(names.begin(), names.end(), name) != names.end();
}

CUresult check_host_function(DriverSymbol symbol) {
  if (!t_inside || is_any_of(symbol, kTolerated)) [[likely]] {
    return CUDA_SUCCESS;
  }
  explain_failure("a host function must not call CUDA");
  call_failed(symbol, CUDA_ERROR_NOT_PERMITTED);
  return CUDA_ERROR_NOT_PERMITTED;
}

}  // namespace openmps::client
