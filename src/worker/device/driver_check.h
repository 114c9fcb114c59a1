// SPDX-License-Identifier: Apache-2.0
// The result of a driver call or a check as a Status, for the whole worker. Any thread.
#pragma once

#include <string>

#include "cuda/status.h"

namespace openmps::worker {

// The program's error: reported as the call's result or as an asynchronous error.
inline Status check(CUresult result, const std::string& call) {
  if (result == CUDA_SUCCESS) return Status();
  return Status(result, call + " returned " + std::to_string(result));
}
// Makes no string on success, for launches and copies.
inline Status check(CUresult result, const char* call) {
  return result == CUDA_SUCCESS ? Status() : check(result, std::string(call));
}

// The peer broke the protocol, which ends its session. No driver returns this code to a worker,
// which has no MPS variables in its environment.
inline Status violation(std::string reason) {
  return Status(CUDA_ERROR_MPS_RPC_FAILURE, std::move(reason));
}
inline bool is_violation(const Status& status) {
  return status.code() == CUDA_ERROR_MPS_RPC_FAILURE;
}

// Errors after which CUDA documents that the context can't be used any more.
inline bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK: return true;
    default: return false;
  }
}

}  // namespace openmps::worker
