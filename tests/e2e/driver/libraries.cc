// SPDX-License-Identifier: Apache-2.0
// Libraries and their kernels on every device: launches in any context, a separate variable on each
// device, attributes by device; and a library without variables, whose code several processes may
// share. `rounds`: only the variables, again and again. Run by run_e2e.py. usage: drv_libraries
// [rounds]
#include "driver.h"

namespace {

constexpr char kPlain[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fill(.param .u64 words, .param .u32 value) {
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [words];
  ld.param.u32 %r1, [value];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

constexpr char kCounter[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.visible .entry count(.param .u32 step) {
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [step];
  ld.global.u32 %r2, [counter];
  add.u32 %r2, %r2, %r1;
  st.global.u32 [counter], %r2;
  ret;
}
)";

CUlibrary load(const char* ptx) {
  CUlibrary library = nullptr;
  CHECK_CU(cuLibraryLoadData(&library, ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  return library;
}

CUfunction kernel_of(CUlibrary library, const char* name) {
  CUkernel kernel = nullptr;
  CHECK_CU(cuLibraryGetKernel(&kernel, library, name));
  return reinterpret_cast<CUfunction>(kernel);
}

uint32_t counter_of(CUlibrary library) {
  CUdeviceptr address = 0;
  size_t bytes = 0;
  uint32_t value = 0;
  CHECK_CU(cuLibraryGetGlobal(&address, &bytes, library, "counter"));
  CHECK_CU(cuMemcpyDtoH_v2(&value, address, bytes));
  return value;
}

void on_each_device(CUlibrary plain, CUlibrary counter, int device) {
  CUcontext context = nullptr;
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_CU(cuCtxSetCurrent(context));
  bool right = true;
  {
    e2e::Buffer<uint32_t> words(32);
    e2e::launch(kernel_of(plain, "fill"), 1, 32, 0, nullptr, words.address, 100u + device);
    for (const uint32_t word : words.get()) right &= word == 100u + static_cast<uint32_t>(device);
  }
  // The step is different for each device, and each device has a counter of its own.
  const unsigned step = 10u * static_cast<unsigned>(device) + 10u;
  e2e::launch(kernel_of(counter, "count"), 1, 1, 0, nullptr, step);
  CHECK_CU(cuCtxSynchronize());
  right &= counter_of(counter) == 5 + step;

  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  CHECK_CU(cuLibraryGetKernel(&kernel, plain, "fill"));
  const int wanted = 60 * 1024 + 1024 * device;
  int shared = 0;
  CHECK_CU(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, wanted, kernel,
                                device));
  CHECK_CU(cuKernelGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel,
                                device));
  right &= shared == wanted;
  CHECK_CU(cuKernelGetFunction(&function, kernel));
  {
    e2e::Buffer<uint32_t> words(32);
    e2e::launch(function, 1, 32, static_cast<unsigned>(wanted), nullptr, words.address, 9u);
    for (const uint32_t word : words.get()) right &= word == 9u;
  }
  if (!right) e2e::expect(false, "kernels, variables and attributes on device %d", device);
}

constexpr uint32_t kRounds = 1000;

// The kernel and the variable of one library on each device in turn.
void count_in_rounds(int devices) {
  CUlibrary counter = load(kCounter);
  const CUfunction count = kernel_of(counter, "count");
  std::vector<CUcontext> contexts(static_cast<size_t>(devices));
  for (int device = 0; device < devices; ++device) {
    CHECK_CU(cuDevicePrimaryCtxRetain(&contexts[static_cast<size_t>(device)], device));
  }
  bool right = true;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    for (size_t device = 0; device < contexts.size(); ++device) {
      const auto step = static_cast<unsigned>(device + 1);
      CHECK_CU(cuCtxSetCurrent(contexts[device]));
      e2e::launch(count, 1, 1, 0, nullptr, step);
      CHECK_CU(cuCtxSynchronize());
      right &= counter_of(counter) == 5 + round * step;
    }
  }
  e2e::expect(right, "each device has a variable of its own in each round");
  CHECK_CU(cuLibraryUnload(counter));
  for (int device = 0; device < devices; ++device) CHECK_CU(cuDevicePrimaryCtxRelease_v2(device));
}

}  // namespace

int main(int argc, char** /*argv*/) {
  CHECK_CU(cuInit(0));
  int devices = 0;
  CHECK_CU(cuDeviceGetCount(&devices));
  if (argc > 1) {
    count_in_rounds(devices);
    return e2e::finish();
  }
  CUcontext context = nullptr;
  CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK_CU(cuCtxSetCurrent(context));
  CUlibrary plain = load(kPlain);
  CUlibrary counter = load(kCounter);
  for (int device = 0; device < devices; device++) on_each_device(plain, counter, device);
  CHECK_CU(cuCtxSetCurrent(context));
  e2e::expect(counter_of(counter) == 15, "the first device's variable is its own");
  printf("# %d devices\n", devices);

  // Loading the same image again gives another library.
  CUlibrary again = load(kPlain);
  e2e::expect(again != plain, "a second library of the same image");
  int fresh = 0;
  CHECK_CU(cuKernelGetAttribute(&fresh, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                reinterpret_cast<CUkernel>(kernel_of(again, "fill")), 0));
  e2e::expect(fresh <= 48 * 1024, "its kernel has the attributes of a fresh one");
  CUdeviceptr address = 0;
  size_t bytes = 0;
  e2e::expect_result("a variable that is not there",
                     cuLibraryGetGlobal(&address, &bytes, plain, "counter"), CUDA_ERROR_NOT_FOUND);
  void* unified = nullptr;
  // CUDA documents the first error; NVIDIA's driver (580) returns the second.
  e2e::expect_result("a unified function", cuLibraryGetUnifiedFunction(&unified, plain, "fill"),
                     {CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE});
  e2e::expect_result("a unified function without a name",
                     cuLibraryGetUnifiedFunction(&unified, plain, nullptr),
                     CUDA_ERROR_INVALID_VALUE);
  e2e::expect_result("a unified function of no library",
                     cuLibraryGetUnifiedFunction(&unified, nullptr, "fill"),
                     {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE});
  CHECK_CU(cuLibraryUnload(plain));
  {
    e2e::Buffer<uint32_t> words(32);
    e2e::launch(kernel_of(again, "fill"), 1, 32, 0, nullptr, words.address, 3u);
    e2e::expect(words.get()[31] == 3, "it outlives the first one");
  }
  CHECK_CU(cuLibraryUnload(again));
  CHECK_CU(cuLibraryUnload(counter));
  for (int device = 0; device < devices; device++) CHECK_CU(cuDevicePrimaryCtxRelease_v2(device));
  return e2e::finish();
}
