// SPDX-License-Identifier: Apache-2.0
// Vector addition, launched by kernelParams, by the `extra` buffer and by cuLaunchKernelEx. Run by
// run_e2e.py. usage: drv_vector_add [ELEMENTS]
#include "driver.h"

namespace {

// A buffer that is shorter than the kernel's parameters, as NCCL passes it. The missing parameter
// (here the number that is added to every word) has no defined value.
void short_buffer(const e2e::Session& session) {
  const uint32_t n = 1000;
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(n, 0));
  struct {
    CUdeviceptr words;
    uint32_t n, key;
  } packed = {words.address, n, 0};
  size_t bytes = offsetof(decltype(packed), key);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CHECK_CU(cuLaunchKernel(session.function("mix"), e2e::blocks_for(n, 128), 1, 1, 128, 1, 1, 0,
                          nullptr, nullptr, extra));
  const std::vector<uint32_t> got = words.get();
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < n; i++) wrong += got[i] - got[0] != i;
  e2e::expect(wrong == 0, "short buffer: %u wrong", wrong);
}

}  // namespace

int main(int argc, char** argv) {
  const auto n = static_cast<uint32_t>(e2e::argument(argc, argv, 1, 100003));
  e2e::Session session;
  std::vector<float> a(n), b(n), expected(n);
  e2e::Random random(5);
  for (uint32_t i = 0; i < n; i++) {
    a[i] = random.unit() * 100;
    b[i] = random.unit() - 50;
    expected[i] = a[i] + b[i];
  }
  e2e::Buffer<float> da(a), db(b), sum(n);
  const CUfunction kernel = session.function("vector_add");
  const unsigned grid = e2e::blocks_for(n, 128);
  for (const char* way : {"kernelParams", "extra", "cuLaunchKernelEx"}) {
    CHECK_CU(cuMemsetD8_v2(sum.address, 0, sum.bytes()));
    if (!strcmp(way, "kernelParams")) {
      e2e::launch(kernel, grid, 128, 0, nullptr, da.address, db.address, sum.address, n);
    } else if (!strcmp(way, "extra")) {
      struct {
        CUdeviceptr a, b, sum;
        uint32_t n;
      } packed = {da.address, db.address, sum.address, n};
      size_t bytes = offsetof(decltype(packed), n) + sizeof n;
      void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                       CU_LAUNCH_PARAM_END};
      CHECK_CU(cuLaunchKernel(kernel, grid, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
    } else {
      CUlaunchConfig config = {};
      config.gridDimX = grid;
      config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
      config.blockDimX = 128;
      uint32_t count = n;
      void* parameters[] = {&da.address, &db.address, &sum.address, &count};
      CHECK_CU(cuLaunchKernelEx(&config, kernel, parameters, nullptr));
    }
    const std::vector<float> got = sum.get();
    e2e::expect(got == expected, "%s: hash %016llx", way,
                static_cast<unsigned long long>(e2e::hash(got.data(), sum.bytes())));
  }
  short_buffer(session);
  return e2e::finish();
}
