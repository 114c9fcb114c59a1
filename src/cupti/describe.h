// SPDX-License-Identifier: Apache-2.0
// Activities in words, for traces. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cupti/activity.h"

namespace openmps::cupti {

// "scale(float*, int)", "copy, host to device", "fill". `name`: of a kernel, mangled. Without
// characters that JSON would have to escape.
std::string title_of(const Activity& activity, std::string_view name);

// What else is known of it, as names and values: "grid", "64 x 1 x 1".
std::vector<std::pair<const char*, std::string>> fields_of(const Activity& activity);

}  // namespace openmps::cupti
