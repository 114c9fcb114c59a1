// SPDX-License-Identifier: Apache-2.0
// The recorder's source where the driver tells by itself when work has run: softgpu's table
// (cupti/activity.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "worker/recording/calls.h"
#include "worker/recording/source.h"

namespace openmps::worker {

class TableSource final : public ActivitySource {
 public:
  explicit TableSource(const cupti::ActivityTable& table) : table_(table) {}
  ~TableSource() override;

  Status start(Listener& listener) override;
  void stop() override;
  void flush(Flush how) override;
  [[nodiscard]] uint64_t lost() const override { return table_.lost(); }

 private:
  struct Early {
    cupti::Activity activity;
    std::string name;
    uint32_t round = 0;  // of flush()
  };
  static void take(void* self, const cupti::Activity* activity, const char* name);
  void tell(const cupti::Activity& activity, const char* name);

  const cupti::ActivityTable& table_;
  std::atomic<Listener*> listener_{nullptr};
  std::unique_ptr<RecordedCalls> calls_;
  Mutex mutex_{LockRank::kActivitySource};
  // Short work is told before the call that gave it.
  std::deque<Early> early_ GUARDED_BY(mutex_);
  uint32_t round_ GUARDED_BY(mutex_) = 0;
};

}  // namespace openmps::worker
