// SPDX-License-Identifier: Apache-2.0
// Names and one-line descriptions of CUresult values, for cuGetErrorName, cuGetErrorString and
// logs. Constant tables; any thread.
#pragma once

#include "cuda/abi.h"

namespace openmps::cuda {

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

// nullptr for a number that is no error code of CUDA 13.0.
const ErrorText* find_error_text(CUresult code);

// What cuGetErrorName and cuGetErrorString answer. Errors: CUDA_ERROR_INVALID_VALUE: no place, or
// no error code, whose text is nullptr.
[[nodiscard]] CUresult get_error_name(CUresult code, const char** name);
[[nodiscard]] CUresult get_error_string(CUresult code, const char** text);

}  // namespace openmps::cuda
