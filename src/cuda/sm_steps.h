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

// Whole steps, one at least: a device that makes no parts is had as a whole.
inline uint32_t whole_steps(const SmSteps& device, uint32_t sms) {
  if (device.step == 0) return device.sms;
  return std::clamp(sms - sms % device.step, device.step, device.most);
}

// Of an active thread percentage, rounded down, as MPS does.
inline uint32_t sms_of_percentage(const SmSteps& device, double percentage) {
  if (!(percentage < kWholePercentage)) return device.sms;
  return whole_steps(
      device, static_cast<uint32_t>(device.sms * std::max(percentage, 0.0) / kWholePercentage));
}

// Of a number of SMs, rounded up, as MPS does with execution affinity.
inline uint32_t sms_of_count(const SmSteps& device, uint32_t wanted) {
  if (wanted > device.most) return device.sms;
  return whole_steps(device, wanted + device.step - 1);
}

}  // namespace openmps::cuda
