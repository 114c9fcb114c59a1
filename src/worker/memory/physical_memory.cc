// SPDX-License-Identifier: Apache-2.0
// See physical_memory.h.
#include "worker/memory/physical_memory.h"

#include "base/mutex.h"
#include "worker/device/driver_check.h"

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

Result<CUmemGenericAllocationHandle> import_memory(const DriverTable& driver, int descriptor) {
  CUmemGenericAllocationHandle handle = 0;
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuMemImportFromShareableHandle(
                &handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "cuMemImportFromShareableHandle"));
  return handle;
}

}  // namespace openmps::worker
