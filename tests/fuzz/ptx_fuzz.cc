// SPDX-License-Identifier: Apache-2.0
// Fuzz target of softgpu's PTX parser and lowering: the input is the text of a module. It compiles
// to a consistent program, or gives an error with a reason for the JIT log.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "softgpu/engine.h"
#include "softgpu/ir/program.h"
#include "softgpu/ptx/opcode_table.h"
#include "softgpu/ptx/parser.h"

namespace {

using namespace openmps::softgpu;

// The rules of the opcode table that have been used in a function that compiles.
std::set<const ptx::Rule*>& used_rules() {
  static std::set<const ptx::Rule*> rules;
  return rules;
}
std::set<std::string>& refusals() {
  static std::set<std::string> reasons;
  return reasons;
}

// A program does not keep the statements that it was lowered from.
void note_rules(const CompiledProgram& program, std::string_view text) {
  const auto parsed = ptx::parse(text.substr(0, text.find('\0')));
  if (!parsed.ok()) abort();
  for (size_t i = 0; i < program.functions.size(); ++i) {
    if (program.functions[i] == nullptr) continue;
    const ptx::Function& function = parsed.value()->functions[i];
    for (const std::string& why : program.functions[i]->unsupported) {
      if (refusals().size() < 1000) refusals().insert(function.name + ", " + why);
    }
    if (!program.functions[i]->unsupported.empty()) continue;
    for (const ptx::Statement& statement : function.body) {
      if (statement.label < 0) used_rules().insert(statement.instruction.rule);
    }
  }
}

}  // namespace

// Whether every rule of the opcode table has been used in a kernel that compiles.
extern "C" bool corpus_is_complete() {
  bool complete = true;
  const ptx::RuleRange rules = ptx::all_rules();
  for (const ptx::Rule* rule = rules.begin; rule != rules.end; ++rule) {
    if (used_rules().contains(rule)) continue;
    printf("no seed of the corpus has a usable %.*s with \"%.*s\"\n",
           static_cast<int>(rule->mnemonic.size()), rule->mnemonic.data(),
           static_cast<int>(rule->modifiers.size()), rule->modifiers.data());
    complete = false;
  }
  if (complete) return true;
  for (const std::string& reason : refusals()) printf("%s\n", reason.c_str());
  return false;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace openmps;
  if (size == 0 || data[0] >= 0x80) return 0;  // no text: fatbin_fuzz's input
  softgpu::CompileError error;
  const std::shared_ptr<const softgpu::Program> program =
      softgpu::compile(data, size, {.compute_capability = 90}, &error);
  // Function by function: what is taken as a whole is taken so, too.
  softgpu::CompileError lazy_error;
  const std::shared_ptr<const softgpu::Program> lazy =
      softgpu::compile(data, size, {.compute_capability = 90, .most_at_once = 0}, &lazy_error);
  for (uint32_t i = 0; lazy != nullptr && i < lazy->kernels().size(); ++i) lazy->complete(i);
  if (lazy == nullptr && program != nullptr) abort();
  if (program == nullptr) {
    if (error.code == CUDA_SUCCESS || error.log.empty()) abort();
    if (error.log.find('\0') != std::string::npos) abort();  // logs are C strings
    return 0;
  }
  note_rules(static_cast<const softgpu::CompiledProgram&>(*program),
             std::string_view(reinterpret_cast<const char*>(data), size));
  for (const softgpu::KernelInfo& kernel : program->kernels()) {
    if (kernel.name.empty()) abort();
    for (const softgpu::ParameterInfo& parameter : kernel.parameters) {
      if (parameter.offset > kernel.parameter_bytes ||
          parameter.size > kernel.parameter_bytes - parameter.offset) {
        abort();
      }
    }
  }
  for (const softgpu::GlobalInfo& global : program->globals()) {
    // The placement of globals divides by the alignment.
    if (global.alignment == 0 || (global.alignment & (global.alignment - 1)) != 0) abort();
  }
  return 0;
}
