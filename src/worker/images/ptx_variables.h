// SPDX-License-Identifier: Apache-2.0
// The variables of a PTX text, and the text with its variables at other addresses: code that was
// loaded in the cold context moves without copying its variables (docs/decisions/0032). Programs'
// variables are to lie in the window's memory in this way, so that they outlive a worker whose
// context a kernel's fault has lost. Input is untrusted. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "cuda/status.h"

namespace openmps::worker {

// A variable in device or constant memory that the text declares.
struct PtxVariable {
  std::string_view name;
  bool is_constant = false;
  bool is_initialised = false;
  bool is_elsewhere = false;  // another module defines it
  uint64_t bytes = 0;
  uint64_t element_bytes = 0;
  std::string_view values;  // how it begins: a number, or numbers in braces; empty: zeros
};
void for_each_variable(std::string_view ptx, FunctionRef<void(const PtxVariable&)> f);

// The bytes with which it begins. Errors: CUDA_ERROR_NOT_SUPPORTED: it begins with something other
// than numbers, or with more of them than it has elements.
Result<std::vector<unsigned char>> initial_bytes(const PtxVariable& variable);

// The text with each of these variables at its address. It still declares some variables, which are
// not used. Errors: CUDA_ERROR_NOT_SUPPORTED with the reason, where a variable is named other than
// as an address of memory, in a 64-bit move, or to be made a generic address; or its name is
// another object's, too.
using PtxAddresses = std::map<std::string, uint64_t, std::less<>>;
Result<std::string> place_in_ptx(std::string_view ptx, const PtxAddresses& addresses);

}  // namespace openmps::worker
