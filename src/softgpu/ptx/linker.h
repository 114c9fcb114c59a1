// SPDX-License-Identifier: Apache-2.0
// Several PTX modules into one, as text: what a device linker does for machine code. External
// symbols of one input meet their definitions in another; local ones keep apart. Called by
// cuLinkComplete's front; any thread. Input is untrusted.
#pragma once

#include <string>
#include <vector>

#include "cuda/status.h"

namespace openmps::softgpu::ptx {

struct LinkInput {
  std::string name;  // for messages
  std::string text;  // PTX that parse() has accepted
};

// PTX of all inputs. Errors, with a message as nvlink's: CUDA_ERROR_UNKNOWN (what NVIDIA's driver
// gives for a failed link): a symbol defined twice or nowhere; CUDA_ERROR_INVALID_PTX.
Result<std::string> link(const std::vector<LinkInput>& inputs);

}  // namespace openmps::softgpu::ptx
