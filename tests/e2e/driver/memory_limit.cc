// SPDX-License-Identifier: Apache-2.0
// A client's memory limit counts what it takes of the device by whatever call: allocations, the
// variables of its modules, arrays, green contexts. Run by run_e2e.py, behind OpenMPS.
// usage: drv_memory_limit
#include <cstdlib>
#include <string>

#include "driver.h"

namespace {

using e2e::expect;
using e2e::expect_result;

constexpr size_t kMiB = 1 << 20;
constexpr auto kNoMemory = CUDA_ERROR_OUT_OF_MEMORY;

size_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  CHECK_CU(cuMemGetInfo_v2(&free, &total));
  return free;
}

std::string module_with(size_t bytes) {
  return ".version 6.0\n.target sm_70\n.address_size 64\n"
         ".visible .global .align 4 .b8 data[" +
         std::to_string(bytes) + "];\n.visible .entry nothing() { ret; }\n";
}

}  // namespace

int main() {
  setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=64M", 1);
  const e2e::Session session;
  const size_t before = free_bytes();
  CUmodule module = nullptr;
  expect_result("a module with 512 MiB of variables",
                cuModuleLoadData(&module, module_with(512 * kMiB).c_str()), kNoMemory);
  CUlibrary library = nullptr;
  expect_result("the same as a library",
                cuLibraryLoadData(&library, module_with(512 * kMiB).c_str(), nullptr, nullptr, 0,
                                  nullptr, nullptr, 0),
                kNoMemory);
  expect(free_bytes() == before, "nothing was taken");
  CHECK_CU(cuModuleLoadData(&module, module_with(32 * kMiB).c_str()));
  expect(before - free_bytes() == 32 * kMiB, "32 MiB of variables are taken");
  CUdeviceptr memory = 0;
  expect_result("40 MiB beside them", cuMemAlloc_v2(&memory, 40 * kMiB), kNoMemory);
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR large{4096, 4096, CU_AD_FORMAT_FLOAT, 1};
  expect_result("an array of 64 MiB beside them", cuArrayCreate_v2(&array, &large), kNoMemory);
  CHECK_CU(cuModuleUnload(module));
  expect(free_bytes() == before, "they are free again");
  expect_result("40 MiB", cuMemAlloc_v2(&memory, 40 * kMiB), CUDA_SUCCESS);
  CHECK_CU(cuMemFree_v2(memory));
  return e2e::finish();
}
