// SPDX-License-Identifier: Apache-2.0
// When the modelled driver tells of a kernel's fault, and which launch is to fault without cause.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/status.h"

namespace openmps::softgpu {

// A kind of fault, by the error that it gives.
struct FaultKind {
  const char* name;
  CUresult code;
};

inline constexpr std::array<FaultKind, 6> kFaultKinds = {{
    {"range", CUDA_ERROR_ILLEGAL_ADDRESS},
    {"misaligned", CUDA_ERROR_MISALIGNED_ADDRESS},
    {"trap", CUDA_ERROR_LAUNCH_FAILED},  // and a stack that overflows
    {"assert", CUDA_ERROR_ASSERT},
    {"instruction", CUDA_ERROR_ILLEGAL_INSTRUCTION},
    {"space", CUDA_ERROR_INVALID_ADDRESS_SPACE},
}};

// From the faulting instruction on.
struct FaultDelays {
  uint64_t report_ns = 0;  // until the contexts of the process have the error
  uint64_t xid_ns = 0;     // until NVML has the Xid event
  bool holds = false;      // a thread that gives a stream work meanwhile returns with the error
};

struct FaultSettings {
  std::array<FaultDelays, kFaultKinds.size()> delays;  // SOFTGPU_FAULT_LATENCY_US, by kFaultKinds
  std::string injected_kernel;                         // SOFTGPU_FAULT; empty: none
  uint64_t injected_launch = 0;                        // which launch of it, from 1 on
  CUresult injected_code = CUDA_SUCCESS;

  // Of an error that is of no kind: none.
  [[nodiscard]] FaultDelays delays_of(CUresult code) const;
  // "kind:REPORT[/XID[/hold]],...", times in microseconds; without XID, that comes with the report.
  // False: not understood.
  [[nodiscard]] bool read_delays(std::string_view text);
  // "kernel:nth:kind". False: not understood.
  [[nodiscard]] bool read_injection(std::string_view text);
};

}  // namespace openmps::softgpu
