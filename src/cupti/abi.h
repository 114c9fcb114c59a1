// SPDX-License-Identifier: Apache-2.0
// The part of CUPTI's interface that this project has: numbers, layouts of records and types of
// functions as NVIDIA publishes them (CUDA 13.0's headers and "CUPTI API Reference";
// docs/interop.md names the sources). Our libcupti writes these records; openmps-worker reads those
// of NVIDIA's.
//
// Records have a number at the end of their name, and a new one where NVIDIA added members. Those
// here are of CUDA 13.0. From CUDA 12.0 on members were only added behind the others, or took the
// place of padding, so one layout serves all: a program that was compiled for an older one reads
// its part of it, and who reads records of a libcupti.so.12 keeps away from members marked "13.0"
// or "12.8". Records are found one after another by cuptiActivityGetNextRecord(), which knows how
// long each is. cupti_abi_check (tests/api) compares all of this with a toolkit's headers. Valid
// inside a namespace once <cstddef> and <cstdint> are included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/abi.h"

extern "C" {

enum CUptiResult : uint32_t {
  CUPTI_SUCCESS = 0,
  CUPTI_ERROR_INVALID_PARAMETER = 1,
  CUPTI_ERROR_INVALID_DEVICE = 2,
  CUPTI_ERROR_INVALID_CONTEXT = 3,
  CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID = 4,
  CUPTI_ERROR_INVALID_EVENT_ID = 5,
  CUPTI_ERROR_INVALID_EVENT_NAME = 6,
  CUPTI_ERROR_INVALID_OPERATION = 7,
  CUPTI_ERROR_OUT_OF_MEMORY = 8,
  CUPTI_ERROR_HARDWARE = 9,
  CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT = 10,
  CUPTI_ERROR_API_NOT_IMPLEMENTED = 11,
  CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
  CUPTI_ERROR_NOT_READY = 13,
  CUPTI_ERROR_NOT_COMPATIBLE = 14,
  CUPTI_ERROR_NOT_INITIALIZED = 15,
  CUPTI_ERROR_INVALID_METRIC_ID = 16,
  CUPTI_ERROR_INVALID_METRIC_NAME = 17,
  CUPTI_ERROR_QUEUE_EMPTY = 18,
  CUPTI_ERROR_INVALID_HANDLE = 19,
  CUPTI_ERROR_INVALID_STREAM = 20,
  CUPTI_ERROR_INVALID_KIND = 21,
  CUPTI_ERROR_INVALID_EVENT_VALUE = 22,
  CUPTI_ERROR_DISABLED = 23,
  CUPTI_ERROR_INVALID_MODULE = 24,
  CUPTI_ERROR_INVALID_METRIC_VALUE = 25,
  CUPTI_ERROR_HARDWARE_BUSY = 26,
  CUPTI_ERROR_NOT_SUPPORTED = 27,
  CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED = 28,
  CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE = 29,
  CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES = 30,
  CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS = 31,
  CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED = 32,
  CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED = 33,
  CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE = 34,
  CUPTI_ERROR_INSUFFICIENT_PRIVILEGES = 35,
  CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED = 36,
  CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE = 37,
  CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED = 38,
  CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
  CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES = 40,
  CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED = 41,
  CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED = 42,
  CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED = 43,
  CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED = 44,
  CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED = 45,
  CUPTI_ERROR_INVALID_CHIP_NAME = 46,
  CUPTI_ERROR_UNKNOWN = 999,
  CUPTI_ERROR_FORCE_INT = 0x7fffffff,
};

enum CUpti_ActivityKind : uint32_t {
  CUPTI_ACTIVITY_KIND_INVALID = 0,
  CUPTI_ACTIVITY_KIND_MEMCPY = 1,
  CUPTI_ACTIVITY_KIND_MEMSET = 2,
  CUPTI_ACTIVITY_KIND_KERNEL = 3,
  CUPTI_ACTIVITY_KIND_DRIVER = 4,
  CUPTI_ACTIVITY_KIND_RUNTIME = 5,
  CUPTI_ACTIVITY_KIND_EVENT = 6,
  CUPTI_ACTIVITY_KIND_METRIC = 7,
  CUPTI_ACTIVITY_KIND_DEVICE = 8,
  CUPTI_ACTIVITY_KIND_CONTEXT = 9,
  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
  CUPTI_ACTIVITY_KIND_NAME = 11,
  CUPTI_ACTIVITY_KIND_MARKER = 12,
  CUPTI_ACTIVITY_KIND_MARKER_DATA = 13,
  CUPTI_ACTIVITY_KIND_SOURCE_LOCATOR = 14,
  CUPTI_ACTIVITY_KIND_GLOBAL_ACCESS = 15,
  CUPTI_ACTIVITY_KIND_BRANCH = 16,
  CUPTI_ACTIVITY_KIND_OVERHEAD = 17,
  CUPTI_ACTIVITY_KIND_CDP_KERNEL = 18,
  CUPTI_ACTIVITY_KIND_PREEMPTION = 19,
  CUPTI_ACTIVITY_KIND_ENVIRONMENT = 20,
  CUPTI_ACTIVITY_KIND_EVENT_INSTANCE = 21,
  CUPTI_ACTIVITY_KIND_MEMCPY2 = 22,
  CUPTI_ACTIVITY_KIND_METRIC_INSTANCE = 23,
  CUPTI_ACTIVITY_KIND_INSTRUCTION_EXECUTION = 24,
  CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER = 25,
  CUPTI_ACTIVITY_KIND_FUNCTION = 26,
  CUPTI_ACTIVITY_KIND_MODULE = 27,
  CUPTI_ACTIVITY_KIND_DEVICE_ATTRIBUTE = 28,
  CUPTI_ACTIVITY_KIND_SHARED_ACCESS = 29,
  CUPTI_ACTIVITY_KIND_PC_SAMPLING = 30,
  CUPTI_ACTIVITY_KIND_PC_SAMPLING_RECORD_INFO = 31,
  CUPTI_ACTIVITY_KIND_INSTRUCTION_CORRELATION = 32,
  CUPTI_ACTIVITY_KIND_OPENACC_DATA = 33,
  CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH = 34,
  CUPTI_ACTIVITY_KIND_OPENACC_OTHER = 35,
  CUPTI_ACTIVITY_KIND_CUDA_EVENT = 36,
  CUPTI_ACTIVITY_KIND_STREAM = 37,
  CUPTI_ACTIVITY_KIND_SYNCHRONIZATION = 38,
  CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION = 39,
  CUPTI_ACTIVITY_KIND_NVLINK = 40,
  CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT = 41,
  CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT_INSTANCE = 42,
  CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC = 43,
  CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC_INSTANCE = 44,
  CUPTI_ACTIVITY_KIND_MEMORY = 45,
  CUPTI_ACTIVITY_KIND_PCIE = 46,
  CUPTI_ACTIVITY_KIND_OPENMP = 47,
  CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API = 48,
  CUPTI_ACTIVITY_KIND_MEMORY2 = 49,
  CUPTI_ACTIVITY_KIND_MEMORY_POOL = 50,
  CUPTI_ACTIVITY_KIND_GRAPH_TRACE = 51,
  CUPTI_ACTIVITY_KIND_JIT = 52,
  CUPTI_ACTIVITY_KIND_DEVICE_GRAPH_TRACE = 53,
  CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS = 54,
  CUPTI_ACTIVITY_KIND_CONFIDENTIAL_COMPUTE_ROTATION = 55,
  CUPTI_ACTIVITY_KIND_COUNT = 56,
  CUPTI_ACTIVITY_KIND_FORCE_INT = 0x7fffffff,
};

enum CUpti_ActivityFlag : uint32_t {
  CUPTI_ACTIVITY_FLAG_NONE = 0,
  CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC = 1,
  CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC = 1,
  CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1,
  CUPTI_ACTIVITY_FLAG_FORCE_INT = 0x7fffffff,
};

enum CUpti_ActivityMemcpyKind : uint32_t {
  CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN = 0,
  CUPTI_ACTIVITY_MEMCPY_KIND_HTOD = 1,
  CUPTI_ACTIVITY_MEMCPY_KIND_DTOH = 2,
  CUPTI_ACTIVITY_MEMCPY_KIND_HTOA = 3,
  CUPTI_ACTIVITY_MEMCPY_KIND_ATOH = 4,
  CUPTI_ACTIVITY_MEMCPY_KIND_ATOA = 5,
  CUPTI_ACTIVITY_MEMCPY_KIND_ATOD = 6,
  CUPTI_ACTIVITY_MEMCPY_KIND_DTOA = 7,
  CUPTI_ACTIVITY_MEMCPY_KIND_DTOD = 8,
  CUPTI_ACTIVITY_MEMCPY_KIND_HTOH = 9,
  CUPTI_ACTIVITY_MEMCPY_KIND_PTOP = 10,
};

enum CUpti_ActivityMemoryKind : uint32_t {
  CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN = 0,
  CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE = 1,
  CUPTI_ACTIVITY_MEMORY_KIND_PINNED = 2,
  CUPTI_ACTIVITY_MEMORY_KIND_DEVICE = 3,
  CUPTI_ACTIVITY_MEMORY_KIND_ARRAY = 4,
  CUPTI_ACTIVITY_MEMORY_KIND_MANAGED = 5,
  CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC = 6,
  CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC = 7,
};

enum CUpti_ChannelType : uint32_t {
  CUPTI_CHANNEL_TYPE_INVALID = 0,
  CUPTI_CHANNEL_TYPE_COMPUTE = 1,
  CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY = 2,
  CUPTI_CHANNEL_TYPE_DECOMP = 3,
  CUPTI_CHANNEL_TYPE_FORCE_INT = 0x7fffffff,
};

enum CUpti_ExternalCorrelationKind : uint32_t {
  CUPTI_EXTERNAL_CORRELATION_KIND_INVALID = 0,
  CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN = 1,
  CUPTI_EXTERNAL_CORRELATION_KIND_OPENACC = 2,
  CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 = 3,
  CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1 = 4,
  CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 = 5,
  CUPTI_EXTERNAL_CORRELATION_KIND_SIZE = 6,
  CUPTI_EXTERNAL_CORRELATION_KIND_FORCE_INT = 0x7fffffff,
};

enum CUpti_ActivityAttribute : uint32_t {
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE = 0,                      // size_t
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_CDP = 1,                  // size_t
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT = 2,                // size_t
  CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_SIZE = 3,           // size_t
  CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_POOL_LIMIT = 4,          // size_t
  CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER = 5,              // uint8_t
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE = 6,        // size_t
  CUPTI_ACTIVITY_ATTR_PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE = 7,  // size_t
  CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED = 8,         // uint8_t
  CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER = 9,              // uint8_t
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE_DEVICE_GRAPHS = 10,       // size_t
  CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_FORCE_INT = 0x7fffffff,
};

enum CUpti_ActivityThreadIdType : uint32_t {
  CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT = 0,  // pthread_self()
  CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM = 1,   // gettid()
  CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE = 2,
  CUPTI_ACTIVITY_THREAD_ID_TYPE_FORCE_INT = 0x7fffffff,
};

enum CUpti_DeviceVirtualizationMode : uint32_t {
  CUPTI_DEVICE_VIRTUALIZATION_MODE_NONE = 0,
  CUPTI_DEVICE_VIRTUALIZATION_MODE_FORCE_INT = 0x7fffffff,
};

enum CUpti_CallbackDomain : uint32_t {
  CUPTI_CB_DOMAIN_INVALID = 0,
  CUPTI_CB_DOMAIN_DRIVER_API = 1,
  CUPTI_CB_DOMAIN_RUNTIME_API = 2,
  CUPTI_CB_DOMAIN_RESOURCE = 3,
  CUPTI_CB_DOMAIN_SYNCHRONIZE = 4,
  CUPTI_CB_DOMAIN_NVTX = 5,
  CUPTI_CB_DOMAIN_STATE = 6,
  CUPTI_CB_DOMAIN_SIZE = 7,
  CUPTI_CB_DOMAIN_FORCE_INT = 0x7fffffff,
};

typedef uint32_t CUpti_CallbackId;
typedef CUpti_CallbackDomain* CUpti_DomainTable;
typedef struct CUpti_Subscriber_st* CUpti_SubscriberHandle;

// ---- Records: each begins with its kind -------------------------------------------------------

struct CUpti_Activity {
  alignas(8) CUpti_ActivityKind kind;
};

// KERNEL and CONCURRENT_KERNEL. CUDA 12.0: Kernel9.
struct CUpti_ActivityKernel10 {
  CUpti_ActivityKind kind;
  uint8_t cacheConfig;  // CUfunc_cache: requested | executed << 4
  uint8_t sharedMemoryConfig;
  uint16_t registersPerThread;
  uint32_t partitionedGlobalCacheRequested;
  uint32_t partitionedGlobalCacheExecuted;
  uint64_t start;  // ns; 0 with an `end` of 0: not known
  uint64_t end;
  uint64_t completed;  // that of kernels which it launched, too; 0: not known
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  int32_t gridX;
  int32_t gridY;
  int32_t gridZ;
  int32_t blockX;
  int32_t blockY;
  int32_t blockZ;
  int32_t staticSharedMemory;
  int32_t dynamicSharedMemory;
  uint32_t localMemoryPerThread;
  uint32_t localMemoryTotal;
  uint32_t correlationId;
  int64_t gridId;
  const char* name;  // mangled
  void* reserved0;
  uint64_t queued;     // ns; 0: not known
  uint64_t submitted;  // ns; 0: not known
  uint8_t launchType;
  uint8_t isSharedMemoryCarveoutRequested;
  uint8_t sharedMemoryCarveoutRequested;
  uint8_t padding;
  uint32_t sharedMemoryExecuted;
  uint64_t graphNodeId;  // 0: no node of a graph
  uint32_t shmemLimitConfig;
  uint32_t graphId;
  void* pAccessPolicyWindow;
  uint32_t channelID;
  CUpti_ChannelType channelType;
  uint32_t clusterX;
  uint32_t clusterY;
  uint32_t clusterZ;
  uint32_t clusterSchedulingPolicy;
  uint64_t localMemoryTotal_v2;
  uint32_t maxPotentialClusterSize;
  uint32_t maxActiveClusters;
  uint8_t isDeviceLaunched;  // 13.0
  uint8_t padding3[7];
};

// MEMCPY. CUDA 12.0: Memcpy5.
struct CUpti_ActivityMemcpy6 {
  CUpti_ActivityKind kind;
  uint8_t copyKind;  // CUpti_ActivityMemcpyKind
  uint8_t srcKind;   // CUpti_ActivityMemoryKind
  uint8_t dstKind;
  uint8_t flags;  // CUpti_ActivityFlag
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  uint32_t correlationId;
  uint32_t runtimeCorrelationId;
  uint32_t pad;
  void* reserved0;
  uint64_t graphNodeId;
  uint32_t graphId;
  uint32_t channelID;
  CUpti_ChannelType channelType;
  uint8_t isDeviceLaunched;  // 12.8
  uint8_t pad2[3];
  uint64_t copyCount;  // 12.8
};

// MEMCPY2: between devices.
struct CUpti_ActivityMemcpyPtoP4 {
  CUpti_ActivityKind kind;
  uint8_t copyKind;
  uint8_t srcKind;
  uint8_t dstKind;
  uint8_t flags;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  uint32_t srcDeviceId;
  uint32_t srcContextId;
  uint32_t dstDeviceId;
  uint32_t dstContextId;
  uint32_t correlationId;
  void* reserved0;
  uint64_t graphNodeId;
  uint32_t graphId;
  uint32_t channelID;
  CUpti_ChannelType channelType;
};

// MEMSET.
struct CUpti_ActivityMemset4 {
  CUpti_ActivityKind kind;
  uint32_t value;
  uint64_t bytes;
  uint64_t start;
  uint64_t end;
  uint32_t deviceId;
  uint32_t contextId;
  uint32_t streamId;
  uint32_t correlationId;
  uint16_t flags;       // CUpti_ActivityFlag
  uint16_t memoryKind;  // CUpti_ActivityMemoryKind
  uint32_t pad;
  void* reserved0;
  uint64_t graphNodeId;
  uint32_t graphId;
  uint32_t channelID;
  CUpti_ChannelType channelType;
  uint8_t isDeviceLaunched;  // 12.8
  uint8_t pad2[3];
};

// DRIVER and RUNTIME.
struct CUpti_ActivityAPI {
  CUpti_ActivityKind kind;
  CUpti_CallbackId cbid;
  uint64_t start;
  uint64_t end;
  uint32_t processId;
  uint32_t threadId;
  uint32_t correlationId;
  uint32_t returnValue;
};

// EXTERNAL_CORRELATION.
struct CUpti_ActivityExternalCorrelation {
  CUpti_ActivityKind kind;
  CUpti_ExternalCorrelationKind externalKind;
  uint64_t externalId;
  uint32_t correlationId;
  uint32_t reserved;
};

// ---- Functions --------------------------------------------------------------------------------

typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t** buffer, size_t* size,
                                                 size_t* maxNumRecords);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(CUcontext context, uint32_t streamId,
                                                  uint8_t* buffer, size_t size, size_t validSize);
