// SPDX-License-Identifier: Apache-2.0
// The part of NVML's interface that libnvidia-ml.so.1 of this project has: numbers and layouts as
// NVIDIA publishes them ("NVML API Reference Guide", release 580). docs/interop.md names the
// sources.
#pragma once

#include <cstdint>

extern "C" {

enum nvmlReturn_t : int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NO_PERMISSION = 4,
  NVML_ERROR_ALREADY_INITIALIZED = 5,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_INSUFFICIENT_POWER = 8,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_TIMEOUT = 10,
  NVML_ERROR_IRQ_ISSUE = 11,
  NVML_ERROR_LIBRARY_NOT_FOUND = 12,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
  NVML_ERROR_CORRUPTED_INFOROM = 14,
  NVML_ERROR_GPU_IS_LOST = 15,
  NVML_ERROR_RESET_REQUIRED = 16,
  NVML_ERROR_OPERATING_SYSTEM = 17,
  NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
  NVML_ERROR_IN_USE = 19,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_NO_DATA = 21,
  NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
  NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
  NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999,
};

typedef struct nvmlDevice_st* nvmlDevice_t;
typedef struct nvmlEventSet_st* nvmlEventSet_t;

struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct nvmlMemory_v2_t {
  unsigned version;  // sizeof | 2 << 24, set by the caller
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

// nvmlDeviceGetPciInfo and its _v2 know the members before `busId` only.
struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pciDeviceId;  // device << 16 | vendor
  unsigned pciSubSystemId;
  char busId[32];
};

struct nvmlUtilization_t {
  unsigned gpu;
  unsigned memory;
};

struct nvmlProcessUtilizationSample_t {
  unsigned pid;
  unsigned long long timeStamp;  // microseconds since 1970
  unsigned smUtil;               // percent, as the next three
  unsigned memUtil;
  unsigned encUtil;
  unsigned decUtil;
};

struct nvmlProcessInfo_v1_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
};

struct nvmlProcessInfo_v2_t {  // of the calls _v2 and _v3
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId;  // 0xffffffff: no MIG
  unsigned computeInstanceId;
};

struct nvmlEventData_v1_t {
  nvmlDevice_t device;
  unsigned long long eventType;
  unsigned long long eventData;
};

struct nvmlEventData_t {  // of _v2
  nvmlDevice_t device;
  unsigned long long eventType;
  unsigned long long eventData;  // the number of an Xid
  unsigned gpuInstanceId;
  unsigned computeInstanceId;
};

struct nvmlFieldValue_t {
  unsigned fieldId;
  unsigned scopeId;
  long long timestamp;
  long long latencyUsec;
  unsigned valueType;
  nvmlReturn_t nvmlReturn;
  unsigned long long value;
};

}  // extern "C"

static_assert(sizeof(nvmlPciInfo_t) == 68 && sizeof(nvmlMemory_v2_t) == 40 &&
                  sizeof(nvmlProcessInfo_v2_t) == 24 &&
                  sizeof(nvmlProcessUtilizationSample_t) == 32 && sizeof(nvmlEventData_t) == 32 &&
                  sizeof(nvmlFieldValue_t) == 40,
              "as in NVIDIA's header");

namespace openmps::nvml {

inline constexpr unsigned kUuidV2Bytes = 96;
inline constexpr unsigned long long kEventXid = 8;  // nvmlEventTypeXidCriticalError
inline constexpr unsigned kNoInstance = 0xffffffff;

}  // namespace openmps::nvml
