// SPDX-License-Identifier: Apache-2.0
// Managed variables of modules that are loaded from memory and from a file: the program reads and
// writes them at the address that cuModuleGetGlobal returns. Run by run_e2e.py. usage:
// drv_managed_modules
#include <unistd.h>

#include <string>

#include "driver.h"

namespace {

using e2e::expect;

constexpr char kCode[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .global .attribute(.managed) .align 8 .u32 counters[4] = {5, 6, 7, 8};
.visible .global .align 4 .u32 plain = 9;
.visible .entry bump() {
  .reg .u32 %r<3>;
  .reg .u64 %rd<2>;
  mov.u64 %rd1, counters;
  ld.global.u32 %r1, [%rd1 + 4];
  add.u32 %r2, %r1, 100;
  st.global.u32 [%rd1 + 4], %r2;
  ret;
}
)";

void check(const char* where, CUmodule module) {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  int managed = -1;
  CUfunction bump = nullptr;
  CHECK_CU(cuModuleGetFunction(&bump, module, "bump"));
  CHECK_CU(cuModuleGetGlobal_v2(&address, &bytes, module, "counters"));
  CHECK_CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  if (!expect(managed == 1 && bytes == 16, "%s: a managed variable", where)) return;
  volatile uint32_t* counters = reinterpret_cast<uint32_t*>(address);
  expect(counters[0] == 5 && counters[3] == 8, "with its values");
  const auto run = [bump] {
    CHECK_CU(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CHECK_CU(cuCtxSynchronize());
  };
  run();
  expect(counters[1] == 106 && counters[0] == 5, "a kernel's: %u", counters[1]);
  counters[1] = 1000;
  run();
  expect(counters[1] == 1100, "the program's and a kernel's: %u", counters[1]);
  CHECK_CU(cuModuleGetGlobal_v2(&address, &bytes, module, "plain"));
  CHECK_CU(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  expect(managed == 0, "one that is not");
}

}  // namespace

int main() {
  e2e::Session session;
  CUmodule module = nullptr;
  CHECK_CU(cuModuleLoadData(&module, kCode));
  check("from memory", module);
  CHECK_CU(cuModuleUnload(module));

  char path[] = "/tmp/managed_modules.XXXXXX";
  const int file = mkstemp(path);
  if (file < 0 ||
      write(file, kCode, sizeof(kCode) - 1) != static_cast<ssize_t>(sizeof(kCode) - 1)) {
    return perror(path), 1;
  }
  close(file);
  const CUresult loaded = cuModuleLoad(&module, path);
  unlink(path);
  CHECK_CU(loaded);
  check("from a file", module);
  CHECK_CU(cuModuleUnload(module));
  return e2e::finish();
}
