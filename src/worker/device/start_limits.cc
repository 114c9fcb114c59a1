// SPDX-License-Identifier: Apache-2.0
// See start_limits.h.
#include "worker/device/start_limits.h"

#include <string>

#include "base/environment.h"
#include "base/text.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

Status set_limit(const DriverTable& driver, const Devices& devices, const char* variable,
                 CUlimit limit) {
  const std::string text = environment_or(variable, "");
  if (text.empty()) return Status();
  const std::string setting = variable + ("=" + printable(text));
  const std::optional<uint64_t> bytes = parse_bytes(text);
  if (!bytes) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  setting + " is not a size such as 65536, 64K, 256M, 2G");
  }
  for (const uint32_t i : devices.used()) {
    OPENMPS_RETURN_IF_ERROR(
        check(driver.cuCtxSetCurrent(devices.at(i).context), "cuCtxSetCurrent"));
    size_t granted = 0;
    CUresult result = driver.cuCtxSetLimit(limit, *bytes);
    if (result == CUDA_SUCCESS) result = driver.cuCtxGetLimit(&granted, limit);
    if (result != CUDA_SUCCESS || granted < *bytes) {
      return Status(CUDA_ERROR_INVALID_VALUE,
                    format_text("%s: device %u grants %zu bytes (CUDA error %d)", setting.c_str(),
                                i, granted, static_cast<int>(result)));
    }
  }
  return Status();
}

}  // namespace

Status set_start_limits(const DriverTable& driver, const Devices& devices) {
  OPENMPS_RETURN_IF_ERROR(
      set_limit(driver, devices, "OPENMPS_MALLOC_HEAP", CU_LIMIT_MALLOC_HEAP_SIZE));
  return set_limit(driver, devices, "OPENMPS_STACK", CU_LIMIT_STACK_SIZE);
}

}  // namespace openmps::worker
