// SPDX-License-Identifier: Apache-2.0
// link(): a program with the addresses of its variables filled in. Called by the device model when
// modules are loaded; any thread.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>

#include "softgpu/compile/lazy_code.h"
#include "softgpu/engine.h"
#include "softgpu/ir/frame.h"
#include "softgpu/ir/program.h"

namespace openmps::softgpu {

std::shared_ptr<const LinkedProgram> link(std::shared_ptr<const Program> program,
                                          std::vector<uint64_t> global_addresses) {
  static std::atomic<uint64_t> next_serial{1};
  auto linked = std::make_shared<Linked>();
  linked->compiled = std::static_pointer_cast<const CompiledProgram>(std::move(program));
  linked->serial = next_serial.fetch_add(1, std::memory_order_relaxed);
  const std::vector<ptx::GlobalVariable>& variables = linked->compiled->variables;
  const std::vector<std::string>& functions = linked->compiled->function_names;
  global_addresses.resize(variables.size());

  std::unordered_map<std::string, uint64_t> symbols;
  for (size_t i = 0; i < variables.size(); ++i) {
    symbols[variables[i].name] = global_addresses[i];
  }
  for (size_t i = 0; i < functions.size(); ++i) {
    symbols.try_emplace(functions[i], kFunctionWindow + 16 * i);
  }

  for (size_t i = 0; i < variables.size(); ++i) {
    const ptx::GlobalVariable& global = variables[i];
    auto* to = reinterpret_cast<uint8_t*>(global_addresses[i]);
    if (!to || global.is_extern) continue;
    const size_t given = std::min<size_t>(global.initial.size(), global.bytes);
    if (given != 0) std::memcpy(to, global.initial.data(), given);
    std::memset(to + given, 0, global.bytes - given);
    for (const ptx::Relocation& relocation : global.relocations) {
      uint64_t value = symbols[relocation.symbol] + static_cast<uint64_t>(relocation.addend);
      if (relocation.mask_shift >= 0) value = value >> relocation.mask_shift & 0xff;
      std::memcpy(to + relocation.offset, &value, std::min<uint32_t>(relocation.size, 8));
    }
  }
  linked->global_addresses = std::move(global_addresses);
  linked->images.resize(functions.size());
  linked->codes = std::vector<std::atomic<const Code*>>(functions.size());
  for (size_t i = 0; i < functions.size(); ++i) {
    // Others may be compiling what is put off; find() waits for them.
    if (linked->compiled->lazy != nullptr) break;
    const Code* code = linked->compiled->functions[i].get();
    if (code == nullptr) continue;
    linked->images[i] = placed_image(*code, linked->global_addresses);
    linked->codes[i].store(code, std::memory_order_relaxed);
  }
  return linked;
}

}  // namespace openmps::softgpu
