// SPDX-License-Identifier: Apache-2.0
// The objects of a worker that all sessions use, beside the driver, the devices and the gate.
// main() makes them; SessionParts gives each part of a session those that the part uses. Nothing
// below session/ includes this file.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/mutex.h"
#include "wire/trace.h"
#include "worker/admission/fair_share.h"
#include "worker/admission/queue_credits.h"
#include "worker/core/keeper.h"
#include "worker/device/cold_lane.h"
#include "worker/device/devices.h"
#include "worker/device/resource_descriptors.h"
#include "worker/device/stream_slots.h"
#include "worker/device/usage.h"
#include "worker/device/value_watch.h"
#include "worker/images/image_memory.h"
#include "worker/images/image_store.h"
#include "worker/ipc/exchange.h"
#include "worker/memory/address_book.h"
#include "worker/memory/host_store.h"
#include "worker/memory/memory_cache.h"
#include "worker/memory/pressure.h"
#include "worker/partitions/sm_partitions.h"
#include "worker/printing/kernel_output.h"
#include "worker/recording/recorder.h"
#include "worker/session/performance.h"

namespace openmps::worker {

struct WorkerParts {
  explicit WorkerParts(const Clock& clock) : clock(clock) {}

  const Clock& clock;
  Performance performance;
  AddressBook addresses;
  std::unique_ptr<Keeper> keeper;  // null: nothing is kept for a next worker
  Exchange exchange;
  ImageStore images;
  KernelOutput output{clock};
  ResourceDescriptors descriptors;
  MemoryCache kept_memory;
  std::shared_ptr<HostStore> store;  // null: no memory is moved to the host
  MemoryPressure pressure{clock};
  // Sessions that are being made again.
  std::atomic<uint32_t> adoptions{0};
  UsageRows usage;                        // without a table unless main() makes one
  Mutex limits{LockRank::kSharedLimits};  // held while a limit of a shared context is raised, so
                                          // that none is lowered
  PerDevice<QueueCredits> credits;
  PerDevice<FairShares> shares;
  // Of the main contexts; null: nobody counts the streams of that device.
  PerDevice<std::shared_ptr<StreamSlots>> slots;
  // Null: every session has all SMs.
  std::shared_ptr<SmPartitions> partitions;
  // Null: code is loaded when the work of the main context has ended.
  std::unique_ptr<ColdLanes> cold;
  // Null: each executor looks by itself whether the values have come that its streams wait for.
  std::unique_ptr<ValueWatch> value_watch;
  std::unique_ptr<ImageMemory> memory;  // null: code is not remembered on disk
  std::shared_ptr<wire::Trace> trace;   // null: no trace is wanted
  std::unique_ptr<Recorder> recorder;   // null: nothing can be recorded
};

}  // namespace openmps::worker
