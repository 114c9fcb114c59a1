// SPDX-License-Identifier: Apache-2.0
// A program that allocates and frees device memory by commands on standard input, and answers each
// with a line. Run by group_scenarios.py. usage: drv_group_memory. Commands: "take N" allocates N
// MiB, "give" frees the last allocation, "free" prints the result of cuMemGetInfo in MiB.
#include <cstring>
#include <vector>

#include "driver.h"

namespace {

constexpr size_t kMiB = 1 << 20;

const char* text_of(CUresult result) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return "out of memory";
  return result == CUDA_SUCCESS ? "ok" : e2e::name(result);
}

}  // namespace

int main() {
  CHECK_CU(cuInit(0));
  CUcontext context = nullptr;
  CHECK_CU(cuCtxCreate_v2(&context, 0, 0));
  std::vector<CUdeviceptr> taken;
  printf("ready\n");
  fflush(stdout);
  for (char line[64]; fgets(line, sizeof(line), stdin) != nullptr;) {
    unsigned mib = 0;
    if (sscanf(line, "take %u", &mib) == 1) {
      CUdeviceptr address = 0;
      const CUresult result = cuMemAlloc_v2(&address, mib * kMiB);
      if (result == CUDA_SUCCESS) taken.push_back(address);
      printf("%s\n", text_of(result));
    } else if (strcmp(line, "give\n") == 0 && !taken.empty()) {
      printf("%s\n", text_of(cuMemFree_v2(taken.back())));
      taken.pop_back();
    } else {
      size_t free = 0;
      size_t total = 0;
      CHECK_CU(cuMemGetInfo_v2(&free, &total));
      printf("%zu of %zu\n", free / kMiB, total / kMiB);
    }
    fflush(stdout);
  }
  CHECK_CU(cuCtxDestroy_v2(context));
  return 0;
}
