// SPDX-License-Identifier: Apache-2.0
// What tests of the device model share: a context of their own, the fake kernels, and the trace.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/prototypes.h"
#include "device_fake_engine.h"

namespace openmps::softgpu::testing {

// The modelled machine of these tests.
inline constexpr int kDevices = 2;
inline constexpr int kSms = 4;
inline constexpr int kBlocksPerSm = 32;
inline constexpr int kStreamItems = 1020;  // of an H200

// One line of the trace file.
struct TraceEvent {
  std::string name;
  std::string category;
  std::string kernel;
  uint64_t sequence = 0;
  uint64_t stream = 0;
  uint64_t launch = 0;
};

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void launch(CUstream stream, FakeAction action, uint64_t address = 0, uint64_t value = 0,
              unsigned blocks = 1, unsigned threads = 32);
  CUresult try_launch(CUfunction function, CUstream stream, FakeParameters parameters,
                      unsigned blocks = 1, unsigned threads = 32, unsigned shared = 0);
  CUfunction function(const char* name);
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING, int priority = 0);
  CUevent event(unsigned flags = 0);
  // Zeroed device memory, which the host may read, too.
  uint32_t* words(size_t count);
  static uint64_t address_of(const uint32_t* word) { return reinterpret_cast<uint64_t>(word); }
  static void store(uint32_t* word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
  static uint32_t load(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

  // The trace since the test began.
  std::vector<TraceEvent> trace() const;
  static uint64_t stream_id(CUstream stream);

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;

 private:
  size_t trace_begin_ = 0;
};

}  // namespace openmps::softgpu::testing

#define EXPECT_CU(expression) EXPECT_EQ(expression, CUDA_SUCCESS)
#define ASSERT_CU(expression) ASSERT_EQ(expression, CUDA_SUCCESS)
