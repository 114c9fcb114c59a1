// SPDX-License-Identifier: Apache-2.0
// See sm_footprint.h.
#include "worker/code/sm_footprint.h"

#include <algorithm>

namespace openmps::worker {

uint32_t SmFootprint::average(uint64_t blocks, uint32_t sms, uint32_t resident) {
  if (blocks <= sms) return static_cast<uint32_t>(blocks);
  const uint64_t wave = uint64_t{sms} * resident;
  const uint64_t whole = blocks / wave;
  const uint64_t last = std::min<uint64_t>(blocks % wave, sms);
  const uint64_t waves = whole + (last != 0 ? 1 : 0);
  return static_cast<uint32_t>((whole * sms + last + waves / 2) / waves);
}

}  // namespace openmps::worker
