// SPDX-License-Identifier: Apache-2.0
// cuGetExportTable: the function tables that NVIDIA's runtime and libraries ask a driver for, the
// same in the client library and in softgpu. docs/interop.md describes each. Any thread.
#pragma once

#include "cuda/abi.h"
#include "interop/integrity.h"

namespace openmps {

// What the tables need of the driver that offers them. Every function may be called on any thread,
// returns CUDA errors and must not throw.
struct InteropHost {
  // As cuDriverGetVersion reports; goes into the integrity answer.
  int driver_version;

  // Devices as the program sees them (after CUDA_VISIBLE_DEVICES). Asked three times at start.
  CUresult (*device_count)(int* count);
  CUresult (*device)(int ordinal, InteropDevice* device);

  // The stable handle of a device's primary context, without a reference and without creating
  // anything: libcudart asks for every device before any real use.
  CUresult (*primary_context)(CUcontext* context, CUdevice device);
  // As cuCtxGetCurrent; on the path of every call of the runtime.
  CUresult (*current_context)(CUcontext* context);

  // A module from __fatBinC_Wrapper_t (runtimes up to 11.x) or from a fatbin container.
  CUresult (*load_wrapper)(CUmodule* module, const void* wrapper);
  CUresult (*load_fatbin)(CUmodule* module, const void* fatbin);

  // As cuModuleGetFunctionCount and cuModuleEnumerateFunctions; handles stay valid with the module.
  CUresult (*function_count)(unsigned int* count, CUmodule module);
  CUresult (*functions)(CUfunction* functions, unsigned int count, CUmodule module);

  // As cuStreamGetId, of the current context where the handle is a default stream's.
  CUresult (*stream_id)(CUstream stream, unsigned long long* id);

  // For the debug log; null: there is no log. Tables that were asked for in vain, and slots of
  // known tables that have no description yet.
  void (*unknown_table)(const CUuuid& id);
  void (*unknown_slot)();
};

// Before the first get_export_table(); `host` must stay.
void set_interop_host(const InteropHost* host);

// cuGetExportTable. CUDA_ERROR_NOT_FOUND, with *table null, for a UUID that has no table here:
// libraries have fallbacks. CUDA_ERROR_INVALID_VALUE for null arguments.
CUresult get_export_table(const void** table, const CUuuid* id);

// The host destroys a context or resets a primary context: libraries forget what they kept for it.
// Call while the context can still be used, without locks of the host held.
void interop_context_destroyed(CUcontext context);

}  // namespace openmps
