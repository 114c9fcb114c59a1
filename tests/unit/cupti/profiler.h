// SPDX-License-Identifier: Apache-2.0
// What a profiler has: the functions of one of our libraries, buffers, and the records in them. The
// tests that use it run with both libraries.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cupti/abi.h"
#include "fake_driver.h"

namespace openmps::cupti::test {

class Profiler : public testing::TestWithParam<int> {  // 12 or 13
 public:
  // One at a time, as CUPTI's callbacks say nothing of whose they are.
  struct Buffers {
    std::mutex lock;
    size_t bytes = size_t{1} << 20;  // of each; 0: there is none to be had
    size_t most_records = 0;
    int requested = 0;
    int completed = 0;
    std::vector<size_t> valid;                  // bytes of those that were completed
    std::vector<std::vector<uint8_t>> records;  // in their order
    std::function<void()> in_complete;

    int outstanding() const { return requested - completed; }
  };

 protected:
  void SetUp() override;
  void TearDown() override;

  // The library's function of that name.
  template <typename... Arguments>
  CUptiResult cupti(const char* name, Arguments... arguments) {
    auto* const function = reinterpret_cast<CUptiResult (*)(Arguments...)>(symbol(name));
    EXPECT_NE(function, nullptr) << name;
    return function == nullptr ? CUPTI_ERROR_UNKNOWN : function(arguments...);
  }
  CUptiResult enable(CUpti_ActivityKind kind) { return cupti("cuptiActivityEnable", kind); }
  CUptiResult disable(CUpti_ActivityKind kind) { return cupti("cuptiActivityDisable", kind); }
  CUptiResult flush() { return cupti("cuptiActivityFlushAll", 1u); }
  void register_callbacks();
  size_t dropped();
  uint64_t timestamp();
  // The records so far, all of which are of kind T.
  template <typename T>
  std::vector<T> records_as() {
    std::vector<T> found;
    for (const std::vector<uint8_t>& bytes : buffers().records) {
      T record{};
      memcpy(&record, bytes.data(), std::min(sizeof record, bytes.size()));
      found.push_back(record);
    }
    return found;
  }
  std::vector<CUpti_ActivityKind> kinds();

  static Buffers& buffers();
  static FakeDriver& driver() { return fake_driver(); }

 private:
  void* symbol(const char* name);
  static void request(uint8_t** buffer, size_t* size, size_t* most);
  static void complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size,
                       size_t valid);

  void* library_ = nullptr;
};

// Of work that ran from `begin` ns ago for 10 ns.
Activity activity(ActivityKind kind, uint32_t correlation, uint64_t ns_ago = 1000);

}  // namespace openmps::cupti::test
