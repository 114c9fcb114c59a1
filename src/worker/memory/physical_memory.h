// SPDX-License-Identifier: Apache-2.0
// One physical allocation of the driver (cuMemCreate), which is released with its last holder:
// several sessions may map it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "api/driver_table.h"
#include "base/mutex.h"
#include "cuda/status.h"
#include "worker/partitions/session_group.h"

namespace openmps::worker {

class Physical {
 public:
  // `bytes` 0: imported, the driver does not say how large it is.
  Physical(const DriverTable& driver, CUmemGenericAllocationHandle handle, uint64_t bytes,
           uint32_t device)
      : bytes(bytes), device(device), handle(handle), driver_(driver) {}
  ~Physical() { driver_.cuMemRelease(handle); }
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  const uint64_t bytes;
  const uint32_t device;
  const CUmemGenericAllocationHandle handle;

  // Another object in this worker may be of the same memory: sessions that share it have come from
  // another worker. It is never used for something else.
  void set_shared() { is_shared_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_shared() const { return is_shared_.load(std::memory_order_relaxed); }

  // What the allocation counts against a group's limit while a session of the group holds it. It
  // counts once in a group: `taken` becomes the charge of all sessions of the group, unless another
  // has become that. Null: no session of the group holds it, and nothing has been taken.
  [[nodiscard]] std::shared_ptr<GroupCharge> charge(const SessionGroup* group,
                                                    std::shared_ptr<GroupCharge> taken);

 private:
  const DriverTable& driver_;
  std::atomic<bool> is_shared_{false};
  Mutex mutex_{LockRank::kGroupCharges};
  std::vector<std::weak_ptr<GroupCharge>> charges_ GUARDED_BY(mutex_);  // one for each group
};

// Import memory by its descriptor. Errors: the driver's.
Result<CUmemGenericAllocationHandle> import_memory(const DriverTable& driver, int descriptor);

}  // namespace openmps::worker
