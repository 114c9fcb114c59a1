// SPDX-License-Identifier: Apache-2.0
// The engine's own view of Program and LinkedProgram: what compile() and link() make and the
// interpreter runs. Immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "softgpu/engine.h"
#include "softgpu/ir/code.h"
#include "softgpu/ptx/ast.h"

namespace openmps::softgpu {

class CompiledProgram final : public Program {
 public:
  const std::vector<KernelInfo>& kernels() const override { return kernels_; }
  const std::vector<GlobalInfo>& globals() const override { return globals_; }
  std::vector<std::string> unsupported() const override {
    std::vector<std::string> all;
    for (const auto& code : functions) {
      if (code == nullptr) continue;
      for (const std::string& what : code->unsupported) all.push_back(code->name + ": " + what);
    }
    return all;
  }

  std::vector<std::unique_ptr<Code>> functions;  // null: declared only
  std::vector<std::string> function_names;       // of all `functions`
  std::vector<ptx::GlobalVariable> variables;    // globals_ with their initial values
  std::vector<int32_t> kernel_functions;         // of kernels_[i]
  std::vector<KernelInfo> kernels_;
  std::vector<GlobalInfo> globals_;
  std::string origin;               // ", of FILE": behind what faults say; or empty
  uint32_t dynamic_alignment = 16;  // of dynamic shared memory: for any type, more if asked for
};

class Linked final : public LinkedProgram {
 public:
  const Program& program() const override { return *compiled; }
  const Code* code(int32_t function) const {
    return function >= 0 && static_cast<size_t>(function) < compiled->functions.size()
               ? compiled->functions[static_cast<size_t>(function)].get()
               : nullptr;
  }

  std::shared_ptr<const CompiledProgram> compiled;
  uint64_t serial = 0;  // tells programs apart that had the same address one after the other
  // Of frames, by function, with the addresses of variables; empty: as in the code, without any.
  std::vector<std::vector<std::byte>> images;
};

}  // namespace openmps::softgpu
