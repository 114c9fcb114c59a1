// SPDX-License-Identifier: Apache-2.0
// See physical_memory.h.
#include "worker/memory/physical_memory.h"

#include "base/mutex.h"

namespace openmps::worker {

std::shared_ptr<GroupCharge> Physical::charge(const SessionGroup* group,
                                              std::shared_ptr<GroupCharge> taken) {
  const MutexLock lock(mutex_);
  for (const std::weak_ptr<GroupCharge>& one : charges_) {
    std::shared_ptr<GroupCharge> charge = one.lock();
    if (charge != nullptr && charge->is_of(group)) return charge;
  }
  std::erase_if(charges_, [](const auto& one) { return one.expired(); });
  if (taken != nullptr) charges_.push_back(taken);
  return taken;
}

}  // namespace openmps::worker
