// SPDX-License-Identifier: Apache-2.0
// The recorder's source on NVIDIA's driver: CUPTI's activity records (kernels, copies, fills),
// which a process can have of its own driver. While it is attached each launch costs the driver
// some microseconds more (docs/profiling.md); cuptiFinalize() takes it away again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cupti/abi.h"
#include "worker/recording/calls.h"
#include "worker/recording/source.h"

namespace openmps::worker {

// CUPTI's functions that are used; null: not in this library.
struct CuptiFunctions;

class CuptiSource final : public ActivitySource {
 public:
  // Where a libcupti is looked for, in this order, when something is to be recorded for the first
  // time. One of them per process: CUPTI's callbacks name no owner.
  explicit CuptiSource(std::vector<std::string> places);
  ~CuptiSource() override;

  Status start(Listener& listener) override;
  void stop() override;
  void flush(Flush how) override;
  [[nodiscard]] uint64_t lost() const override { return lost_.load(std::memory_order_relaxed); }

 private:
  Status load();
  Status attach();
  void detach();
  // A call that gives work begins, or ends.
  static void on_call(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId function,
                      const void* data);
  // On any thread.
  static void on_buffer_full(CUcontext context, uint32_t stream, uint8_t* buffer, size_t bytes,
                             size_t used);
  void read(uint8_t* buffer, size_t bytes);

  const std::vector<std::string> places_;
  const CuptiFunctions* functions_ = nullptr;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::atomic<Listener*> listener_{nullptr};
  std::atomic<uint64_t> lost_{0};
  std::unique_ptr<RecordedCalls> calls_;
};

}  // namespace openmps::worker
