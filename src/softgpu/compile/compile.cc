// SPDX-License-Identifier: Apache-2.0
// compile(): from an image to a program. Called by the device model when modules are loaded; any
// thread.
#include <algorithm>
#include <utility>

#include "softgpu/compile/describe.h"
#include "softgpu/compile/lazy_code.h"
#include "softgpu/engine.h"
#include "softgpu/fatbin/fatbin.h"
#include "softgpu/interp/handlers.h"
#include "softgpu/interp/instruction_set.h"
#include "softgpu/ir/lower.h"
#include "softgpu/ir/program.h"
#include "softgpu/ir/shared_layout.h"
#include "softgpu/ptx/linker.h"
#include "softgpu/ptx/parser.h"
#include "softgpu/tier/kernel_tier.h"

namespace openmps::softgpu {
namespace {

// The PTX of an image; of a program linked from several objects (nvcc -rdc) theirs, linked.
Result<std::string> text_of(const void* image, size_t size, uint32_t capability) {
  Result<std::vector<std::string>> texts = fatbin::extract_ptx(image, size, capability);
  if (!texts.ok()) return texts.status();
  if (texts.value().size() == 1) return std::move(texts.value().front());
  std::vector<ptx::LinkInput> inputs;
  for (size_t i = 0; i < texts.value().size(); ++i) {
    inputs.push_back({"object " + std::to_string(i + 1), std::move(texts.value()[i])});
  }
  return ptx::link(inputs);
}

std::shared_ptr<const Program> fail(CompileError* error, const Status& status) {
  if (error) *error = {status.code(), status.message()};
  return nullptr;
}

// What ptxas says of PTX that the device can't run; empty: it can.
std::string target_mistake(const ptx::Module& module, uint32_t capability, uint32_t* target) {
  char suffix = '\0';
  ptx::parse_target(module.target, target, &suffix);
  if (*target > capability) {
    return "ptxas fatal   : SM version specified by .target (" + module.target +
           ") is higher than default SM version assumed (sm_" + std::to_string(capability) + ")";
  }
  if (suffix != '\0' && *target != capability) {
    return "ptxas fatal   : target " + module.target + " runs on that architecture alone";
  }
  return "";
}

void compile_functions(const ptx::Module& module, const std::vector<ir::SharedLayout>& shared,
                       const ir::LowerOptions& lowering, CompiledProgram* program) {
  std::vector<std::vector<int32_t>> callees;
  bool any_runtime = false;
  for (size_t i = 0; i < module.functions.size(); ++i) {
    callees.emplace_back();
    if (module.functions[i].is_extern) continue;
    program->functions[i] = ir::lower(module, static_cast<int32_t>(i), shared[i].offsets, lowering);
    callees.back() = program->functions[i]->callees;
    any_runtime |= program->functions[i]->calls_runtime;
  }
  const std::vector<bool> recursive = recursive_functions(callees);
  for (size_t i = 0; i < recursive.size(); ++i) {
    if (program->functions[i] != nullptr) program->functions[i]->recursive = recursive[i];
  }
  for (size_t i = 0; i < program->kernels_.size(); ++i) {
    const int32_t function = program->kernel_functions[i];
    Code& kernel = *program->functions[static_cast<size_t>(function)];
    kernel.tier = tier::make_tier(kernel);
    KernelInfo& info = program->kernels_[i];
    uint64_t local = 0;
    walk_calls(
        function, program->functions.size(),
        [&](int32_t index) { return program->functions[static_cast<size_t>(index)].get(); },
        [&](const Code& reached) { add_reached(reached, any_runtime, &info, &local); });
    finish_description(module.functions[static_cast<size_t>(function)], local, &info);
  }
}

}  // namespace

std::shared_ptr<const Program> compile(const void* image, size_t size,
                                       const CompileOptions& options, CompileError* error) {
  Result<std::string> text = text_of(image, size, options.compute_capability);
  if (!text.ok()) return fail(error, text.status());
  std::unique_ptr<ptx::LazyModule> lazy;
  std::shared_ptr<const ptx::Module> whole;
  if (text->size() > options.most_at_once && perf_allows("lazy_code")) {
    Result<std::unique_ptr<ptx::LazyModule>> opened = ptx::LazyModule::open(*text);
    if (!opened.ok()) return fail(error, opened.status());
    lazy = std::move(*opened);
  } else {
    Result<std::shared_ptr<const ptx::Module>> parsed = ptx::parse(*text);
    if (!parsed.ok()) return fail(error, parsed.status());
    whole = std::move(*parsed);
  }
  const ptx::Module& module = lazy != nullptr ? lazy->module() : *whole;
  uint32_t target = 0;
  const std::string mistake = target_mistake(module, options.compute_capability, &target);
  if (!mistake.empty()) return fail(error, Status(CUDA_ERROR_INVALID_PTX, mistake));

  auto program = std::make_shared<CompiledProgram>();
  program->variables = module.globals;
  if (!options.origin.empty()) program->origin = ", of " + options.origin;
  std::vector<ir::SharedLayout> shared = ir::lay_out_shared(module);
  const ir::LowerOptions lowering{active_handlers(), perf_allows("fusion"),
                                  perf_allows("register_reuse")};
  for (const ptx::Variable& variable : module.shared) {
    if (variable.is_extern) {
      program->dynamic_alignment = std::max(program->dynamic_alignment, variable.alignment);
    }
  }
  for (size_t i = 0; i < module.functions.size(); ++i) {
    const ptx::Function& function = module.functions[i];
    program->function_names.push_back(function.name);
    if (!function.is_kernel || function.is_extern) continue;
    program->kernel_functions.push_back(static_cast<int32_t>(i));
    program->kernels_.push_back(
        describe_signature(function, shared[i].bytes, options.max_shared_bytes));
    program->kernels_.back().target = target;
  }
  program->functions.resize(module.functions.size());
  for (const ptx::GlobalVariable& global : module.globals) {
    program->globals_.push_back({global.name, global.bytes, global.alignment,
                                 global.space == ptx::Space::kConst, global.is_extern,
                                 global.is_managed});
  }
  if (lazy != nullptr) {
    program->lazy = std::make_unique<LazyCode>(std::move(lazy), std::move(shared), lowering);
  } else {
    compile_functions(module, shared, lowering, program.get());
  }
  if (error) *error = {};
  return program;
}

}  // namespace openmps::softgpu
