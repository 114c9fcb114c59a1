// SPDX-License-Identifier: Apache-2.0
// Finds the PTX in what nvcc leaves for the host's linker: ELF objects with fatbins in them, and
// archives of such. Input is untrusted; every size is checked. Called for links of the driver
// (cuLinkAdd*); any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/status.h"

namespace openmps::softgpu::fatbin {

struct ObjectText {
  std::string name;  // of the object, behind that of its archive
  std::string text;  // PTX
};

// One text for each container with device code; of the device runtime's library, none
// (ptx/device_calls.h). `name`: of the input, for messages, which name the object at fault.
// Errors: CUDA_ERROR_INVALID_IMAGE: neither object nor archive, damaged, or without device code;
// CUDA_ERROR_NO_BINARY_FOR_GPU: machine code only, or only PTX for newer devices.
Result<std::vector<ObjectText>> extract_objects(const std::string& name, const void* data,
                                                size_t size, uint32_t compute_capability);

}  // namespace openmps::softgpu::fatbin
