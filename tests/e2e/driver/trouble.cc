// SPDX-License-Identifier: Apache-2.0
// A client with a bad kernel. `endless`: a kernel that never ends; prints "ready" once it runs, and
// waits to be killed. `fault`: a kernel that writes to an invalid address, and the results of later
// calls. Run by run_e2e.py's scenarios. usage: drv_trouble endless|fault
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

void endless(CUfunction kernel) {
  void* flag = nullptr;
  CHECK_CU(cuMemHostAlloc(&flag, 8, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(flag, 0, 8);
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  e2e::launch(kernel, 1, 1, 0, stream, reinterpret_cast<CUdeviceptr>(flag));
  while (*static_cast<volatile uint32_t*>(flag) == 0) usleep(1000);
  printf("ready\n");
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  e2e::Session session;
  CUmodule module = nullptr;
  CHECK_CU(cuModuleLoadData(&module, (e2e::kEndlessPtx + kFaultPtx).c_str()));
  CUfunction kernel = nullptr;
  CHECK_CU(cuModuleGetFunction(&kernel, module, kind.c_str()));
  if (kind == "endless") endless(kernel);
  e2e::launch(kernel, 1, 1, 0, nullptr);
  e2e::expect_result("synchronising", cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr memory = 0;
  e2e::expect_result("and from then on", cuMemAlloc_v2(&memory, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  quick_exit(e2e::finish());  // after a fault no object can be released
}
