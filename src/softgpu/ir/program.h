// SPDX-License-Identifier: Apache-2.0
// The engine's own view of Program and LinkedProgram: what compile() and link() make and the
// interpreter runs. Immutable but for functions that are compiled when they are first needed
// (compile/lazy_code.h); any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "softgpu/engine.h"
#include "softgpu/ir/code.h"
#include "softgpu/ptx/ast.h"

namespace openmps::softgpu {

class LazyCode;

class CompiledProgram final : public Program {
 public:
  CompiledProgram();
  ~CompiledProgram() override;
  const std::vector<KernelInfo>& kernels() const override { return kernels_; }
  const std::vector<GlobalInfo>& globals() const override { return globals_; }
  std::vector<std::string> unsupported() const override;
  std::vector<std::string> unsupported_of_compiled() const;

  void complete(uint32_t kernel) const override;
  // The code of a function, compiled now if it was put off; null: declared only.
  const Code* function(int32_t index) const;

  // Null: declared only, or put off.
  std::vector<std::unique_ptr<Code>> functions;
  std::vector<std::string> function_names;     // of all `functions`
  std::vector<ptx::GlobalVariable> variables;  // globals_ with their initial values
  std::vector<int32_t> kernel_functions;       // of kernels_[i]
  std::vector<KernelInfo> kernels_;
  std::vector<GlobalInfo> globals_;
  std::string origin;               // ", of FILE": behind what faults say; or empty
  uint32_t dynamic_alignment = 16;  // of dynamic shared memory: for any type, more if asked for
  std::unique_ptr<LazyCode> lazy;   // null: nothing is put off
};

class Linked final : public LinkedProgram {
 public:
  const Program& program() const override { return *compiled; }
  // Null: there is no such function, or it is declared only.
  const Code* code(int32_t function) const {
    if (function < 0 || static_cast<size_t>(function) >= codes.size()) return nullptr;
    const Code* known = codes[static_cast<size_t>(function)].load(std::memory_order_acquire);
    return known != nullptr ? known : find(function);
  }

  std::shared_ptr<const CompiledProgram> compiled;
  uint64_t serial = 0;  // tells programs apart that had the same address one after the other
  std::vector<uint64_t> global_addresses;
  // By function. Null: declared only, or not needed yet; find() stores it when its image is there.
  mutable std::vector<std::atomic<const Code*>> codes;
  // Of frames, by function, with the addresses of variables; empty: as in the code, without any.
  mutable std::vector<std::vector<std::byte>> images;

 private:
  const Code* find(int32_t function) const;

  mutable Mutex placing_{LockRank::kSoftCode};
};

}  // namespace openmps::softgpu
