// SPDX-License-Identifier: Apache-2.0
// Ranges of addresses that a client names: checks, and their text for errors.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/status.h"

namespace openmps::worker {

// "[0x7f0000000000, +0x200000)"
std::string range_text(uint64_t address, uint64_t bytes);

// [address, address + bytes) lies in [begin, end), in whole units; otherwise a violation.
Status check_range(uint64_t address, uint64_t bytes, uint64_t begin, uint64_t end, uint64_t unit);

}  // namespace openmps::worker
