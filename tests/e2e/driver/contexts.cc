// SPDX-License-Identifier: Apache-2.0
// Primary and created contexts: the stack of current contexts, memory reached from another context
// of the process, release counts. Run by run_e2e.py. usage: drv_contexts
#include <thread>

#include "driver.h"

namespace {

CUcontext current() {
  CUcontext context = nullptr;
  CHECK_CU(cuCtxGetCurrent(&context));
  return context;
}

uint32_t round_trip(CUmodule module, uint32_t key) {
  CUfunction mix = nullptr;
  CHECK_CU(cuModuleGetFunction(&mix, module, "mix"));
  e2e::Buffer<uint32_t> word(std::vector<uint32_t>{11});
  e2e::launch(mix, 1, 32, 0, nullptr, word.address, 1u, key);
  return word.get()[0];
}

}  // namespace

int main() {
  CHECK_CU(cuInit(0));
  CUdevice device = 0;
  CHECK_CU(cuDeviceGet(&device, 0));
  CUdeviceptr none = 0;
  e2e::expect_result("allocation without a context", cuMemAlloc_v2(&none, 4),
                     CUDA_ERROR_INVALID_CONTEXT);
  unsigned flags = 9;
  int active = 9;
  CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
  e2e::expect(active == 0, "the primary context is not active yet");

  CUcontext primary = nullptr, again = nullptr, made = nullptr, popped = nullptr;
  CHECK_CU(cuDevicePrimaryCtxRetain(&primary, device));
  CHECK_CU(cuDevicePrimaryCtxRetain(&again, device));
  e2e::expect(primary == again, "retaining twice gives one context");
  e2e::expect(current() == nullptr, "retaining makes nothing current");
  CHECK_CU(cuCtxCreate_v2(&made, CU_CTX_SCHED_AUTO, device));
  e2e::expect(current() == made && made != primary, "a created context is current");
  CUmodule in_made = nullptr, in_primary = nullptr;
  CHECK_CU(cuModuleLoadData(&in_made, e2e::kernels_ptx()));
  e2e::expect(round_trip(in_made, 5) == 60, "work in the created context");
  CHECK_CU(cuCtxPushCurrent_v2(primary));
  CHECK_CU(cuModuleLoadData(&in_primary, e2e::kernels_ptx()));
  e2e::expect(round_trip(in_primary, 6) == 61, "work in the primary context");
  e2e::Buffer<uint32_t> from_primary(std::vector<uint32_t>{1234});
  CHECK_CU(cuCtxPopCurrent_v2(&popped));
  e2e::expect(popped == primary && current() == made, "pop goes back to the created context");
  e2e::expect(from_primary.get()[0] == 1234, "memory of one context is read from another");

  unsigned made_version = 0;
  CHECK_CU(cuCtxGetApiVersion(made, &made_version));
  e2e::expect(made_version >= 3010, "API version of a context");
  CUdevice seen = 7;
  CHECK_CU(cuCtxGetDevice(&seen));
  e2e::expect(seen == device, "device of the current context");
  unsigned long long made_id = 0, primary_id = 0;
  CHECK_CU(cuCtxGetId(made, &made_id));
  CHECK_CU(cuCtxGetId(primary, &primary_id));
  e2e::expect(made_id != primary_id, "contexts have different ids");

  CUcontext in_thread = made;
  std::thread([&in_thread] { in_thread = current(); }).join();
  e2e::expect(in_thread == nullptr, "a new thread has no context");
  uint32_t by_thread = 0;
  std::thread([&] {
    CHECK_CU(cuCtxSetCurrent(primary));
    by_thread = round_trip(in_primary, 7);
  }).join();
  e2e::expect(by_thread == 62 && current() == made, "a thread uses the primary context");

  CHECK_CU(cuCtxDestroy_v2(made));
  e2e::expect(current() == nullptr, "destroying the current context pops it");
  CHECK_CU(cuCtxSetCurrent(primary));
  e2e::expect(round_trip(in_primary, 8) == 63, "the primary context outlives the created one");
  CHECK_CU(cuDevicePrimaryCtxRelease_v2(device));
  CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
  e2e::expect(active == 1, "one release of two keeps it active");
  e2e::expect(round_trip(in_primary, 9) == 64, "and usable");
  return e2e::finish();
}
