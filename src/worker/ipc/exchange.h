// SPDX-License-Identifier: Apache-2.0
// What sessions of this worker share with each other: physical memory and events, found by random
// keys. Who was given a key by its owner may open what it names; what has been opened outlives the
// session that made it. One per worker, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "api/driver_table.h"
#include "wire/commands/memory.h"
#include "wire/trace.h"
#include "worker/admission/fair_share.h"
#include "worker/admission/queue_credits.h"
#include "worker/device/cold_lane.h"
#include "worker/device/resource_descriptors.h"
#include "worker/device/usage.h"
#include "worker/device/value_watch.h"
#include "worker/images/image_memory.h"
#include "worker/images/image_store.h"
#include "worker/ipc/address_book.h"
#include "worker/ipc/memory_cache.h"
#include "worker/partitions/session_group.h"
#include "worker/partitions/sm_partitions.h"
#include "worker/printing/kernel_output.h"

namespace openmps::worker {

// One physical object of the driver; it goes with its last holder.
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

  // What it takes of a group's group, as long as a session of the group holds it; null: nothing.
  [[nodiscard]] std::shared_ptr<GroupCharge> share_of(const SessionGroup* group);
  // It takes that, for all of the group; or what it has been given for them meanwhile.
  [[nodiscard]] std::shared_ptr<GroupCharge> share(const SessionGroup* group,
                                                   std::shared_ptr<GroupCharge> taken);

 private:
  [[nodiscard]] std::shared_ptr<GroupCharge> share_locked(const SessionGroup* group) const;

  const DriverTable& driver_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<GroupCharge>> shares_;  // guarded by mutex_; one for each group
};

// One event of the driver.
class DriverEvent {
 public:
  DriverEvent(const DriverTable& driver, CUevent handle, uint32_t device)
      : handle(handle), device(device), driver_(driver) {}
  ~DriverEvent() { driver_.cuEventDestroy_v2(handle); }
  DriverEvent(const DriverEvent&) = delete;
  DriverEvent& operator=(const DriverEvent&) = delete;

  const CUevent handle;
  const uint32_t device;

 private:
  const DriverTable& driver_;
};

// Of one session at a time: bounds what a client can make the worker hold.
inline constexpr uint32_t kMaxOffers = 1u << 16;

class Exchange {
 public:
  // Publish under a fresh key. False: kMaxOffers, or the system gives no random numbers.
  [[nodiscard]] bool publish(uint32_t session, std::shared_ptr<Physical> memory,
                             wire::ShareKey* key);
  [[nodiscard]] bool publish(uint32_t session, std::shared_ptr<DriverEvent> event,
                             wire::ShareKey* key);
  // What a key names; null if nothing (any more).
  [[nodiscard]] std::shared_ptr<Physical> memory(const wire::ShareKey& key);
  [[nodiscard]] std::shared_ptr<DriverEvent> event(const wire::ShareKey& key);
  // Nobody can open it any more. Only the session that published it may say so: false otherwise.
  bool withdraw(uint32_t session, const wire::ShareKey& key);
  // The same for all that a session published; it ends.
  void withdraw_all(uint32_t session);

 private:
  using Key = std::array<unsigned char, sizeof(wire::ShareKey)>;
  struct Offer {
    uint32_t session = 0;
    std::shared_ptr<Physical> memory;
    std::shared_ptr<DriverEvent> event;
  };
  bool add(Offer offer, wire::ShareKey* key);

  std::mutex mutex_;
  std::map<Key, Offer> offers_;
  std::map<uint32_t, uint32_t> counts_;  // of offers, by session
};

// What makes a worker faster, each of which can be switched off (OPENMPS_PERF).
struct Performance {
  bool holds_waits = true;     // docs/decisions/0017
  bool windows = true;         // docs/decisions/0018
  bool batches = true;         // docs/decisions/0020; they need windows
  bool store = true;           // ImageStore::keep, docs/decisions/0022
  bool connections = true;     // docs/decisions/0023; they need windows
  bool value_watch = true;     // docs/decisions/0017
  bool lingers = true;         // worker/session/spinning.h
  bool spares_cores = true;    // base/cores.h
  bool naps = true;            // worker/session/spinning.h; while cores are spared
  bool policy = true;          // docs/decisions/0025; it needs windows
  bool rank_sms = true;        // docs/decisions/0028; it needs windows
  bool few_sms = true;         // docs/decisions/0031; it needs windows
  bool slots = true;           // docs/decisions/0033
  bool parallel_facts = true;  // docs/decisions/0034
};

// What all sessions of a worker have in common beside the driver.
struct Commons {
  AddressBook addresses;
  Exchange exchange;
  ImageStore images;
  KernelOutput output;
  ResourceDescriptors descriptors;
  std::shared_ptr<SmPartitions> partitions;  // null: sessions have all SMs
  std::mutex limits;  // held by who raises a limit of a shared context, so that none is lowered
  std::unique_ptr<ColdLanes> cold;  // null: loading code waits for what is under way
  MemoryCache kept_memory;
  std::shared_ptr<wire::Trace> trace;  // null: nobody asks
  Performance performance;
  uint32_t rank_sms = 0;                    // OPENMPS_RANK_SMS: SmPartitions::keep_for_ranks()
  std::unique_ptr<ValueWatch> value_watch;  // null: executors look for values themselves
  UsageRows usage;                          // without a table unless main() makes one
  std::unique_ptr<ImageMemory> memory;      // null: nothing is remembered on disk
  std::array<QueueCredits, wire::kMaxDevices> connections;
  // Of the main contexts; null: nobody counts them.
  std::array<std::shared_ptr<StreamSlots>, wire::kMaxDevices> slots;
  std::array<FairShares, wire::kMaxDevices> shares;
};

}  // namespace openmps::worker
