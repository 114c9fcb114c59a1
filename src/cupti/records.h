// SPDX-License-Identifier: Apache-2.0
// Activities as CUPTI's records, and how long each record is. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cupti/abi.h"
#include "cupti/activity.h"

namespace openmps::cupti {

// A kernel's record of CUDA 13.1 (Kernel11) has the launch's priority more than that of 13.0. Who
// reads ours as one shall find a zero, and not the next record.
inline constexpr size_t kKernelRecordBytes = sizeof(CUpti_ActivityKernel10) + 16;

struct Record {
  alignas(8) uint8_t bytes[kKernelRecordBytes] = {};
  size_t size = 0;
};

// 0: a kind of which this library writes no records.
size_t record_bytes(CUpti_ActivityKind kind);

// When an activity began and ended, in the clock that the profiler has chosen.
struct Span {
  uint64_t start = 0;
  uint64_t end = 0;
};

// `name` is to stay valid as long as the program runs.
Record kernel_record(CUpti_ActivityKind kind, const Activity& kernel, Span span, const char* name);
Record copy_record(const Activity& copy, Span span);       // MEMCPY
Record peer_copy_record(const Activity& copy, Span span);  // MEMCPY2
Record fill_record(const Activity& fill, Span span);
Record call_record(const Activity& call, Span span, uint32_t thread);
Record external_record(CUpti_ExternalCorrelationKind kind, uint64_t id, uint32_t correlation);

}  // namespace openmps::cupti
