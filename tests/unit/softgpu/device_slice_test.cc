// SPDX-License-Identifier: Apache-2.0
// Contexts of different processes take turns: asserted on the trace that the processes append to.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "api/prototypes.h"
#include "device_fake_engine.h"

namespace openmps::softgpu::testing {
namespace {

constexpr int kProcesses = 3;
// Some 100 ms of the fake engine's runs against slices of 200 us.
constexpr uint64_t kInstructions = 8ull << 30;

bool run_kernels() {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  FakeParameters parameters{FakeAction::kCount, 0, kInstructions};
  void* pointers[] = {&parameters.action, &parameters.address, &parameters.value};
  return cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS &&
         cuModuleLoadData(&module, kFakeImage) == CUDA_SUCCESS &&
         cuModuleGetFunction(&function, module, "run") == CUDA_SUCCESS &&
         cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, nullptr, pointers, nullptr) ==
             CUDA_SUCCESS &&
         cuCtxSynchronize() == CUDA_SUCCESS && cuCtxDestroy_v2(context) == CUDA_SUCCESS;
}

std::string field(const std::string& line, const std::string& key) {
  size_t at = line.find("\"" + key + "\":");
  if (at == std::string::npos) return "";
  at += key.size() + 3;
  return line.substr(at, line.find_first_of(",}", at) - at);
}

TEST(SliceTest, ProcessesNeverRunAtTheSameTime) {
  std::string trace = "/tmp/softgpu-slices-" + std::to_string(getpid());
  setenv("SOFTGPU_DEVICE", ("softgpu-slices-" + std::to_string(getpid())).c_str(), 1);
  setenv("SOFTGPU_TIMESLICE_US", "200", 1);
  setenv("SOFTGPU_TRACE", trace.c_str(), 1);
  for (int i = 0; i < kProcesses; ++i) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) exit(run_kernels() ? 0 : 1);
  }
  for (int i = 0; i < kProcesses; ++i) {
    int status = -1;
    ASSERT_GT(wait(&status), 0);
    EXPECT_EQ(status, 0);
  }
  std::ifstream file(trace);
  std::string owner;
  std::map<std::string, int> slices;
  int preemptions = 0;
  for (std::string line; std::getline(file, line);) {
    std::string pid = field(line, "pid");
    std::string name = field(line, "name");
    if (field(line, "cat") == "\"slice\"") {
      if (name == "\"acquire\"") {
        EXPECT_EQ(owner, "") << line;
        owner = pid;
        ++slices[pid];
      } else {
        EXPECT_EQ(owner, pid) << line;
        owner.clear();
        preemptions += name == "\"preempt\"" ? 1 : 0;
      }
    } else if (name == "\"complete\"") {
      EXPECT_EQ(owner, pid) << "a block ran outside its process's slice: " << line;
    }
  }
  EXPECT_EQ(slices.size(), static_cast<size_t>(kProcesses));
  // Whoever starts while another runs makes that one give way.
  EXPECT_GT(preemptions, 0);
  unlink(trace.c_str());
}

}  // namespace
}  // namespace openmps::softgpu::testing
