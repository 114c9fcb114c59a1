// SPDX-License-Identifier: Apache-2.0
// compile(): from an image to a program. Called by the device model when modules are loaded; any
// thread.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "softgpu/engine.h"
#include "softgpu/fatbin/fatbin.h"
#include "softgpu/interp/handlers.h"
#include "softgpu/interp/instruction_set.h"
#include "softgpu/ir/lower.h"
#include "softgpu/ir/program.h"
#include "softgpu/ir/shared_layout.h"
#include "softgpu/ptx/linker.h"
#include "softgpu/ptx/parser.h"

namespace openmps::softgpu {
namespace {

// What occupancy uses when a kernel needs next to nothing, and the architecture's maximum.
constexpr uint32_t kMinRegisters = 16;
constexpr uint32_t kMaxRegisters = 255;
constexpr uint32_t kMaxThreadsPerBlock = 1024;
constexpr uint32_t kRegistersPerSm = 64 * 1024;
// ptxas hands registers out in these units.
constexpr uint32_t kRegisterStep = 8;
// A limit that ptxas enforces since PTX 8.1.
constexpr uint64_t kMaxParameterBytes = 32764;

// Walks the direct calls.
class CallGraph {
 public:
  explicit CallGraph(const CompiledProgram& program) : program_(program) {}
  // `visit` every function that `function` may reach, itself included, once.
  void walk(int32_t function, const std::function<void(const Code&)>& visit) {
    std::vector<bool> seen(program_.functions.size());
    std::vector<int32_t> open = {function};
    while (!open.empty()) {
      const int32_t at = open.back();
      open.pop_back();
      const Code* code = program_.functions[static_cast<size_t>(at)].get();
      if (!code || seen[static_cast<size_t>(at)]) continue;
      seen[static_cast<size_t>(at)] = true;
      visit(*code);
      open.insert(open.end(), code->callees.begin(), code->callees.end());
    }
  }