typedef uint64_t (*CUpti_TimestampCallbackFunc)(void);
typedef void (*CUpti_CallbackFunc)(void* userdata, CUpti_CallbackDomain domain,
                                   CUpti_CallbackId cbid, const void* cbdata);

// For who gets them by dlsym().
typedef CUptiResult (*cuptiActivityEnable_t)(CUpti_ActivityKind kind);
typedef CUptiResult (*cuptiActivityDisable_t)(CUpti_ActivityKind kind);
typedef CUptiResult (*cuptiActivityRegisterCallbacks_t)(
    CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed);
typedef CUptiResult (*cuptiActivityFlushAll_t)(uint32_t flag);
typedef CUptiResult (*cuptiActivityGetNextRecord_t)(uint8_t* buffer, size_t validBufferSizeBytes,
                                                    CUpti_Activity** record);
typedef CUptiResult (*cuptiActivityGetNumDroppedRecords_t)(CUcontext context, uint32_t streamId,
                                                           size_t* dropped);
typedef CUptiResult (*cuptiActivitySetAttribute_t)(CUpti_ActivityAttribute attribute,
                                                   size_t* valueSize, void* value);
typedef CUptiResult (*cuptiActivityPushExternalCorrelationId_t)(CUpti_ExternalCorrelationKind kind,
                                                                uint64_t id);
