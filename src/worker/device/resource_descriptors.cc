// SPDX-License-Identifier: Apache-2.0
// Descriptors by what they describe. See resource_descriptors.h.
#include "worker/device/resource_descriptors.h"

#include <vector>

#include "base/mutex.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {

Result<CUdevResourceDesc> ResourceDescriptors::get(const DriverTable& driver,
                                                   std::span<const CUdevResource> resources) {
  const std::string key(reinterpret_cast<const char*>(resources.data()), resources.size_bytes());
  const MutexLock lock(mutex_);
  if (const auto found = made_.find(key); found != made_.end()) return found->second;
  std::vector<CUdevResource> copy(resources.begin(), resources.end());
  CUdevResourceDesc descriptor = nullptr;
  OPENMPS_RETURN_IF_ERROR(check(driver.cuDevResourceGenerateDesc(
                                    &descriptor, copy.data(), static_cast<unsigned>(copy.size())),
                                "cuDevResourceGenerateDesc"));
  made_.emplace(key, descriptor);
  return descriptor;
}

}  // namespace openmps::worker
