// SPDX-License-Identifier: Apache-2.0
// From a relocatable ELF file, as LLVM makes it, to code that may lie anywhere: one block of bytes
// that refers to itself only. So it can be kept on disk and needs no linker, and no LLVM, to run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace openmps::softgpu::tier {

struct ObjectCode {
  std::string bytes;
  uint64_t entry = 0;  // offset of the function
};

// False: `object` is no such file, refers to something outside, or has no function `name`.
bool flatten_object(std::string_view object, std::string_view name, ObjectCode* code);

// Code in memory of its own that may be executed, and no longer written.
class ExecutableCode {
 public:
  explicit ExecutableCode(const ObjectCode& code);
  ~ExecutableCode();
  ExecutableCode(const ExecutableCode&) = delete;
  ExecutableCode& operator=(const ExecutableCode&) = delete;
  // nullptr: the system gives no such memory.
  [[nodiscard]] const void* entry() const { return entry_; }

 private:
  void* pages_ = nullptr;
  size_t size_ = 0;
  const void* entry_ = nullptr;
};

}  // namespace openmps::softgpu::tier
