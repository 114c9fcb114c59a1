// SPDX-License-Identifier: Apache-2.0
// The green contexts of this worker, one for each set of SMs that sessions have: makes them, finds
// them again, and keeps some that are not used. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "cuda/status.h"
#include "worker/device/devices.h"
#include "worker/device/placement.h"
#include "worker/partitions/sm_set.h"

namespace openmps::worker {

class ResourceDescriptors;

// A set of SMs as a green context.
struct SmPartition : GreenContext {
  SmSet set;
};
// Held while it is used, which is no longer than SmContexts exists.
using SmPart = std::shared_ptr<const SmPartition>;

class SmContexts {
 public:
  SmContexts(const DriverTable& driver, const Devices& devices, ResourceDescriptors& descriptors)
      : driver_(driver), devices_(devices), descriptors_(descriptors) {}
  // No SmPart is held any more.
  ~SmContexts();
  SmContexts(const SmContexts&) = delete;
  SmContexts& operator=(const SmContexts&) = delete;

  // Divide the device into groups of SMs, of its own step, and say in the layout which these are;
  // only once. CUDA_ERROR_NOT_SUPPORTED: the driver doesn't do that; others: those of
  // cuDevSmResourceSplitByCount.
  Status divide(uint32_t device, SmLayout* layout);
  // Divide it another way, into `remaining` SMs, which are whole steps, and the few others. False:
  // the driver doesn't do that. Before any such set is made.
  bool split_off_few(uint32_t device, uint32_t remaining);

  // The set's green context; null: there is none yet.
  [[nodiscard]] SmPart find(uint32_t device, const SmSet& set);
  // Make it, while nothing runs in the device's context: the driver waits for all work there.
  // Errors: those of cuDevSmResourceSplitByCount, cuDevResourceGenerateDesc and cuGreenCtxCreate.
  Result<SmPart> make(uint32_t device, const SmSet& set);

 private:
  struct Made : SmPartition {
    uint32_t users = 0;
  };
  struct OfDevice {
    std::vector<CUdevResource> groups;        // from one split, as the driver wants them
    CUdevResource few{}, remaining{};         // from another
    std::vector<std::unique_ptr<Made>> made;  // guarded by mutex_
  };

  // So many SMs of `all`, and what is left of these.
  CUresult split(const CUdevResource& all, uint32_t sms, CUdevResource* part, CUdevResource* left);
  Status create(SmPartition* partition);
  Result<CUgreenCtx> create_green(uint32_t device, std::span<const CUdevResource> resources);
  Status trim(const SmPartition& partition, std::vector<CUdevResource>* resources);
  // It counts as used; null: there is none. hold() gives it back, so without the lock.
  [[nodiscard]] Made* use_locked(uint32_t device, const SmSet& set) REQUIRES(mutex_);
  [[nodiscard]] SmPart hold(Made* used);
  void release(Made& made);

  const DriverTable& driver_;
  const Devices& devices_;
  ResourceDescriptors& descriptors_;
  Mutex mutex_{LockRank::kSmContexts};
  PerDevice<OfDevice> of_;
};

}  // namespace openmps::worker
