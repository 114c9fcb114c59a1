// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// One pointer per symbol of the driver API, and the symbols as numbers and names.
// A table is filled by src/driver (a real driver) or is the table of entry points
// of the client library; its members stand in the order of DriverSymbol.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda_abi.h"

// X(symbol), in the order of DriverTable.
#define OPENMPS_DRIVER_SYMBOLS(X) \
  X(cuEventRecord) \
  X(cuEventRecord_ptsz) \
  X(cuFuncGetAttribute) \
  X(cuGraphAddThings) \
  X(cuGraphDropThings) \
  X(cuInit) \
  X(cuLater) \
  X(cuLaunchKernelEx) \
  X(cuLaunchKernelEx_ptsz) \
  X(cuMemsetD8) \
  X(cuMemsetD8_v2) \
  X(cuMemsetD8_v2_ptds) \
  X(cuNever)

// X(handle type, name of its HandleType).
#define OPENMPS_HANDLE_TYPES(X) \
  X(CUcontext, context) \
  X(CUmodule, module) \
  X(CUfunction, function) \
  X(CUlibrary, library) \
  X(CUkernel, kernel) \
  X(CUarray, array) \
  X(CUmipmappedArray, mipmapped_array) \
  X(CUtexref, texture_reference) \
  X(CUsurfref, surface_reference) \
  X(CUevent, event) \
  X(CUstream, stream) \
  X(CUgraphicsResource, graphics_resource) \
  X(CUexternalMemory, external_memory) \
  X(CUexternalSemaphore, external_semaphore) \
  X(CUgraph, graph) \
  X(CUgraphNode, graph_node) \
  X(CUgraphExec, graph_exec) \
  X(CUmemoryPool, memory_pool) \
  X(CUuserObject, user_object) \
  X(CUgraphDeviceNode, graph_device_node) \
  X(CUasyncCallbackHandle, async_callback) \
  X(CUgreenCtx, green_context) \
  X(CUlinkState, link_state) \
  X(CUdevResourceDesc, resource_description) \
  X(CUlogsCallbackHandle, logs_callback)

namespace openmps {

enum class DriverSymbol : uint16_t {
#define OPENMPS_ENUMERATOR(symbol) symbol,
  OPENMPS_DRIVER_SYMBOLS(OPENMPS_ENUMERATOR)
#undef OPENMPS_ENUMERATOR
};

inline constexpr size_t kDriverSymbolCount = 13;

inline constexpr const char* kDriverSymbolNames[kDriverSymbolCount] = {
#define OPENMPS_NAME(symbol) #symbol,
    OPENMPS_DRIVER_SYMBOLS(OPENMPS_NAME)
#undef OPENMPS_NAME
};

inline constexpr const char* driver_symbol_name(DriverSymbol symbol) {
  return kDriverSymbolNames[static_cast<size_t>(symbol)];
}

// What a handle refers to; the same id can name one object of each kind.
enum class HandleType : uint16_t {
#define OPENMPS_ENUMERATOR(handle, name) name,
  OPENMPS_HANDLE_TYPES(OPENMPS_ENUMERATOR)
#undef OPENMPS_ENUMERATOR
};

// Null where the driver lacks the symbol.
struct DriverTable {
  CUresult (*cuEventRecord)(CUevent hEvent, CUstream hStream);
  CUresult (*cuEventRecord_ptsz)(CUevent hEvent, CUstream hStream);
  CUresult (*cuFuncGetAttribute)(int* pi, CUfunction_attribute attrib, CUfunction hfunc);
  CUresult (*cuGraphAddThings)(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
      size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text,
      int bytes, int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag);
  CUresult (*cuGraphDropThings)(CUgraphNode node);
  CUresult (*cuInit)(unsigned int Flags);
  CUresult (*cuLater)();
  CUresult (*cuLaunchKernelEx)(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
      void** extra);
  CUresult (*cuLaunchKernelEx_ptsz)(const CUlaunchConfig* config, CUfunction f,
      void** kernelParams, void** extra);
  CUresult (*cuMemsetD8)(CUdeviceptr dstDevice, unsigned char uc, size_t N);
  CUresult (*cuMemsetD8_v2)(CUdeviceptr dstDevice, unsigned char uc, size_t N);
  CUresult (*cuMemsetD8_v2_ptds)(CUdeviceptr dstDevice, unsigned char uc, size_t N);
  CUresult (*cuNever)(int x);
};
static_assert(sizeof(DriverTable) == kDriverSymbolCount * sizeof(void*));

}  // namespace openmps
