// SPDX-License-Identifier: Apache-2.0
// What happened on a device and when: the values that a recording consists of, before they are
// written as CUPTI's records, as lanes of a trace, or into a file; and the functions by which
// OpenMPS's client library and softgpu offer them to our libcupti. All times are by now_ns()
// (base/clock.h).
#pragma once

#include <cstdint>

#include "cuda/abi.h"

namespace openmps::cupti {

enum class ActivityKind : uint32_t {
  kKernel = 1,
  kCopy = 2,
  kFill = 3,
  kCall = 4,  // a call that has given the device work; the work's own activities have its number
};

// Where a copy goes, or comes from. The numbers are CUPTI's (CUpti_ActivityMemoryKind).
enum class MemoryKind : uint8_t {
  kUnknown = 0,
  kPageable = 1,
  kPinned = 2,
  kDevice = 3,
  kArray = 4,
  kManaged = 5,
};

// What a kCall has given. The numbers are those of driver functions in CUPTI
// (cupti_driver_cbid.h), of which each stands for all that give such work.
enum class CallKind : uint32_t {
  kFill = 216,         // cuMemsetD8Async
  kCopy = 306,         // cuMemcpyAsync
  kLaunch = 307,       // cuLaunchKernel
  kGraphLaunch = 514,  // cuGraphLaunch
};

struct Activity {
  ActivityKind kind{};
  uint32_t device = 0;   // as the program numbers them; of a copy to another device: the source
  uint32_t context = 0;  // the lower half of cuCtxGetId's number
  uint32_t stream = 0;   // the lower half of cuStreamGetId's number
  // Of the call that gave the work: all work of one call has the same. Not 0.
  uint32_t correlation = 0;
  uint32_t graph = 0;       // 0: the work is no node of a launched graph
  uint64_t graph_node = 0;  // its number, as the driver has it
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  // Kernels.
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  uint32_t registers = 0;  // of a thread
  uint32_t static_shared_bytes = 0;
  uint32_t dynamic_shared_bytes = 0;
  uint32_t local_bytes = 0;  // of a thread
  // Copies and fills.
  uint64_t bytes = 0;
  uint32_t value = 0;    // of a fill
  MemoryKind from{};     // of a copy
  MemoryKind to{};       // of a copy or fill
  uint16_t is_peer = 0;  // a copy to another device
  uint32_t peer = 0;     // that device
  // Calls.
  CallKind call{};
  uint32_t thread = 0;  // that made it, as gettid() has it
  int32_t result = 0;   // CUresult
};

// Told of each activity. `name`: a kernel's mangled name, valid during the call; null for others.
// A kCall is told on the thread that makes the call, before it returns; other kinds on any thread,
// when the work has ended, so also before its kCall. Several threads may tell at once. The driver
// holds no lock meanwhile that other calls of the program need. It must not call the driver nor,
// since the driver may hold what these need, the functions of ActivityTable.
struct ActivitySink {
  void (*take)(void* self, const Activity* activity, const char* name) = nullptr;
  void* self = nullptr;
};

// cuGetExportTable(kActivityTableId) of OpenMPS's client library and of softgpu gives this table.
// Functions may be called on any thread.
struct ActivityTable {
  uint64_t bytes;  // sizeof(ActivityTable)
  // Record what is given to the devices from now on. One recording at a time:
  // CUDA_ERROR_ALREADY_ACQUIRED. Other errors: CUDA_ERROR_NOT_SUPPORTED: nothing can be recorded
  // here, and *why (static text) says why not.
  CUresult (*start)(const ActivitySink* sink, const char** why);
  // The sink is told nothing any more once this has returned, which calls flush() first.
  CUresult (*stop)();
  // The sink knows of all work that had ended when this was called.
  CUresult (*flush)();
  // How many activities of this recording were lost because memory was short.
  uint64_t (*lost)();
};
inline constexpr CUuuid kActivityTableId = {{'\x6f', '\x4d', '\x50', '\x53', '\x2e', '\x61', '\x63',
                                             '\x74', '\x69', '\x76', '\x69', '\x74', '\x79', '\x2e',
                                             '\x76', '\x31'}};

}  // namespace openmps::cupti
