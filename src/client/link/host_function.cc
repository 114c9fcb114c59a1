// SPDX-License-Identifier: Apache-2.0
// See host_function.h.
#include "client/link/host_function.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "api/client_hooks.h"

namespace openmps::client {

constinit std::atomic<uint32_t> g_attention{0};

namespace {

constinit thread_local bool t_inside = false;

// Calls that the driver of an H200 executes in a host function although CUDA forbids them
// (cuLaunchKernelEx, but not cuLaunchKernel).
bool is_tolerated(DriverSymbol symbol) {
  using enum DriverSymbol;
  static constexpr DriverSymbol kTolerated[] = {cuCtxSynchronize,
                                                cuCtxSynchronize_v2,
                                                cuDriverGetVersion,
                                                cuEventDestroy,
                                                cuEventDestroy_v2,
                                                cuEventElapsedTime,
                                                cuEventElapsedTime_v2,
                                                cuEventQuery,
                                                cuEventRecord,
                                                cuEventRecordWithFlags,
                                                cuEventRecordWithFlags_ptsz,
                                                cuEventRecord_ptsz,
                                                cuEventSynchronize,
                                                cuGetErrorName,
                                                cuGetErrorString,
                                                cuGetExportTable,
                                                cuGetProcAddress,
                                                cuGetProcAddress_v2,
                                                cuGraphAddEmptyNode,
                                                cuGraphAddHostNode,
                                                cuGraphLaunch,
                                                cuGraphLaunch_ptsz,
                                                cuGraphUpload,
                                                cuGraphUpload_ptsz,
                                                cuInit,
                                                cuLaunchCooperativeKernel,
                                                cuLaunchCooperativeKernel_ptsz,
                                                cuLaunchHostFunc,
                                                cuLaunchHostFunc_ptsz,
                                                cuLaunchKernelEx,
                                                cuLaunchKernelEx_ptsz,
                                                cuMemsetD16Async,
                                                cuMemsetD16Async_ptsz,
                                                cuMemsetD2D16Async,
                                                cuMemsetD2D16Async_ptsz,
                                                cuMemsetD2D32Async,
                                                cuMemsetD2D32Async_ptsz,
                                                cuMemsetD2D8Async,
                                                cuMemsetD2D8Async_ptsz,
                                                cuMemsetD32Async,
                                                cuMemsetD32Async_ptsz,
                                                cuMemsetD8Async,
                                                cuMemsetD8Async_ptsz,
                                                cuStreamAddCallback,
                                                cuStreamAddCallback_ptsz,
                                                cuStreamBatchMemOp,
                                                cuStreamBatchMemOp_ptsz,
                                                cuStreamBatchMemOp_v2,
                                                cuStreamBatchMemOp_v2_ptsz,
                                                cuStreamBeginCapture,
                                                cuStreamBeginCapture_ptsz,
                                                cuStreamBeginCapture_v2,
                                                cuStreamBeginCapture_v2_ptsz,
                                                cuStreamDestroy,
                                                cuStreamDestroy_v2,
                                                cuStreamEndCapture,
                                                cuStreamEndCapture_ptsz,
                                                cuStreamGetAttribute,
                                                cuStreamGetAttribute_ptsz,
                                                cuStreamGetCaptureInfo,
                                                cuStreamGetCaptureInfo_ptsz,
                                                cuStreamGetCaptureInfo_v2,
                                                cuStreamGetCaptureInfo_v2_ptsz,
                                                cuStreamGetCaptureInfo_v3,
                                                cuStreamGetCaptureInfo_v3_ptsz,
                                                cuStreamGetCtx,
                                                cuStreamGetCtx_ptsz,
                                                cuStreamGetCtx_v2,
                                                cuStreamGetCtx_v2_ptsz,
                                                cuStreamGetDevice,
                                                cuStreamGetDevice_ptsz,
                                                cuStreamGetFlags,
                                                cuStreamGetFlags_ptsz,
                                                cuStreamGetGreenCtx,
                                                cuStreamGetId,
                                                cuStreamGetId_ptsz,
                                                cuStreamGetPriority,
                                                cuStreamGetPriority_ptsz,
                                                cuStreamIsCapturing,
                                                cuStreamIsCapturing_ptsz,
                                                cuStreamQuery,
                                                cuStreamQuery_ptsz,
                                                cuStreamSetAttribute,
                                                cuStreamSetAttribute_ptsz,
                                                cuStreamSynchronize,
                                                cuStreamSynchronize_ptsz,
                                                cuStreamWaitEvent,
                                                cuStreamWaitEvent_ptsz,
                                                cuStreamWaitValue32_v2,
                                                cuStreamWaitValue32_v2_ptsz,
                                                cuStreamWaitValue64_v2,
                                                cuStreamWaitValue64_v2_ptsz,
                                                cuStreamWriteValue32_v2,
                                                cuStreamWriteValue32_v2_ptsz,
                                                cuStreamWriteValue64_v2,
                                                cuStreamWriteValue64_v2_ptsz,
                                                cuThreadExchangeStreamCaptureMode,
                                                cuUserObjectCreate,
                                                cuUserObjectRelease,
                                                cuUserObjectRetain};
  return std::find(std::begin(kTolerated), std::end(kTolerated), symbol) != std::end(kTolerated);
}

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

CUresult check_host_function(DriverSymbol symbol) {
  if (!t_inside || is_tolerated(symbol)) [[likely]] {
    return CUDA_SUCCESS;
  }
  explain_failure("a host function must not call CUDA");
  call_failed(symbol, CUDA_ERROR_NOT_PERMITTED);
  return CUDA_ERROR_NOT_PERMITTED;
}

}  // namespace openmps::client
