// SPDX-License-Identifier: Apache-2.0
// By what a compiled kernel is found on disk: everything that its machine code depends on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "softgpu/ir/code.h"
#include "softgpu/tier/launch_shape.h"

namespace openmps::softgpu::tier {

// FNV-1a, of 64 bits.
class Hash {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  template <class T>
  void add_number(T number) {
    add({reinterpret_cast<const char*>(&number), sizeof number});
  }
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

// Two hashes of the same, from different beginnings.
struct KernelKey {
  uint64_t first = 0, second = 0;
  [[nodiscard]] std::string name() const;
};
KernelKey key_of(const Code& code, const LaunchShape& shape);

}  // namespace openmps::softgpu::tier
