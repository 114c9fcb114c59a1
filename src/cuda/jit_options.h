// SPDX-License-Identifier: Apache-2.0
// Values of JIT options. Pure; any thread.
#pragma once

#include <cstdint>

#include "cuda/abi.h"

namespace openmps::cuda {

// One of CUjit_target. Those with code of one architecture ("a") or one family ("f") have it in
// their upper half.
[[nodiscard]] inline bool is_jit_target(uintptr_t value) {
  constexpr uintptr_t kPlain[] = {30, 32, 35, 37, 50, 52, 53,  60,  61,  62,  70, 72,
                                  75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121};
  constexpr uintptr_t kOneArchitecture = 1, kOneFamily = 2;
  const uintptr_t number = value & 0xffff, kind = value >> 16;
  if (kind > kOneFamily || (kind == kOneArchitecture && number < 90) ||
      (kind == kOneFamily && number < 100)) {
    return false;
  }
  for (const uintptr_t known : kPlain) {
    if (number == known) return true;
  }
  return false;
}

}  // namespace openmps::cuda
