// SPDX-License-Identifier: Apache-2.0
// CUPTI's functions that only say something: versions, errors, numbers of contexts and streams,
// what devices can do.
#include "cupti/call.h"
#include "cupti/driver.h"
#include "cupti/version.h"

namespace openmps::cupti {

CUptiResult& last_error() {
  thread_local CUptiResult error = CUPTI_SUCCESS;
  return error;
}

namespace {

// Null: there is no such error.
const char* name_of(CUptiResult error) {
  switch (error) {
#define NAMED(name) \
  case name: return #name;
    NAMED(CUPTI_SUCCESS)
    NAMED(CUPTI_ERROR_INVALID_PARAMETER)
    NAMED(CUPTI_ERROR_INVALID_DEVICE)
    NAMED(CUPTI_ERROR_INVALID_CONTEXT)
    NAMED(CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID)
    NAMED(CUPTI_ERROR_INVALID_EVENT_ID)
    NAMED(CUPTI_ERROR_INVALID_EVENT_NAME)
    NAMED(CUPTI_ERROR_INVALID_OPERATION)
    NAMED(CUPTI_ERROR_OUT_OF_MEMORY)
    NAMED(CUPTI_ERROR_HARDWARE)
    NAMED(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT)
    NAMED(CUPTI_ERROR_API_NOT_IMPLEMENTED)
    NAMED(CUPTI_ERROR_MAX_LIMIT_REACHED)
    NAMED(CUPTI_ERROR_NOT_READY)
    NAMED(CUPTI_ERROR_NOT_COMPATIBLE)
    NAMED(CUPTI_ERROR_NOT_INITIALIZED)
    NAMED(CUPTI_ERROR_INVALID_METRIC_ID)
    NAMED(CUPTI_ERROR_INVALID_METRIC_NAME)
    NAMED(CUPTI_ERROR_QUEUE_EMPTY)
    NAMED(CUPTI_ERROR_INVALID_HANDLE)
    NAMED(CUPTI_ERROR_INVALID_STREAM)
    NAMED(CUPTI_ERROR_INVALID_KIND)
    NAMED(CUPTI_ERROR_INVALID_EVENT_VALUE)
    NAMED(CUPTI_ERROR_DISABLED)
    NAMED(CUPTI_ERROR_INVALID_MODULE)
    NAMED(CUPTI_ERROR_INVALID_METRIC_VALUE)
    NAMED(CUPTI_ERROR_HARDWARE_BUSY)
    NAMED(CUPTI_ERROR_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE)
    NAMED(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES)
    NAMED(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS)
    NAMED(CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE)
    NAMED(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)
    NAMED(CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED)
    NAMED(CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE)
    NAMED(CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES)
    NAMED(CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED)
    NAMED(CUPTI_ERROR_INVALID_CHIP_NAME)
    NAMED(CUPTI_ERROR_UNKNOWN)
#undef NAMED
    case CUPTI_ERROR_FORCE_INT: break;
  }
  return nullptr;
}

// Null: the name says it all.
const char* sentence_of(CUptiResult error) {
  switch (error) {
    case CUPTI_SUCCESS: return "no error";
    case CUPTI_ERROR_NOT_INITIALIZED:
      return "this program does not run behind OpenMPS, whose libcupti this is";
    case CUPTI_ERROR_DISABLED: return "something else records this program's work already";
    case CUPTI_ERROR_NOT_SUPPORTED: return "OpenMPS's libcupti can't do this";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: return "there is a subscriber already";
    default: return name_of(error);
  }
}

// A stream's number, in the current context if the handle is a default stream's.
CUptiResult stream_id(CUstream stream, bool per_thread, uint32_t* id) {
  auto* const get_id = driver_function<CUresult(CUstream, unsigned long long*)>(
      per_thread ? "cuStreamGetId_ptsz" : "cuStreamGetId");
  if (get_id == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  unsigned long long found = 0;
  if (get_id(stream, &found) != CUDA_SUCCESS) return CUPTI_ERROR_INVALID_STREAM;
  return give(static_cast<uint32_t>(found), id);
}

// `context` may be null: the stream's own, or the current one.
CUptiResult stream_id_in(CUcontext context, CUstream stream, bool per_thread, uint32_t* id) {
  if (id == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (context == nullptr) return stream_id(stream, per_thread, id);
  auto* const push = driver_function<CUresult(CUcontext)>("cuCtxPushCurrent_v2");
  auto* const pop = driver_function<CUresult(CUcontext*)>("cuCtxPopCurrent_v2");
  auto* const get_context = driver_function<CUresult(CUstream, CUcontext*)>(
      per_thread ? "cuStreamGetCtx_ptsz" : "cuStreamGetCtx");
  if (push == nullptr || pop == nullptr || get_context == nullptr) {
    return CUPTI_ERROR_NOT_INITIALIZED;
  }
  if (push(context) != CUDA_SUCCESS) return CUPTI_ERROR_INVALID_CONTEXT;
  CUcontext owner = nullptr;
  CUptiResult result = CUPTI_ERROR_INVALID_STREAM;
  if (get_context(stream, &owner) == CUDA_SUCCESS && owner == context) {
    result = stream_id(stream, per_thread, id);
  }
  pop(&context);
  return result;
}

}  // namespace
}  // namespace openmps::cupti

using namespace openmps::cupti;  // NOLINT: what follows is the C interface of these functions

#pragma GCC visibility push(default)
extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  return call([&] { return give(kVersion, version); });
}

// Errors. These don't change the last one.

CUptiResult cuptiGetResultString(CUptiResult result, const char** string) {
  const char* const name = name_of(result);
  return name == nullptr ? CUPTI_ERROR_INVALID_PARAMETER : give(name, string);
}
CUptiResult cuptiGetErrorMessage(CUptiResult result, const char** string) {
  const char* const sentence = sentence_of(result);
  return sentence == nullptr ? CUPTI_ERROR_INVALID_PARAMETER : give(sentence, string);
}
CUptiResult cuptiGetLastError() {
  const CUptiResult error = last_error();
  last_error() = CUPTI_SUCCESS;
  return error;
}

// Numbers: those that records have.

CUptiResult cuptiGetContextId(CUcontext context, uint32_t* id) {
  return call([&] {
    if (id == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
    if (context == nullptr) return CUPTI_ERROR_INVALID_CONTEXT;
    auto* const get_id = driver_function<CUresult(CUcontext, unsigned long long*)>("cuCtxGetId");
    if (get_id == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
    unsigned long long found = 0;
    if (get_id(context, &found) != CUDA_SUCCESS) return CUPTI_ERROR_INVALID_CONTEXT;
    return give(static_cast<uint32_t>(found), id);
  });
}
CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* id) {
  return call([&] {
    if (id == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
    if (context == nullptr) return CUPTI_ERROR_INVALID_CONTEXT;
    auto* const get_device = driver_function<CUresult(CUdevice*, CUcontext)>("cuCtxGetDevice_v2");
    if (get_device == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
    CUdevice found = 0;
    if (get_device(&found, context) != CUDA_SUCCESS) return CUPTI_ERROR_INVALID_CONTEXT;
    return give(static_cast<uint32_t>(found), id);
  });
}
CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t* id) {
  return call([&] { return stream_id_in(context, stream, false, id); });
}
CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream,
                               uint32_t* id) {
  return call([&] { return stream_id_in(context, stream, perThreadStream != 0, id); });
}

// Devices.

CUptiResult cuptiComputeCapabilitySupported(int, int, int* support) {
  return call([&] { return give(1, support); });
}
CUptiResult cuptiDeviceSupported(CUdevice, int* support) {
  return call([&] { return give(1, support); });
}
CUptiResult cuptiDeviceVirtualizationMode(CUdevice, CUpti_DeviceVirtualizationMode* mode) {
  return call([&] { return give(CUPTI_DEVICE_VIRTUALIZATION_MODE_NONE, mode); });
}

}  // extern "C"
#pragma GCC visibility pop
