// SPDX-License-Identifier: Apache-2.0
// The gate through which every driver call goes that waits for all work queued in the shared
// context, and holds up other sessions' launches meanwhile (measured on an H200: for 200 ms when a
// neighbour had 200 ms queued, for 3 ms when it had 2). Today it makes the call at once and counts
// what it cost; quiescence points - executors pause feeding, the queue drains, pending calls are
// made together - belong here and nowhere else. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/cuda_abi.h"

namespace openmps::worker {

enum class GatedCall : uint32_t {
  kModuleLoad = 0,
  kLibraryLoad,   // does not wait itself (lazy), but belongs to the same moment
  kFunctionLoad,  // the first look at a function loads its code
  kModuleUnload,
  kLibraryUnload,
  kHostUnregister,
  kArrayCreate,  // not measured yet; taken for what cuMemAlloc and cuMemFree are
  kArrayDestroy,
  kCount,
};
const char* name_of(GatedCall call);

class ContextGate {
 public:
  struct Cost {
    uint64_t calls = 0;
    uint64_t total_ns = 0;
    uint64_t longest_ns = 0;
  };

  // `f` makes the driver call and returns its CUresult.
  template <typename F>
  CUresult run(GatedCall call, F&& f) {
    const uint64_t start = now_ns();
    const CUresult result = f();
    count(call, now_ns() - start);
    return result;
  }
  [[nodiscard]] Cost cost(GatedCall call) const;

 private:
  struct Counter {
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> total_ns{0};
    std::atomic<uint64_t> longest_ns{0};
  };
  void count(GatedCall call, uint64_t ns);

  std::array<Counter, static_cast<size_t>(GatedCall::kCount)> counters_;
};

}  // namespace openmps::worker
