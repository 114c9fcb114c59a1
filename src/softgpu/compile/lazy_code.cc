// SPDX-License-Identifier: Apache-2.0
// See lazy_code.h.
#include "softgpu/compile/lazy_code.h"

#include <cstring>
#include <utility>

#include "softgpu/compile/describe.h"
#include "softgpu/ir/frame.h"
#include "softgpu/ptx/device_calls.h"
#include "softgpu/tier/kernel_tier.h"

namespace openmps::softgpu {

LazyCode::LazyCode(std::unique_ptr<ptx::LazyModule> module, std::vector<ir::SharedLayout> shared,
                   ir::LowerOptions options)
    : module_(std::move(module)),
      shared_(std::move(shared)),
      options_(options),
      mistakes_(shared_.size()),
      completed_(shared_.size()) {
  const MutexLock lock(mutex_);
  const ptx::Module& parsed = module_->module();
  std::vector<std::vector<int32_t>> callees;
  for (const ptx::Function& function : parsed.functions) {
    std::vector<int32_t>& called = callees.emplace_back();
    for (const int32_t callee : ir::mentions_of(function).callees) {
      called.push_back(parsed.without_alias(callee));
      const ptx::Function& target = parsed.functions[static_cast<size_t>(called.back())];
      any_runtime_ |= target.is_extern && ptx::find_device_function(target.name) != nullptr;
    }
  }
  recursive_ = recursive_functions(callees);
}

const Code* LazyCode::function_locked(CompiledProgram& program, int32_t index) {
  const auto at = static_cast<size_t>(index);
  std::unique_ptr<Code>& code = program.functions[at];
  const ptx::Function& function = module_->module().functions[at];
  if (code != nullptr || function.is_extern) return code.get();
  const bool put_off = function.is_put_off;
  if (put_off) {
    const Status parsed = module_->parse_body(index);
    if (!parsed.ok()) mistakes_[at] = parsed.message();
  }
  code = ir::lower(module_->module(), index, shared_[at].offsets, options_);
  code->recursive = recursive_[at];
  if (function.is_kernel) code->tier = tier::make_tier(*code);
  if (put_off) module_->drop_body(index);
  return code.get();
}

const Code* LazyCode::function(CompiledProgram& program, int32_t index) {
  const MutexLock lock(mutex_);
  return function_locked(program, index);
}

void LazyCode::complete(CompiledProgram& program, uint32_t kernel) {
  std::atomic<bool>& completed = completed_[kernel];
  if (completed.load(std::memory_order_acquire)) return;
  const MutexLock lock(mutex_);
  if (completed.load(std::memory_order_relaxed)) return;
  KernelInfo& info = program.kernels_[kernel];
  const int32_t function = program.kernel_functions[kernel];
  uint64_t local = 0;
  walk_calls(
      function, program.functions.size(),
      [&](int32_t index) REQUIRES(mutex_) { return function_locked(program, index); },
      [&](const Code& reached) REQUIRES(mutex_) {
        add_reached(reached, any_runtime_, &info, &local);
        const std::string& mistake = mistakes_[static_cast<size_t>(reached.function)];
        if (info.unusable.empty()) info.unusable = mistake;
      });
  finish_description(module_->module().functions[static_cast<size_t>(function)], local, &info);
  completed.store(true, std::memory_order_release);
}

std::vector<std::string> LazyCode::unsupported(const CompiledProgram& program) {
  const MutexLock lock(mutex_);
  return program.unsupported_of_compiled();
}

CompiledProgram::CompiledProgram() = default;
CompiledProgram::~CompiledProgram() = default;

// What is put off is the same program whenever it is compiled.
void CompiledProgram::complete(uint32_t kernel) const {
  if (lazy != nullptr) lazy->complete(const_cast<CompiledProgram&>(*this), kernel);
}

const Code* CompiledProgram::function(int32_t index) const {
  return lazy != nullptr ? lazy->function(const_cast<CompiledProgram&>(*this), index)
                         : functions[static_cast<size_t>(index)].get();
}

std::vector<std::string> CompiledProgram::unsupported() const {
  return lazy != nullptr ? lazy->unsupported(*this) : unsupported_of_compiled();
}

std::vector<std::string> CompiledProgram::unsupported_of_compiled() const {
  std::vector<std::string> all;
  for (const auto& code : functions) {
    if (code == nullptr) continue;
    for (const std::string& what : code->unsupported) all.push_back(code->name + ": " + what);
  }
  return all;
}

std::vector<std::byte> placed_image(const Code& code, const std::vector<uint64_t>& addresses) {
  if (code.references.empty()) return {};
  std::vector<std::byte> image = code.image;
  for (const GlobalReference& reference : code.references) {
    const uint64_t value = addresses[static_cast<size_t>(reference.global)] + reference.addend;
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      std::memcpy(image.data() + reference.offset + lane * reference.bytes, &value,
                  reference.bytes);
    }
  }
  return image;
}

const Code* Linked::find(int32_t function) const {
  const Code* code = compiled->function(function);
  if (code == nullptr) return nullptr;
  const auto index = static_cast<size_t>(function);
  std::vector<std::byte> image = placed_image(*code, global_addresses);
  const MutexLock lock(placing_);
  if (codes[index].load(std::memory_order_relaxed) != nullptr) return code;
  images[index] = std::move(image);
  codes[index].store(code, std::memory_order_release);
  return code;
}

}  // namespace openmps::softgpu
