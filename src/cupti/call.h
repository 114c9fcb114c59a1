// SPDX-License-Identifier: Apache-2.0
// How each of CUPTI's functions ends: no exception leaves it, and cuptiGetLastError() knows of its
// failure.
#pragma once

#include <new>

#include "cupti/abi.h"

namespace openmps::cupti {

// The calling thread's last failure; CUPTI_SUCCESS if there is none.
CUptiResult& last_error();

template <typename Body>
CUptiResult call(Body&& body) {
  CUptiResult result = CUPTI_ERROR_OUT_OF_MEMORY;
  try {
    result = body();
  } catch (const std::bad_alloc&) {  // the result says so
  }
  if (result != CUPTI_SUCCESS) last_error() = result;
  return result;
}

template <typename T>
CUptiResult give(T value, T* to) {
  if (to == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *to = value;
  return CUPTI_SUCCESS;
}

}  // namespace openmps::cupti
