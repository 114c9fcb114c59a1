// SPDX-License-Identifier: Apache-2.0
// `openmps doctor`: which driver, daemon and server a program would get from here, and why.
#pragma once

namespace openmps::cli {

// Prints a line per finding. Exit status: 0, or 1 if there is an obstacle.
int run_doctor();

}  // namespace openmps::cli
