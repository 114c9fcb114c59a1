// SPDX-License-Identifier: Apache-2.0
// Which of the two this process is: a client of OpenMPS, or a program on the driver below. Decided
// once, at the first call into the library, on the thread that makes it.
#pragma once

#include <string>

#include "cuda/abi.h"

namespace openmps::client {

// Path of the daemon's socket for this process, as it was decided.
[[nodiscard]] const std::string& control_socket_path();

// CUDA_SUCCESS if there is a daemon; otherwise (and without a driver below) what cuInit answers.
[[nodiscard]] CUresult mode_error();

}  // namespace openmps::client
