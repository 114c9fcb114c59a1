// SPDX-License-Identifier: Apache-2.0
// The variables of an image: which of them can differ from program to program, and code that uses
// the variables of another load of the image. Any thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/elf.h"

namespace openmps::worker {

using ImageBytes = std::vector<unsigned char>;

// By its name, a constant that nvcc, NVIDIA's C++ libraries or CuPy's headers add to a program's
// own variables: string literals, tables of mathematical functions, objects without state, numbers
// of a class template. No program writes it, so one copy serves all.
bool is_nobodys(std::string_view name, bool is_initialised);
// A variable in constant memory that no program writes: device code can't write constant memory,
// and host code can't name what is local to a function (CUTLASS has two in most of cuBLASLt's
// images).
bool is_nobodys_constant(std::string_view name);

// A variable in device memory that a program may write. `sections`: those of its image.
bool is_variable(const cuda::ElfSymbol& symbol, const std::vector<cuda::ElfSection>& sections);
// A variable in constant memory, whether or not a program may write it.
bool is_in_constants(const cuda::ElfSymbol& symbol, const std::vector<cuda::ElfSection>& sections);

// The code that `image` has for a device of that capability declares a constant of this name; true
// where the code can't be read. `image` has passed check_image_bounds.
bool declares_constant(cuda::Bytes image, uint32_t capability, std::string_view name);

// Of every variable, and of every section of them: what any vector load may need.
inline constexpr uint64_t kVariableAlignment = 256;

// The variables in device memory that the code of an image for a device has, one behind the other
// as they are to lie in memory outside of the context, and what they contain at first: zeros, but
// for `contents`.
struct VariableLayout {
  struct Variable {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct Contents {
    uint64_t offset = 0;
    ImageBytes bytes;
  };
  std::map<std::string, Variable, std::less<>> variables;  // by their names in the table of symbols
  std::vector<Contents> contents;
  uint64_t bytes = 0;  // of all
};
// `image` has passed check_image_bounds; of more than `most` bytes of code nothing is read. Errors:
// CUDA_ERROR_NOT_SUPPORTED with the reason, where the code can't be read, or a variable begins with
// an address, which only the driver's loader knows.
Result<VariableLayout> lay_out_variables(cuda::Bytes image, uint32_t capability, uint64_t most);

// Variables of larger code are not placed: that copies it and loads it once more. What programs
// bring themselves is smaller.
inline constexpr uint64_t kMostPlacedBytes = uint64_t{16} << 20;

// Finds a variable's address by its name in the table of symbols.
using FindVariable = std::function<Result<CUdeviceptr>(const std::string& name)>;

// The code that `image` has for a device of that capability, a cubin or, without any machine code,
// PTX with a NUL behind it, with its variables at the addresses that `find` gives: code loaded from
// it uses those, and has some of its own that are not used. `image` has passed check_image_bounds.
// Errors: CUDA_ERROR_NOT_SUPPORTED with the reason, where there is no code, more than one suitable
// piece, more than `most` bytes of it, or an address that is named in an unknown way (decision 32);
// those of `find`.
Result<ImageBytes> place_variables(cuda::Bytes image, uint32_t capability, uint64_t most,
                                   const FindVariable& find);

}  // namespace openmps::worker
