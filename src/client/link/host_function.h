// SPDX-License-Identifier: Apache-2.0
// What a program's host functions, stream callbacks and destructors of user objects may call. CUDA
// forbids all CUDA calls there. OpenMPS refuses those that the driver of an H200 refuses, and
// executes those that it executes (mostly of streams and events). On the callback thread.
#pragma once

#include <span>
#include <string_view>

#include "api/driver_table.h"
#include "cuda/abi.h"

namespace openmps::client {

// Calls of this thread are refused during the lifetime of the object.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

[[nodiscard]] bool in_host_function();

// A name stands for the symbol's per-thread variant, too.
[[nodiscard]] bool is_any_of(DriverSymbol symbol, std::span<const std::string_view> names);

// CUDA_ERROR_NOT_PERMITTED: this thread runs a host function, in which the call is refused.
[[nodiscard]] CUresult check_host_function(DriverSymbol symbol);

}  // namespace openmps::client
