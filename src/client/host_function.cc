// SPDX-License-Identifier: Apache-2.0
// Calls inside of a program's functions. See host_function.h.
#include "client/host_function.h"

#include <atomic>

#include "api/client_hooks.h"

namespace openmps::client {
namespace {

constinit thread_local bool t_inside = false;
constinit std::atomic<uint32_t> g_running{0};  // scopes; one in general, for there is one thread

// What an H200's driver does not refuse (cuLaunchKernel it does, cuLaunchKernelEx it does not).
bool is_let_through(DriverSymbol symbol) {
  switch (symbol) {
    case DriverSymbol::cuCtxSynchronize:
    case DriverSymbol::cuCtxSynchronize_v2:
    case DriverSymbol::cuDriverGetVersion:
    case DriverSymbol::cuEventDestroy:
    case DriverSymbol::cuEventDestroy_v2:
    case DriverSymbol::cuEventElapsedTime:
    case DriverSymbol::cuEventElapsedTime_v2:
    case DriverSymbol::cuEventQuery:
    case DriverSymbol::cuEventRecord:
    case DriverSymbol::cuEventRecordWithFlags:
    case DriverSymbol::cuEventRecordWithFlags_ptsz:
    case DriverSymbol::cuEventRecord_ptsz:
    case DriverSymbol::cuEventSynchronize:
    case DriverSymbol::cuGetErrorName:
    case DriverSymbol::cuGetErrorString:
    case DriverSymbol::cuGetExportTable:
    case DriverSymbol::cuGetProcAddress:
    case DriverSymbol::cuGetProcAddress_v2:
    case DriverSymbol::cuGraphAddEmptyNode:
    case DriverSymbol::cuGraphAddHostNode:
    case DriverSymbol::cuGraphLaunch:
    case DriverSymbol::cuGraphLaunch_ptsz:
    case DriverSymbol::cuGraphUpload:
    case DriverSymbol::cuGraphUpload_ptsz:
    case DriverSymbol::cuInit:
    case DriverSymbol::cuLaunchCooperativeKernel:
    case DriverSymbol::cuLaunchCooperativeKernel_ptsz:
    case DriverSymbol::cuLaunchHostFunc:
    case DriverSymbol::cuLaunchHostFunc_ptsz:
    case DriverSymbol::cuLaunchKernelEx:
    case DriverSymbol::cuLaunchKernelEx_ptsz:
    case DriverSymbol::cuMemsetD16Async:
    case DriverSymbol::cuMemsetD16Async_ptsz:
    case DriverSymbol::cuMemsetD2D16Async:
    case DriverSymbol::cuMemsetD2D16Async_ptsz:
    case DriverSymbol::cuMemsetD2D32Async:
    case DriverSymbol::cuMemsetD2D32Async_ptsz:
    case DriverSymbol::cuMemsetD2D8Async:
    case DriverSymbol::cuMemsetD2D8Async_ptsz:
    case DriverSymbol::cuMemsetD32Async:
    case DriverSymbol::cuMemsetD32Async_ptsz:
    case DriverSymbol::cuMemsetD8Async:
    case DriverSymbol::cuMemsetD8Async_ptsz:
    case DriverSymbol::cuStreamAddCallback:
    case DriverSymbol::cuStreamAddCallback_ptsz:
    case DriverSymbol::cuStreamBatchMemOp:
    case DriverSymbol::cuStreamBatchMemOp_ptsz:
    case DriverSymbol::cuStreamBatchMemOp_v2:
    case DriverSymbol::cuStreamBatchMemOp_v2_ptsz:
    case DriverSymbol::cuStreamBeginCapture:
    case DriverSymbol::cuStreamBeginCapture_ptsz:
    case DriverSymbol::cuStreamBeginCapture_v2:
    case DriverSymbol::cuStreamBeginCapture_v2_ptsz:
    case DriverSymbol::cuStreamDestroy:
    case DriverSymbol::cuStreamDestroy_v2:
    case DriverSymbol::cuStreamEndCapture:
    case DriverSymbol::cuStreamEndCapture_ptsz:
    case DriverSymbol::cuStreamGetAttribute:
    case DriverSymbol::cuStreamGetAttribute_ptsz:
    case DriverSymbol::cuStreamGetCaptureInfo:
    case DriverSymbol::cuStreamGetCaptureInfo_ptsz:
    case DriverSymbol::cuStreamGetCaptureInfo_v2:
    case DriverSymbol::cuStreamGetCaptureInfo_v2_ptsz:
    case DriverSymbol::cuStreamGetCaptureInfo_v3:
    case DriverSymbol::cuStreamGetCaptureInfo_v3_ptsz:
    case DriverSymbol::cuStreamGetCtx:
    case DriverSymbol::cuStreamGetCtx_ptsz:
    case DriverSymbol::cuStreamGetCtx_v2:
    case DriverSymbol::cuStreamGetCtx_v2_ptsz:
    case DriverSymbol::cuStreamGetDevice:
    case DriverSymbol::cuStreamGetDevice_ptsz:
    case DriverSymbol::cuStreamGetFlags:
    case DriverSymbol::cuStreamGetFlags_ptsz:
    case DriverSymbol::cuStreamGetGreenCtx:
    case DriverSymbol::cuStreamGetId:
    case DriverSymbol::cuStreamGetId_ptsz:
    case DriverSymbol::cuStreamGetPriority:
    case DriverSymbol::cuStreamGetPriority_ptsz:
    case DriverSymbol::cuStreamIsCapturing:
    case DriverSymbol::cuStreamIsCapturing_ptsz:
    case DriverSymbol::cuStreamQuery:
    case DriverSymbol::cuStreamQuery_ptsz:
    case DriverSymbol::cuStreamSetAttribute:
    case DriverSymbol::cuStreamSetAttribute_ptsz:
    case DriverSymbol::cuStreamSynchronize:
    case DriverSymbol::cuStreamSynchronize_ptsz:
    case DriverSymbol::cuStreamWaitEvent:
    case DriverSymbol::cuStreamWaitEvent_ptsz:
    case DriverSymbol::cuStreamWaitValue32_v2:
    case DriverSymbol::cuStreamWaitValue32_v2_ptsz:
    case DriverSymbol::cuStreamWaitValue64_v2:
    case DriverSymbol::cuStreamWaitValue64_v2_ptsz:
    case DriverSymbol::cuStreamWriteValue32_v2:
    case DriverSymbol::cuStreamWriteValue32_v2_ptsz:
    case DriverSymbol::cuStreamWriteValue64_v2:
    case DriverSymbol::cuStreamWriteValue64_v2_ptsz:
    case DriverSymbol::cuThreadExchangeStreamCaptureMode:
    case DriverSymbol::cuUserObjectCreate:
    case DriverSymbol::cuUserObjectRelease:
    case DriverSymbol::cuUserObjectRetain: return true;
    default: return false;
  }
}

}  // namespace

HostFunctionScope::HostFunctionScope() {
  t_inside = true;
  if (g_running.fetch_add(1, std::memory_order_relaxed) == 0) {
    g_attention.fetch_or(kHostFunctionRuns, std::memory_order_relaxed);
  }
}

HostFunctionScope::~HostFunctionScope() {
  t_inside = false;
  if (g_running.fetch_sub(1, std::memory_order_relaxed) == 1) {
    g_attention.fetch_and(~static_cast<uint32_t>(kHostFunctionRuns), std::memory_order_relaxed);
  }
}

CUresult check_host_function(DriverSymbol symbol) {
  if (!t_inside || is_let_through(symbol)) [[likely]] {
    return CUDA_SUCCESS;
  }
  explain_failure("a host function must not call CUDA");
  call_failed(symbol, CUDA_ERROR_NOT_PERMITTED);
  return CUDA_ERROR_NOT_PERMITTED;
}

}  // namespace openmps::client
