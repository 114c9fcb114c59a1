// SPDX-License-Identifier: Apache-2.0
#include "fake_driver.h"

#include <cstring>

namespace openmps::cupti::test {

FakeDriver& fake_driver() {
  static FakeDriver driver;
  return driver;
}

namespace {

CUresult start(const ActivitySink* sink, const char** why) {
  FakeDriver& driver = fake_driver();
  *why = driver.why;
  if (driver.sink.take != nullptr) return CUDA_ERROR_ALREADY_ACQUIRED;
  if (driver.start_result != CUDA_SUCCESS) return driver.start_result;
  driver.sink = *sink;
  driver.lost = 0;
  ++driver.starts;
  return CUDA_SUCCESS;
}

CUresult flush() {
  FakeDriver& driver = fake_driver();
  for (const auto& [activity, name] : std::exchange(driver.ended, {})) {
    driver.tell(activity, activity.kind == ActivityKind::kKernel ? name.c_str() : nullptr);
  }
  return CUDA_SUCCESS;
}

CUresult stop() {
  flush();
  if (fake_driver().in_stop) fake_driver().in_stop();
  fake_driver().sink = {};
  ++fake_driver().stops;
  return CUDA_SUCCESS;
}

uint64_t lost() { return fake_driver().lost; }

constexpr ActivityTable kTable{sizeof(ActivityTable), &start, &stop, &flush, &lost};

thread_local CUcontext current = handle<CUcontext>(1);

}  // namespace
}  // namespace openmps::cupti::test

using namespace openmps::cupti::test;  // NOLINT: what follows is a C interface

extern "C" {

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (memcmp(id, &openmps::cupti::kActivityTableId, sizeof *id) != 0 || !fake_driver().has_table) {
    return CUDA_ERROR_NOT_FOUND;
  }
  *table = &kTable;
  return CUDA_SUCCESS;
}

// A context is on the device of its number, and stream S is one of context S / 100.
CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  *id = 0x7'0000'0000 + reinterpret_cast<uintptr_t>(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  *device = static_cast<CUdevice>(reinterpret_cast<uintptr_t>(context));
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext*) {
  current = handle<CUcontext>(1);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  *context =
      stream == nullptr ? current : handle<CUcontext>(reinterpret_cast<uintptr_t>(stream) / 100);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context) {
  return cuStreamGetCtx(stream, context);
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  *id = stream == nullptr ? reinterpret_cast<uintptr_t>(current) * 100
                          : reinterpret_cast<uintptr_t>(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetId_ptsz(CUstream stream, unsigned long long* id) {
  cuStreamGetId(stream, id);
  *id += 50;
  return CUDA_SUCCESS;
}

}  // extern "C"
