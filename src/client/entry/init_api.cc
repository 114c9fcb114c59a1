// SPDX-License-Identifier: Apache-2.0
// cuInit, versions, error names, entry points and export tables: implementations behind the
// generated entry points, on the program's threads.
#include <cstring>

#include "api/client_impl.h"
#include "api/proc_address.h"
#include "client/debug.h"
#include "client/entry/activity_table.h"
#include "client/entry/mode.h"
#include "client/session/session.h"
#include "cuda/error_names.h"
#include "interop/export_tables.h"

namespace openmps::client::impl {

CUresult cuInit(unsigned int Flags) {
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (mode_error() != CUDA_SUCCESS) return mode_error();
  const CUresult result = initialize_session(control_socket_path());
  if (result == CUDA_SUCCESS) begin_awaited_recording();
  return result;
}

// The version of the interface that this library implements, whatever the worker's driver is: the
// run time compares it with its own, before cuInit.
CUresult cuDriverGetVersion(int* driverVersion) {
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  return cuda::get_error_name(error, pStr);
}
CUresult cuGetErrorString(CUresult error, const char** pStr) {
  return cuda::get_error_string(error, pStr);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  constexpr cuuint64_t kKnown =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || pfn == nullptr || (flags & ~kKnown) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint16_t number = 0;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const bool found = find_proc(symbol, cudaVersion, flags, &number, &status);
  *pfn = found ? entry_target(number) : nullptr;
  if (symbolStatus != nullptr) *symbolStatus = status;
  if (!found) {
    debug_line("cuGetProcAddress: there is no \"%s\" for version %d", symbol, cudaVersion);
  }
  return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  if (ppExportTable != nullptr && pExportTableId != nullptr &&
      memcmp(pExportTableId, &cupti::kActivityTableId, sizeof(CUuuid)) == 0) {
    *ppExportTable = &activity_table();
    return CUDA_SUCCESS;
  }
  return get_export_table(ppExportTable, pExportTableId);
}

}  // namespace openmps::client::impl
