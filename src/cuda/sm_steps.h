// SPDX-License-Identifier: Apache-2.0
// How many SMs a client has that is limited to a part of a device (docs/decisions/0026). The same
// for the worker, which keeps to it, and for the client, which tells the program.
#pragma once

#include <algorithm>
#include <cstdint>

namespace openmps::cuda {

// How a device hands out its SMs.
struct SmSteps {
  uint32_t sms = 0;   // that it has
  uint32_t step = 0;  // of a part; 0: it makes no parts
  uint32_t most = 0;  // of all parts together, whole steps
};

inline constexpr double kWholePercentage = 100;

// Of an active thread percentage: rounded down to whole steps, as MPS does, one at least. A device
// that makes no parts is had as a whole.
inline uint32_t sms_of_percentage(const SmSteps& device, double percentage) {
  if (!(percentage < kWholePercentage) || device.step == 0) return device.sms;
  const auto sms = static_cast<uint32_t>(device.sms * std::max(percentage, 0.0) / kWholePercentage);
  return std::clamp(sms - sms % device.step, device.step, device.most);
}

// Of a number of SMs, the same way.
inline uint32_t sms_of_count(const SmSteps& device, uint32_t sms) {
  if (sms >= device.sms || device.step == 0) return device.sms;
  return std::clamp(sms - sms % device.step, device.step, device.most);
}

// Of both: the number, or if that is 0, the percentage.
inline uint32_t sms_of_limits(const SmSteps& device, uint32_t sms, double percentage) {
  return sms != 0 ? sms_of_count(device, sms) : sms_of_percentage(device, percentage);
}

// Of a number of SMs that a context asks for: rounded up, as CUDA does (cuCtxCreate_v3).
inline uint32_t sms_of_wish(const SmSteps& device, uint32_t sms) {
  if (device.step == 0 || sms > device.most) return device.sms;
  return std::max((sms + device.step - 1) / device.step, 1u) * device.step;
}

}  // namespace openmps::cuda
