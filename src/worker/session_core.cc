// SPDX-License-Identifier: Apache-2.0
// See session_core.h.
#include "worker/session_core.h"

#include <utility>

#include "worker/driver_check.h"

namespace openmps::worker {

SessionCore::SessionCore(const DriverTable& driver_table, const Devices& all_devices,
                         ContextGate& context_gate, Commons& worker_commons,
                         SessionInfo session_info)
    : driver(driver_table),
      devices(all_devices),
      gate(context_gate),
      commons(worker_commons),
      info(std::move(session_info)) {
  gate.add(feeder);
}

SessionCore::~SessionCore() { gate.remove(feeder); }

Status SessionCore::check_device(uint32_t device) const {
  if (device < devices.count()) return Status();
  return violation("there is no device " + std::to_string(device));
}

Status SessionCore::use(uint32_t device) {
  if (device == current_) return Status();
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuCtxSetCurrent(devices.at(device).context), "cuCtxSetCurrent"));
  current_ = device;
  return Status();
}

CUdeviceptr SessionCore::device_address(uint64_t address) const {
  const uint64_t channel = device_end() + wire::kRegisteredOffset;
  const bool in_channel = address >= channel && address < device_end() + wire::kRegisteredEnd;
  return in_channel ? address + channel_delta : address;
}

}  // namespace openmps::worker
