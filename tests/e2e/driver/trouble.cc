// SPDX-License-Identifier: Apache-2.0
// A client with a bad kernel. `endless`: a kernel that never ends; prints "ready" once it runs, and
// waits to be killed. `overdue`: the same, and waits for its kernel, which a limit of time ends.
// `fault`: a kernel that writes to an invalid address, and the results of later calls. Run by
// run_e2e.py's scenarios. usage: drv_trouble endless|overdue|fault
#include <unistd.h>

#include <string>

#include "driver.h"
#include "endless.h"

namespace {

constexpr char kFaultPtx[] = R"(.visible .entry fault() {
  .reg .b32 %r1;
  .reg .b64 %rd1;
  mov.u64 %rd1, 64;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

CUstream start_endless(CUfunction kernel) {
  void* flag = nullptr;
  CHECK_CU(cuMemHostAlloc(&flag, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(flag, 0, 8);
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  e2e::launch(kernel, 1, 1, 0, stream, reinterpret_cast<CUdeviceptr>(flag));
  while (*static_cast<volatile uint32_t*>(flag) == 0) usleep(1000);
  printf("ready\n");
  return stream;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  e2e::Session session;
  CUmodule module = nullptr;
  CHECK_CU(cuModuleLoadData(&module, (e2e::kEndlessPtx + kFaultPtx).c_str()));
  CUfunction kernel = nullptr;
  CHECK_CU(cuModuleGetFunction(&kernel, module, kind == "fault" ? "fault" : "endless"));
  if (kind != "fault") {
    const CUstream stream = start_endless(kernel);
    while (kind == "endless") pause();
    e2e::expect_result("synchronising", cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_TIMEOUT);
    CUdeviceptr memory = 0;
    e2e::expect_result("and from then on", cuMemAlloc_v2(&memory, 4), CUDA_ERROR_LAUNCH_TIMEOUT);
    quick_exit(e2e::finish());
  }
  e2e::launch(kernel, 1, 1, 0, nullptr);
  e2e::expect_result("synchronising", cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr memory = 0;
  e2e::expect_result("and from then on", cuMemAlloc_v2(&memory, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  // PyTorch asks in destructors, where an error ends the program (an H200: 0).
  unsigned flags = 0;
  int active = 0;
  e2e::expect_result("the primary context's state", cuDevicePrimaryCtxGetState(0, &flags, &active),
                     CUDA_SUCCESS);
  e2e::expect(active == 1, "it is in use");
  quick_exit(e2e::finish());  // after a fault no object can be released
}
