// SPDX-License-Identifier: Apache-2.0
// SOFTGPU_LOADING_WAITS=0: code is loaded beside whatever runs. A process of its own, which reads
// it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "api/prototypes.h"
#include "device_fake_engine.h"

namespace openmps::softgpu::testing {
namespace {

constexpr unsigned kLimitSeconds = 30;  // a load that waits never returns

bool load_beside_a_kernel() {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr word = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS ||
      cuMemAllocManaged(&word, 4, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS ||
      cuModuleLoadData(&module, kFakeImage) != CUDA_SUCCESS ||
      cuModuleGetFunction(&function, module, "run") != CUDA_SUCCESS) {
    return false;
  }
  *reinterpret_cast<uint32_t*>(word) = 0;
  FakeParameters parameters{FakeAction::kWait, word, 1};
  void* pointers[] = {&parameters.action, &parameters.address, &parameters.value};
  const bool loaded =
      cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, pointers, nullptr) == CUDA_SUCCESS &&
      cuModuleLoadData(&module, kFakeImage) == CUDA_SUCCESS &&
      cuModuleGetFunction(&function, module, "run") == CUDA_SUCCESS &&
      cuFuncLoad(function) == CUDA_SUCCESS && cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY;
  __atomic_store_n(reinterpret_cast<uint32_t*>(word), 1, __ATOMIC_RELEASE);
  return loaded && cuCtxDestroy_v2(context) == CUDA_SUCCESS;
}

TEST(LoadingOffTest, ALoadDoesNotWait) {
  setenv("SOFTGPU_DEVICE", ("softgpu-loading-" + std::to_string(getpid())).c_str(), 1);
  setenv("SOFTGPU_LOADING_WAITS", "0", 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(kLimitSeconds);
    exit(load_beside_a_kernel() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  unsetenv("SOFTGPU_LOADING_WAITS");
}

}  // namespace
}  // namespace openmps::softgpu::testing
