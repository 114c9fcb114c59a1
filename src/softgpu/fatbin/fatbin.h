// SPDX-License-Identifier: Apache-2.0
// Finds the PTX in what a program hands to cuModuleLoadData: a fatbin wrapper, a bare container,
// PTX text or a cubin. Input is untrusted; every size is checked. Called by compile(); any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/fatbin.h"

namespace openmps::softgpu::fatbin {

// Text of one module after decompression: nvcc's largest libraries are below a tenth of this.
inline constexpr size_t kMaxTextBytes = size_t{256} << 20;

// The newest PTX whose target a device of `compute_capability` runs; of a program linked from
// several objects (nvcc -rdc=true) that of each, to be linked. `size`: bytes known to be readable,
// SIZE_MAX if the image's own headers (or the NUL of a text) must tell.
// CUDA_ERROR_NO_BINARY_FOR_GPU: only machine code, or only PTX for newer devices;
// CUDA_ERROR_INVALID_IMAGE: not an image, or a damaged one.
Result<std::vector<std::string>> extract_ptx(const void* image, size_t size,
                                             uint32_t compute_capability);

// CUDA_ERROR_JIT_COMPILATION_DISABLED: the program's environment says that PTX is not compiled.
Status check_ptx();

// Text that has a version, which is the first thing that PTX says.
bool is_ptx(const std::string& text);

// A container with what nvcc links for kernels that launch kernels, which the interpreter does by
// itself. There is PTX of it for the newest architecture only, whatever the program is for.
bool is_runtime_library(cuda::Bytes container);

}  // namespace openmps::softgpu::fatbin
