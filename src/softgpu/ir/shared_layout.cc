// SPDX-License-Identifier: Apache-2.0
// See shared_layout.h.
#include "softgpu/ir/shared_layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "softgpu/ptx/opcode_table.h"

namespace openmps::softgpu::ir {
namespace {

void collect(const ptx::Operand& operand, std::set<int32_t>* shared) {
  if (operand.kind == ptx::Operand::Kind::kShared) shared->insert(operand.index);
  for (const ptx::Operand& item : operand.items) collect(item, shared);
}

// The variables of all functions that a kernel may come to.
std::set<int32_t> needs_of(const ptx::Module& module, const std::vector<ptx::Mentions>& mentions,
                           int32_t kernel) {
  std::set<int32_t> needs;
  std::vector<bool> seen(module.functions.size(), false);
  std::vector<int32_t> open = {kernel};
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    needs.insert(mentions[at].variables.begin(), mentions[at].variables.end());
    for (const int32_t callee : mentions[at].callees) open.push_back(module.without_alias(callee));
    if (!mentions[at].calls_indirectly) continue;
    for (size_t f = 0; f < module.functions.size(); ++f) {
      if (!module.functions[f].is_kernel) open.push_back(static_cast<int32_t>(f));
    }
  }
  return needs;
}

using Range = std::pair<uint64_t, uint64_t>;

// The first place for the variable beside what is taken.
uint64_t first_gap(const ptx::Variable& variable, std::vector<Range> taken) {
  std::sort(taken.begin(), taken.end());
  uint64_t at = 0;
  for (const auto& [begin, end] : taken) {
    if (at + variable.bytes <= begin) break;
    at = std::max(at, (end + variable.alignment - 1) & ~uint64_t{variable.alignment - 1});
  }
  return at;
}

}  // namespace

ptx::Mentions mentions_of(const ptx::Function& function) {
  if (function.is_put_off) return function.mentions;
  ptx::Mentions found;
  for (const ptx::Statement& statement : function.body) {
    const ptx::Instruction& in = statement.instruction;
    const bool is_call = in.rule != nullptr && in.rule->lowering == ptx::Lowering::kCall;
    for (const ptx::Operand& operand : in.operands) {
      collect(operand, &found.variables);
      if (!is_call) continue;
      if (operand.kind == ptx::Operand::Kind::kFunction) {
        found.callees.push_back(operand.index);
      }
      found.calls_indirectly |= operand.kind == ptx::Operand::Kind::kRegister;
    }
  }
  return found;
}

std::vector<SharedLayout> lay_out_shared(const ptx::Module& module) {
  std::vector<SharedLayout> layouts(module.functions.size());
  if (module.shared.empty()) return layouts;
  std::vector<ptx::Mentions> mentions;
  for (const ptx::Function& function : module.functions) {
    mentions.push_back(mentions_of(function));
  }
  std::vector<std::set<int32_t>> needs(module.functions.size());
  std::vector<std::vector<Range>> taken(module.functions.size());
  std::set<int32_t> common;  // what functions name
  for (size_t f = 0; f < module.functions.size(); ++f) {
    if (module.functions[f].is_kernel) {
      needs[f] = needs_of(module, mentions, static_cast<int32_t>(f));
    } else {
      needs[f] = mentions[f].variables;
      common.insert(needs[f].begin(), needs[f].end());
    }
  }
  const auto put = [&](size_t f, int32_t v, uint64_t at) {
    const uint64_t end = at + module.shared[v].bytes;
    layouts[f].offsets[v] = static_cast<uint32_t>(at);
    layouts[f].bytes = std::max(layouts[f].bytes, end);
    taken[f].emplace_back(at, end);
  };
  for (const int32_t v : common) {
    if (module.shared[v].is_extern) continue;
    std::vector<Range> beside;
    for (size_t f = 0; f < needs.size(); ++f) {
      if (needs[f].contains(v)) beside.insert(beside.end(), taken[f].begin(), taken[f].end());
    }
    const uint64_t at = first_gap(module.shared[v], std::move(beside));
    for (size_t f = 0; f < needs.size(); ++f) {
      if (needs[f].contains(v)) put(f, v, at);
    }
  }
  for (size_t f = 0; f < needs.size(); ++f) {
    for (const int32_t v : needs[f]) {
      if (common.contains(v) || module.shared[v].is_extern) continue;
      put(f, v, first_gap(module.shared[v], taken[f]));
    }
  }
  return layouts;
}

}  // namespace openmps::softgpu::ir
