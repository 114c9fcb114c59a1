// SPDX-License-Identifier: Apache-2.0
// Module globals: found by name, with their initial values, written and read by host and kernel;
// two loads of one module have separate globals; the library API finds them, too. Run by
// run_e2e.py. usage: drv_globals
#include "driver.h"

namespace {

struct Global {
  CUdeviceptr address = 0;
  size_t bytes = 0;
};

Global find(CUmodule module, const char* global_name) {
  Global found;
  CHECK_CU(cuModuleGetGlobal_v2(&found.address, &found.bytes, module, global_name));
  return found;
}

int read_int(CUdeviceptr address) {
  int value = 0;
  CHECK_CU(cuMemcpyDtoH_v2(&value, address, sizeof value));
  return value;
}

}  // namespace

int main() {
  e2e::Session session;
  CUmodule twin = nullptr;
  CHECK_CU(cuModuleLoadDataEx(&twin, e2e::kernels_ptx(), 0, nullptr, nullptr));
  const Global counter = find(session.module, "counter"),
               words = find(session.module, "words_global"),
               factors = find(session.module, "factors"), twin_counter = find(twin, "counter");
  e2e::expect(counter.bytes == 4 && words.bytes == 64 && factors.bytes == 16, "sizes of globals");
  e2e::expect(read_int(counter.address) == 40 && read_int(words.address + 7 * 4) == 34,
              "initial values");
  e2e::expect(counter.address != twin_counter.address, "a second load has globals of its own");

  e2e::Buffer<float> out(4);
  const CUfunction kernel = session.function("use_globals");
  e2e::launch(kernel, 1, 32, 0, nullptr, out.address);
  std::vector<float> got = out.get();
  e2e::expect(got[0] == 20 && got[3] == 140, "kernel reads globals: %.1f %.1f", got[0], got[3]);
  const float changed[2] = {10, -1};
  const int hundred = 100;
  CHECK_CU(cuMemcpyHtoD_v2(factors.address + 4, changed, sizeof changed));
  CHECK_CU(cuMemcpyHtoD_v2(counter.address, &hundred, sizeof hundred));
  e2e::launch(kernel, 1, 32, 0, nullptr, out.address);
  got = out.get();
  e2e::expect(got[0] == 50 && got[1] == 1000 && got[2] == -100, "after host writes: %.1f %.1f %.1f",
              got[0], got[1], got[2]);
  e2e::expect(read_int(counter.address) == 102, "counter %d", read_int(counter.address));
  e2e::expect(read_int(twin_counter.address) == 40, "the twin's counter is untouched");
  e2e::expect(read_int(words.address) == 201, "words after two launches");

  Global none;
  CUfunction missing = nullptr;
  e2e::expect_result("global that does not exist",
                     cuModuleGetGlobal_v2(&none.address, &none.bytes, session.module, "nothing"),
                     CUDA_ERROR_NOT_FOUND);
  e2e::expect_result("kernel that does not exist",
                     cuModuleGetFunction(&missing, session.module, "nothing"),
                     CUDA_ERROR_NOT_FOUND);
  CHECK_CU(cuModuleUnload(twin));

  CUlibrary library = nullptr;
  CUkernel library_kernel = nullptr;
  CUfunction as_function = nullptr;
  CHECK_CU(
      cuLibraryLoadData(&library, e2e::kernels_ptx(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK_CU(cuLibraryGetKernel(&library_kernel, library, "use_globals"));
  CHECK_CU(cuKernelGetFunction(&as_function, library_kernel));
  e2e::launch(as_function, 1, 32, 0, nullptr, out.address);
  Global library_counter;
  CHECK_CU(
      cuLibraryGetGlobal(&library_counter.address, &library_counter.bytes, library, "counter"));
  e2e::expect(read_int(library_counter.address) == 42, "library counter %d",
              read_int(library_counter.address));
  // A kernel handle is accepted in place of a function.
  e2e::launch(reinterpret_cast<CUfunction>(library_kernel), 1, 32, 0, nullptr, out.address);
  e2e::expect(read_int(library_counter.address) == 44, "launch by kernel handle");
  int registers = 0, most_threads = 0;
  CHECK_CU(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel));
  CHECK_CU(cuFuncGetAttribute(&most_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel));
  e2e::expect(registers > 0 && most_threads == 1024, "function attributes");
  CHECK_CU(cuLibraryUnload(library));
  return e2e::finish();
}
