// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 that records what a test tells it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cupti/activity.h"

namespace openmps::cupti::test {

// Its handles: the number of a context or stream, as a pointer.
template <typename Handle>
Handle handle(uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}

struct FakeDriver {
  bool has_table = true;
  CUresult start_result = CUDA_SUCCESS;
  const char* why = nullptr;
  std::atomic<uint64_t> lost{0};
  std::atomic<int> starts{0};
  std::atomic<int> stops{0};
  ActivitySink sink{};  // of the recording; null members: there is none
  std::function<void()> in_stop;
  // Told by the next flush(), as what has ended in another process.
  std::vector<std::pair<Activity, std::string>> ended;

  // As the driver's own threads do. Nothing if there is no recording.
  void tell(const Activity& activity, const char* name = nullptr) const {
    if (sink.take != nullptr) sink.take(sink.self, &activity, name);
  }
};

FakeDriver& fake_driver();

}  // namespace openmps::cupti::test
