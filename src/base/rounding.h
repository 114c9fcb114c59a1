// SPDX-License-Identifier: Apache-2.0
// Sizes and addresses in whole units. Pure, any thread.
#pragma once

#include <cstdint>

namespace openmps {

// The smallest multiple of `unit` that is not below `value`. `unit` is not 0, and the result fits.
constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace openmps
