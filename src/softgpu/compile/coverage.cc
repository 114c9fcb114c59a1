// SPDX-License-Identifier: Apache-2.0
// Prints the opcode table as Markdown: docs/ptx-coverage.md is this text. See engine.h.
#include <string>

#include "softgpu/engine.h"
#include "softgpu/ir/op_info.h"
#include "softgpu/ptx/opcode_table.h"

namespace openmps::softgpu {

std::string coverage_markdown() {
  size_t rules = 0, mnemonics = 0;
  std::string table;
  std::string_view last;
  const ptx::RuleRange range = ptx::all_rules();
  for (const ptx::Rule* rule = range.begin; rule != range.end; ++rule) {
    ++rules;
    mnemonics += rule->mnemonic != last;
    auto cell = [](std::string_view text) {
      std::string out;
      for (char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
      return out;
    };
    table += "| " +
             (rule->mnemonic == last ? std::string() : "`" + std::string(rule->mnemonic) + "`") +
             " | " + cell(rule->modifiers) + " | " + cell(rule->operands) + " |\n";
    last = rule->mnemonic;
  }
  return "# PTX that softgpu runs\n\n"
         "Printed from the opcode table (`src/softgpu/ptx/opcode_table.cc`): " +
         std::to_string(mnemonics) + " mnemonics, " + std::to_string(rules) +
         " forms, lowered to " + std::to_string(kIrOpCount) +
         " IR ops.\n\n"
         "Groups of modifiers are in order; `\\|` separates alternatives, a final `?` makes a "
         "group\n"
         "optional, `$name` is a class of types. Operands: D register written, S value read, P "
         "predicate\n"
         "written, Q predicate read, M address, T address of a texel, V and W register or vector, "
         "L "
         "label,\nX anything.\n"
         "A kernel with another instruction runs, and faults where it comes to it.\n\n"
         "| Mnemonic | Modifiers and types | Operands |\n|---|---|---|\n" +
         table;
}

}  // namespace openmps::softgpu
