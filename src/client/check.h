// SPDX-License-Identifier: Apache-2.0
// The macro that implementations return early with.
#pragma once

#include "cuda/abi.h"

// Return early with the CUresult of a call that did not succeed.
#define OPENMPS_CUDA_CHECK(expression)                                                  \
  do {                                                                                  \
    if (const CUresult result_ = (expression); result_ != CUDA_SUCCESS) return result_; \
  } while (false)
