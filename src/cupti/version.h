// SPDX-License-Identifier: Apache-2.0
// What a library says that it is. Each has a version.cc of its own (CMakeLists.txt).
#pragma once

#include <cstdint>

namespace openmps::cupti {

extern const uint32_t kVersion;  // CUPTI_API_VERSION

}  // namespace openmps::cupti
