// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// One pointer per symbol of the driver API, and the symbols as numbers and names.
// A table is filled by src/driver (a real driver) or is the table of entry points
// of the client library; its members stand in the order of DriverSymbol.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/abi.h"

// X(symbol), in the order of DriverTable.
#define OPENMPS_DRIVER_SYMBOLS(X) \
  X(cuEventRecord) \
  X(cuEventRecord_ptsz) \
  X(cuGraphAddThings) \
  X(cuInit) \
  X(cuLater) \
  X(cuLaunchKernelEx) \
  X(cuLaunchKernelEx_ptsz) \
  X(cuMemsetD8) \
  X(cuMemsetD8_v2) \
  X(cuMemsetD8_v2_ptds) \
  X(cuNever)

namespace openmps {

enum class DriverSymbol : uint16_t {
#define OPENMPS_ENUMERATOR(symbol) symbol,
  OPENMPS_DRIVER_SYMBOLS(OPENMPS_ENUMERATOR)
#undef OPENMPS_ENUMERATOR
};

inline constexpr size_t kDriverSymbolCount = 11;

inline constexpr const char* kDriverSymbolNames[kDriverSymbolCount] = {
#define OPENMPS_NAME(symbol) #symbol,
    OPENMPS_DRIVER_SYMBOLS(OPENMPS_NAME)
#undef OPENMPS_NAME
};

inline constexpr const char* driver_symbol_name(DriverSymbol symbol) {
  return kDriverSymbolNames[static_cast<size_t>(symbol)];
}

// Null where the driver lacks the symbol.
struct DriverTable {
  CUresult (*cuEventRecord)(CUevent hEvent, CUstream hStream);
  CUresult (*cuEventRecord_ptsz)(CUevent hEvent, CUstream hStream);
  CUresult (*cuGraphAddThings)(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
      size_t count, const CUDA_MEMSET_NODE_PARAMS* fill, const char* label, char* text,
      int bytes, int* state, float* pairs, void* place, CUdevice dev, unsigned char* tag);
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
