// SPDX-License-Identifier: Apache-2.0
// See shared_layout.h.
#include "softgpu/ir/shared_layout.h"

#include <set>

#include "softgpu/ptx/opcode_table.h"

namespace openmps::softgpu::ir {
namespace {

void collect(const ptx::Operand& operand, std::set<int32_t>* shared) {
  if (operand.kind == ptx::Operand::Kind::kShared) shared->insert(operand.index);
  for (const ptx::Operand& item : operand.items) collect(item, shared);
}

}  // namespace

SharedLayout lay_out_shared(const ptx::Module& module) {
  SharedLayout layout;
  layout.offsets.assign(module.shared.size(), 0);
  layout.bytes.assign(module.functions.size(), 0);
  std::vector<std::set<int32_t>> used(module.functions.size());
  std::vector<int> users(module.shared.size(), 0);
  std::vector<bool> common(module.shared.size(), false), calls(module.functions.size(), false);
  for (size_t f = 0; f < module.functions.size(); ++f) {
    bool any_call = false;
    for (const ptx::Statement& statement : module.functions[f].body) {
      any_call |= statement.instruction.rule &&
                  statement.instruction.rule->lowering == ptx::Lowering::kCall;
      for (const ptx::Operand& operand : statement.instruction.operands) collect(operand, &used[f]);
    }
    calls[f] = any_call;
    for (int32_t variable : used[f]) {
      if (++users[variable] > 1 || !module.functions[f].is_kernel) common[variable] = true;
    }
  }
  auto place = [&](int32_t variable, uint64_t* at) {
    const ptx::Variable& v = module.shared[variable];
    if (v.is_extern) return;
    *at = (*at + v.alignment - 1) & ~uint64_t{v.alignment - 1};
    layout.offsets[variable] = static_cast<uint32_t>(*at);
    *at += v.bytes;
  };
  uint64_t common_bytes = 0;
  for (size_t v = 0; v < module.shared.size(); ++v) {
    if (common[v]) place(static_cast<int32_t>(v), &common_bytes);
  }
  for (size_t f = 0; f < module.functions.size(); ++f) {
    bool needs_common = calls[f];
    for (int32_t variable : used[f]) needs_common |= common[variable];
    uint64_t at = needs_common ? common_bytes : 0;
    for (int32_t variable : used[f]) {
      if (!common[variable]) place(variable, &at);
    }
    layout.bytes[f] = at;
  }
  return layout;
}

}  // namespace openmps::softgpu::ir
