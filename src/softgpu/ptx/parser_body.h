// SPDX-License-Identifier: Apache-2.0
// PTX function bodies: scopes, registers, labels, instructions and their operands. A part of the
// parser, see token_reader.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "softgpu/ptx/ast.h"
#include "softgpu/ptx/parser_variable.h"

namespace openmps::softgpu::ptx {

class BodyParser : public VariableParser {
 protected:
  using VariableParser::VariableParser;

  bool body(Function* function);
  const Symbol* find_symbol(const std::string& name) const;

 private:
  bool statement();
  bool directive();
  bool register_declaration();
  bool local_variable(Space space);
  bool labelled_directive(const std::string& label);
  bool call_prototype(const std::string& label);
  bool instruction(std::string_view mnemonic, uint32_t line, int32_t guard, bool negated);
  bool operand(char letter, Operand* out);
  bool second(Operand* out);
  bool name_operand(char letter, Operand* out);
  bool address(char letter, Operand* out);
  bool list(char close, Operand::Kind kind, char letter, Operand* out);
  bool constant_operand(Operand* out);
  bool check_operands(const Instruction& instruction);
  bool find_register(const std::string& name, int32_t* index);
  int32_t label_reference(const std::string& name);
  bool define_label(const std::string& name);
  void close_scope();
  bool finish_labels();

  Function* function_ = nullptr;  // being parsed
  std::vector<int32_t> label_alias_;
};

}  // namespace openmps::softgpu::ptx