 private:
  const CompiledProgram& program_;
};

// Functions that may call themselves: what is left when those whose calls all end are taken away,
// again and again, and then those that nobody left calls.
void mark_recursive(const CompiledProgram& program) {
  const size_t count = program.functions.size();
  std::vector<std::vector<size_t>> calls(count), callers(count);
  for (size_t i = 0; i < count; ++i) {
    if (program.functions[i] == nullptr) continue;
    for (const int32_t callee : program.functions[i]->callees) {
      calls[i].push_back(static_cast<size_t>(callee));
      callers[static_cast<size_t>(callee)].push_back(i);
    }
  }
  std::vector<bool> left(count, true);
  const auto peel = [&](const auto& ahead, const auto& behind) {
    std::vector<size_t> open(count), ready;
    for (size_t i = 0; i < count; ++i) {
      for (const size_t next : ahead[i]) open[i] += left[next] ? 1 : 0;
      if (left[i] && open[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const size_t at = ready.back();
      ready.pop_back();
      left[at] = false;
      for (const size_t next : behind[at]) {
        if (left[next] && --open[next] == 0) ready.push_back(next);
      }
    }
  };
  peel(calls, callers);
  peel(callers, calls);
  for (size_t i = 0; i < count; ++i) {
    if (left[i] && program.functions[i] != nullptr) program.functions[i]->recursive = true;
  }
}

// The threads of a block, at most `limit`: an image may ask for more than 2^32.
uint32_t product_up_to(const uint32_t (&sizes)[3], uint32_t limit) {
  uint64_t product = 1;
  for (const uint32_t size : sizes) product = std::min<uint64_t>(product * size, limit);
  return static_cast<uint32_t>(product);
}

// What ptxas would leave each thread at most: .maxnreg, and so few that the blocks that the
// directives speak of fit a multiprocessor. Without directives that is the largest block there is.
uint32_t register_limit(const ptx::Function& function) {
  const bool bounded = function.max_threads[0] != 0 || function.required_threads[0] != 0;
  uint64_t threads = kMaxThreadsPerBlock;
  if (bounded) {
    threads = product_up_to(
        function.max_threads[0] != 0 ? function.max_threads : function.required_threads,
        kRegistersPerSm);
  }
  if (bounded && function.min_blocks > 1) {
    threads = std::min<uint64_t>(threads * function.min_blocks, kRegistersPerSm);
  }
  uint64_t limit = kRegistersPerSm / std::max<uint64_t>(threads, 1) / kRegisterStep * kRegisterStep;
  if (function.max_registers != 0) limit = std::min<uint64_t>(limit, function.max_registers);
  return static_cast<uint32_t>(std::clamp<uint64_t>(limit, kMinRegisters, kMaxRegisters));
}

// Empty, or what ptxas would say of a kernel with that much of `what`.
std::string beyond_limit(const std::string& kernel, const char* what, uint64_t bytes,
                         uint64_t most) {
  if (bytes <= most) return "";
  char text[128];
  std::snprintf(text, sizeof text, "' uses too much %s (0x%llx bytes, 0x%llx max)", what,
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(most));
  return "ptxas error   : Entry function '" + kernel + text;
}

KernelInfo describe(const CompiledProgram& program, const ptx::Function& function, const Code& code,
                    uint64_t shared_bytes, uint64_t max_shared_bytes) {
  KernelInfo info;
  info.name = function.name;
  uint64_t end = 0;
  for (const Argument& parameter : code.parameters) {
    info.parameters.push_back(
        {static_cast<uint32_t>(parameter.offset), static_cast<uint32_t>(parameter.bytes)});
    end = parameter.offset + parameter.bytes;
  }
  info.parameter_bytes = static_cast<uint32_t>(end);
  info.static_shared_bytes = static_cast<uint32_t>(shared_bytes);
  info.unusable = beyond_limit(function.name, "shared data", shared_bytes, max_shared_bytes);
  if (info.unusable.empty()) {
    info.unusable = beyond_limit(function.name, "parameter space", end, kMaxParameterBytes);
  }
  uint64_t local = 0;
  const bool any_runtime =
      std::any_of(program.functions.begin(), program.functions.end(),
                  [](const auto& other) { return other != nullptr && other->calls_runtime; });
  CallGraph(program).walk(code.function, [&](const Code& reached) {
    local += reached.local_bytes;
    info.registers = std::max(info.registers, reached.registers);
    info.uses_cooperative_groups |= reached.uses_grid_workspace;
    info.uses_reserved_shared |= reached.uses_reserved_shared;
    info.launches_graphs |= reached.launches_graphs;
    // What is called indirectly may be any function of the program.
    info.launches_kernels |= reached.calls_runtime || (reached.calls_indirectly && any_runtime);
  });
  info.local_bytes = static_cast<uint32_t>(std::min<uint64_t>(local, UINT32_MAX));
  info.registers = std::clamp(info.registers, kMinRegisters, register_limit(function));
  for (int i = 0; i < 3; ++i) {
    info.required_block[i] = function.required_threads[i];
    info.required_cluster[i] = function.required_cluster[i];
  }
  info.max_cluster_blocks = function.max_cluster_blocks;
  info.explicit_cluster = function.explicit_cluster;
  if (function.max_threads[0]) {
    info.max_threads = product_up_to(function.max_threads, kMaxThreadsPerBlock);
  }
  return info;
}

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

}  // namespace

std::shared_ptr<const Program> compile(const void* image, size_t size,
                                       const CompileOptions& options, CompileError* error) {
  Result<std::string> text = text_of(image, size, options.compute_capability);
  if (!text.ok()) return fail(error, text.status());
  Result<std::shared_ptr<const ptx::Module>> parsed = ptx::parse(text.value());
  if (!parsed.ok()) return fail(error, parsed.status());
  const ptx::Module& module = *parsed.value();
  uint32_t target = 0;
  char suffix = '\0';
  ptx::parse_target(module.target, &target, &suffix);
  if (target > options.compute_capability) {
    return fail(error, Status(CUDA_ERROR_INVALID_PTX,
                              "ptxas fatal   : SM version specified by .target (" + module.target +
                                  ") is higher than default SM version assumed (sm_" +
                                  std::to_string(options.compute_capability) + ")"));
  }
  if (suffix != '\0' && target != options.compute_capability) {
    return fail(error, Status(CUDA_ERROR_INVALID_PTX, "ptxas fatal   : target " + module.target +
                                                          " runs on that architecture alone"));
  }

  auto program = std::make_shared<CompiledProgram>();
  program->variables = module.globals;
  if (!options.origin.empty()) program->origin = ", of " + options.origin;
  const std::vector<ir::SharedLayout> shared = ir::lay_out_shared(module);
  const ir::LowerOptions lowering{active_handlers(), perf_allows("fusion"),
                                  perf_allows("register_reuse")};
  for (const ptx::Variable& variable : module.shared) {
    if (variable.is_extern) {
      program->dynamic_alignment = std::max(program->dynamic_alignment, variable.alignment);
    }
  }
  for (size_t i = 0; i < module.functions.size(); ++i) {
    program->function_names.push_back(module.functions[i].name);
    program->functions.push_back(
        module.functions[i].is_extern
            ? nullptr
            : ir::lower(module, static_cast<int32_t>(i), shared[i].offsets, lowering));
  }
  mark_recursive(*program);
  for (size_t i = 0; i < module.functions.size(); ++i) {
    const ptx::Function& function = module.functions[i];
    if (!function.is_kernel || function.is_extern) continue;
    program->kernel_functions.push_back(static_cast<int32_t>(i));
    program->kernels_.push_back(describe(*program, function, *program->functions[i],
                                         shared[i].bytes, options.max_shared_bytes));
    program->kernels_.back().target = target;
  }
  for (const ptx::GlobalVariable& global : module.globals) {
    program->globals_.push_back({global.name, global.bytes, global.alignment,
                                 global.space == ptx::Space::kConst, global.is_extern,
                                 global.is_managed});
  }
  if (error) *error = {};
  return program;
}

}  // namespace openmps::softgpu
