// SPDX-License-Identifier: Apache-2.0
// The functions of a large program that have not been needed yet: their PTX, from which each is
// compiled when a kernel that reaches it is asked for or calls it. Belongs to a CompiledProgram;
// any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "softgpu/ir/lower.h"
#include "softgpu/ir/program.h"
#include "softgpu/ir/shared_layout.h"
#include "softgpu/ptx/parser.h"

namespace openmps::softgpu {

// The function's image with the addresses of variables; empty: it names none.
std::vector<std::byte> placed_image(const Code& code, const std::vector<uint64_t>& addresses);

class LazyCode {
 public:
  LazyCode(std::unique_ptr<ptx::LazyModule> module, std::vector<ir::SharedLayout> shared,
           ir::LowerOptions options);

  // The function's code, in program.functions from then on. Null: declared only.
  const Code* function(CompiledProgram& program, int32_t index);
  // See Program::complete().
  void complete(CompiledProgram& program, uint32_t kernel);
  // Of the functions that are compiled.
  std::vector<std::string> unsupported(const CompiledProgram& program);

 private:
  const Code* function_locked(CompiledProgram& program, int32_t index) REQUIRES(mutex_);

  Mutex mutex_{LockRank::kSoftCode};
  const std::unique_ptr<ptx::LazyModule> module_ PT_GUARDED_BY(mutex_);
  const std::vector<ir::SharedLayout> shared_;
  const ir::LowerOptions options_;
  std::vector<bool> recursive_;  // functions that may call themselves
  bool any_runtime_ = false;     // some function calls the device's run time
  std::vector<std::string> mistakes_ GUARDED_BY(mutex_);  // by function: why it does not parse
  std::vector<std::atomic<bool>> completed_;              // kernels
};

}  // namespace openmps::softgpu
