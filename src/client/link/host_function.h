// SPDX-License-Identifier: Apache-2.0
// What a program's function may call while the client runs it: host functions, stream callbacks,
// and destructors of user objects. CUDA forbids CUDA there. The driver says so to the calls that an
// H200 refuses; those that its driver lets through (of streams and events, mostly) go through here,
// too. On the callback thread.
#pragma once

#include "api/driver_table.h"
#include "cuda/abi.h"

namespace openmps::client {

// While one lives, calls of this thread are refused.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

[[nodiscard]] bool in_host_function();

// CUDA_ERROR_NOT_PERMITTED: this thread runs a program's function, and the call is not for there.
[[nodiscard]] CUresult check_host_function(DriverSymbol symbol);

}  // namespace openmps::client
