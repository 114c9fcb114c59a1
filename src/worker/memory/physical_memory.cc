// SPDX-License-Identifier: Apache-2.0
// See physical_memory.h.
#include "worker/memory/physical_memory.h"

#include "base/mutex.h"

namespace openmps::worker {

std::shared_ptr<GroupCharge> Physical::charge_of(const SessionGroup* group) {
  const MutexLock lock(mutex_);
  return charge_locked(group);
}

std::shared_ptr<GroupCharge> Physical::charge_locked(const SessionGroup* group) const {
  for (const std::weak_ptr<GroupCharge>& one : charges_) {
    std::shared_ptr<GroupCharge> charge = one.lock();
    if (charge != nullptr && charge->is_of(group)) return charge;
  }
  return nullptr;
}

std::shared_ptr<GroupCharge> Physical::charge(const SessionGroup* group,
                                              std::shared_ptr<GroupCharge> taken) {
  const MutexLock lock(mutex_);
  if (std::shared_ptr<GroupCharge> there = charge_locked(group); there != nullptr) return there;
  std::erase_if(charges_, [](const auto& one) { return one.expired(); });
  charges_.push_back(taken);
  return taken;
}

}  // namespace openmps::worker
