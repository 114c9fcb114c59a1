// SPDX-License-Identifier: Apache-2.0
// The launch interface from before CUDA 4.0. Run by run_e2e.py.
// usage: drv_old_launch run|bad
#include <algorithm>
#include <string>

#include "driver.h"

namespace {

constexpr uint32_t kWords = 500;

void set_up(CUfunction mix, CUdeviceptr words, uint32_t key) {
  CHECK_CU(cuFuncSetBlockShape(mix, 128, 1, 1));
  CHECK_CU(cuFuncSetSharedSize(mix, 0));
  CHECK_CU(cuParamSetv(mix, 0, &words, sizeof(words)));
  CHECK_CU(cuParamSeti(mix, 8, kWords));
  CHECK_CU(cuParamSeti(mix, 12, key));
  CHECK_CU(cuParamSetSize(mix, 16));
}

void launches(const e2e::Session& session) {
  const CUfunction mix = session.function("mix");
  e2e::Buffer<uint32_t> words(std::vector<uint32_t>(kWords, 3));
  std::vector<uint32_t> wanted(kWords, 3);
  set_up(mix, words.address, 7);
  CHECK_CU(cuLaunchGrid(mix, 4, 1));
  e2e::mix_on_host(wanted, 7);
  e2e::expect(words.get() == wanted, "a grid");

  // The settings remain for further launches.
  CUstream stream = nullptr;
  CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK_CU(cuParamSeti(mix, 12, 9));
  CHECK_CU(cuLaunchGridAsync(mix, 2, 2, stream));
  CHECK_CU(cuStreamSynchronize(stream));
  // mix uses only blockIdx.x, so both rows of the grid have computed the first 256 words.
  std::vector<uint32_t> got = words.get();
  e2e::expect(std::equal(got.begin() + 256, got.end(), wanted.begin() + 256),
              "a grid of two by two in a stream");

  words.put(std::vector<uint32_t>(kWords, 1));
  wanted.assign(kWords, 1);
  CHECK_CU(cuFuncSetBlockShape(mix, 512, 1, 1));
  CHECK_CU(cuLaunch(mix));
  e2e::mix_on_host(wanted, 9);
  e2e::expect(words.get() == wanted, "one block");

  // The current launch calls are not affected by these settings.
  e2e::launch(mix, 4, 128, 0, nullptr, words.address, kWords, 2u);
  e2e::mix_on_host(wanted, 2);
  e2e::expect(words.get() == wanted, "cuLaunchKernel beside it");
  CHECK_CU(cuStreamDestroy_v2(stream));
}

void numbers(const e2e::Session& session) {
  // A float, and a pointer in the middle.
  const CUfunction add = session.function("vector_add");
  constexpr uint32_t kCount = 64;
  e2e::Buffer<float> a(std::vector<float>(kCount, 1.5f)), b(std::vector<float>(kCount, 2.25f));
  e2e::Buffer<float> sum(std::vector<float>(kCount, 0));
  CHECK_CU(cuFuncSetBlockShape(add, 64, 1, 1));
  CHECK_CU(cuParamSetv(add, 0, &a.address, 8));
  CHECK_CU(cuParamSetv(add, 8, &b.address, 8));
  CHECK_CU(cuParamSetv(add, 16, &sum.address, 8));
  CHECK_CU(cuParamSetf(add, 24, 1.0f));  // replaced
  CHECK_CU(cuParamSeti(add, 24, kCount));
  CHECK_CU(cuParamSetSize(add, 28));
  CHECK_CU(cuLaunch(add));
  e2e::expect(sum.get() == std::vector<float>(kCount, 3.75f), "parameters one by one");
}

void refused(const e2e::Session& session) {
  const CUfunction mix = session.function("mix");
  e2e::expect_result("an empty block", cuFuncSetBlockShape(mix, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  e2e::expect_result("an empty grid", cuLaunchGrid(mix, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

void bad(const e2e::Session& session) {
  const CUfunction mix = session.function("mix");
  e2e::expect_result("a parameter before the first", cuParamSeti(mix, -4, 1),
                     CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "run";
  {
    e2e::Session session;
    if (group == "run") {
      launches(session);
      numbers(session);
      refused(session);
    } else {
      bad(session);
    }
  }
  return e2e::finish();
}
