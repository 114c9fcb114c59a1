// SPDX-License-Identifier: Apache-2.0
// Compiles one kernel for one shape of its blocks. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "softgpu/interp/compiled.h"
#include "softgpu/ir/code.h"
#include "softgpu/tier/launch_shape.h"
#include "softgpu/tier/object_code.h"

namespace openmps::softgpu::tier {

// False: so many ops would be calls of handlers that the interpreter is faster.
bool is_worthwhile(const Code& code);

// What is kept of a compiled kernel, also on disk.
struct CompiledImage {
  ObjectCode code;
  std::vector<uint32_t> entries;  // ops where the function may be entered
  uint32_t state_bytes = 0;
};

// False: there is no LLVM, or it is not for this kernel; `why` says so.
bool compile_kernel(const Code& code, const LaunchShape& shape, CompiledImage* image,
                    std::string* why);
// The kernel's code with `image` in it.
struct InstalledKernel {
  std::unique_ptr<Code> code;
  CompiledKernel compiled;
  ExecutableCode executable;
  explicit InstalledKernel(const CompiledImage& image) : executable(image.code) {}
};
// A copy whose parts refer to each other as the original's do.
std::unique_ptr<Code> copy_code(const Code& code);
std::unique_ptr<InstalledKernel> install_kernel(const Code& code, const CompiledImage& image);

}  // namespace openmps::softgpu::tier
