// SPDX-License-Identifier: Apache-2.0
// The variables of an image: which of them can differ from program to program, and code that uses
// those of another load of the same image. Any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/elf.h"

namespace openmps::worker {

using ImageBytes = std::vector<unsigned char>;

// A constant that nvcc, NVIDIA's C++ libraries or CuPy's headers put beside a program's own
// variables, by its name: string literals, tables of mathematical functions, objects without state,
// numbers of a class template. Nobody writes it, so one copy is as good as another.
bool is_nobodys(std::string_view name, bool is_initialised);
// The same of what is in constant memory, which no device code writes: what a function has for
// itself no host code can name, either (CUTLASS has two in most of cuBLASLt's images).
bool is_nobodys_constant(std::string_view name);

// In device memory, not nobody's. `sections`: those of its image.
bool is_variable(const cuda::ElfSymbol& symbol, const std::vector<cuda::ElfSection>& sections);
// In constant memory, whosever.
bool is_in_constants(const cuda::ElfSymbol& symbol, const std::vector<cuda::ElfSection>& sections);

// Whether the code that `image` has for a device of that capability declares a constant of this
// name; true where that can't be read. `image` has passed check_image_bounds.
bool declares_constant(cuda::Bytes image, uint32_t capability, std::string_view name);

// Where a variable is, by its name in the table of symbols.
using FindVariable = std::function<Result<CUdeviceptr>(const std::string& name)>;

// The code that `image` has for a device of that capability, a cubin or, without any machine code,
// PTX, with a NUL behind it, whose variables are where `find` says: what is loaded from it uses
// those, and has some of its own that nobody uses. `image` has passed check_image_bounds. Errors:
// CUDA_ERROR_NOT_SUPPORTED with the reason, where there is no code or more than one piece that
// would do, more than `most` bytes of it, or an address is named in a way that is not known
// (decision 32); those of `find`.
Result<ImageBytes> place_variables(cuda::Bytes image, uint32_t capability, uint64_t most,
                                   const FindVariable& find);

}  // namespace openmps::worker
