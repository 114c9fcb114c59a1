// SPDX-License-Identifier: Apache-2.0
// PTX of the cases: one kernel each, all in one module.
#pragma once

#include <string>
#include <vector>

#include "cases.h"

namespace conformance {

// The kernel of cases()[i] is named c<i>; parameters: inputs, outputs.
std::string module_text(const std::vector<size_t>& chosen);

}  // namespace conformance