typedef CUptiResult (*cuptiActivityPopExternalCorrelationId_t)(CUpti_ExternalCorrelationKind kind,
                                                               uint64_t* lastId);
typedef CUptiResult (*cuptiActivityRegisterTimestampCallback_t)(CUpti_TimestampCallbackFunc now);
typedef CUptiResult (*cuptiGetTimestamp_t)(uint64_t* timestamp);
typedef CUptiResult (*cuptiGetResultString_t)(CUptiResult result, const char** string);
typedef CUptiResult (*cuptiGetVersion_t)(uint32_t* version);
typedef CUptiResult (*cuptiFinalize_t)(void);

}  // extern "C"

static_assert(sizeof(CUpti_ActivityKernel10) == 216 &&
                  offsetof(CUpti_ActivityKernel10, isDeviceLaunched) == 208 &&
                  offsetof(CUpti_ActivityKernel10, name) == 104 &&
                  sizeof(CUpti_ActivityMemcpy6) == 96 &&
                  offsetof(CUpti_ActivityMemcpy6, copyCount) == 88 &&
                  sizeof(CUpti_ActivityMemcpyPtoP4) == 96 && sizeof(CUpti_ActivityMemset4) == 88 &&
                  sizeof(CUpti_ActivityAPI) == 40 &&
                  sizeof(CUpti_ActivityExternalCorrelation) == 24,
              "as in NVIDIA's headers");
