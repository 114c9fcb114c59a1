// SPDX-License-Identifier: Apache-2.0
// The driver's resource descriptors of this worker. CUDA has no call that destroys one, so equal
// resources get one descriptor, whichever session asks and however often. Any thread.
#pragma once

#include <map>
#include <span>
#include <string>

#include "api/driver_table.h"
#include "base/mutex.h"
#include "cuda/status.h"

namespace openmps::worker {

class ResourceDescriptors {
 public:
  // The resources came from this driver. Errors: those of cuDevResourceGenerateDesc.
  Result<CUdevResourceDesc> get(const DriverTable& driver,
                                std::span<const CUdevResource> resources);

 private:
  Mutex mutex_{LockRank::kResourceDescriptors};
  std::map<std::string, CUdevResourceDesc> made_
      GUARDED_BY(mutex_);  // by the bytes of the resources
};

}  // namespace openmps::worker
