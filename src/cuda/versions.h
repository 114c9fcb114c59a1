// SPDX-License-Identifier: Apache-2.0
// Structures that CUDA has several versions of. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cuda/abi.h"

namespace openmps::cuda {

// `from` in another version: the earlier one is a prefix of the later one, whose other fields are 0
// then.
template <typename To, typename From>
[[nodiscard]] To as_version(const From& from) {
  static_assert(std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
  To to{};
  memcpy(&to, &from, std::min(sizeof(to), sizeof(from)));
  return to;
}

// What is not there is an error of the first cuGetProcAddress; the second has a status for that.
[[nodiscard]] inline CUresult error_unless_found(CUresult result, void* const* found) {
  return result == CUDA_SUCCESS && *found == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

}  // namespace openmps::cuda
