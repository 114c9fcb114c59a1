// SPDX-License-Identifier: Apache-2.0
// Fuzz target of softgpu's PTX parser and lowering: the input is the text of a module. It compiles
// to a consistent program, or is refused with a reason that JIT logs can show.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include "softgpu/engine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace openmps;
  if (size == 0 || data[0] >= 0x80) return 0;  // no text: fatbin_fuzz's input
  softgpu::CompileError error;
  const std::shared_ptr<const softgpu::Program> program =
      softgpu::compile(data, size, {.compute_capability = 90}, &error);
  if (program == nullptr) {
    if (error.code == CUDA_SUCCESS || error.log.empty()) abort();
    if (error.log.find('\0') != std::string::npos) abort();  // logs are C strings
    return 0;
  }
  for (const softgpu::KernelInfo& kernel : program->kernels()) {
    if (kernel.name.empty()) abort();
    for (const softgpu::ParameterInfo& parameter : kernel.parameters) {
      if (parameter.offset > kernel.parameter_bytes ||
          parameter.size > kernel.parameter_bytes - parameter.offset) {
        abort();
      }
    }
  }
  for (const softgpu::GlobalInfo& global : program->globals()) {
    // What places the globals divides by it.
    if (global.alignment == 0 || (global.alignment & (global.alignment - 1)) != 0) abort();
  }
  return 0;
}
