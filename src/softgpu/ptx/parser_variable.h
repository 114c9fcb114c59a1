// SPDX-License-Identifier: Apache-2.0
// PTX variables: of modules and functions, and parameters. A part of the parser, see
// token_reader.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/ast.h"
#include "softgpu/ptx/parser_value.h"

namespace openmps::softgpu::ptx {

// Of one variable: the whole memory of the largest GPU we may model.
inline constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 40;
// Registers of one declaration are made on demand, so only the count's own type limits it.

struct Symbol {
  Operand::Kind kind = Operand::Kind::kNone;
  int32_t index = -1;
};

struct RegisterFamily {  // ".reg .b32 %r<33>;"
  std::string_view prefix;
  Type type = Type::kB32;
  uint64_t count = 0;
};

struct Scope {
  std::unordered_map<std::string, Symbol> symbols;
  std::unordered_map<std::string, int32_t> labels;
  std::vector<RegisterFamily> families;
};

class VariableParser : public ValueParser {
 protected:
  explicit VariableParser(std::shared_ptr<Module> module)
      : ValueParser(module->source), module_(std::move(module)), scopes_(1) {}

  bool parameters(char close, Space space, std::vector<Variable>* out, Function* function);
  bool variable_attributes(Variable* variable, uint32_t* vector);
  bool declarator(Variable* variable, bool* has_array, bool* open_array);
  bool module_variable(Space space, bool is_extern);

  std::shared_ptr<Module> module_;
  std::vector<Scope> scopes_;  // [0]: the module

 private:
  bool add_global(Space space, bool is_extern, const Variable& proto, uint32_t vector);

  // By where their names are: a body that is read again (LazyModule) declares its variables again.
  std::unordered_map<const char*, int32_t> shared_at_;
};

}  // namespace openmps::softgpu::ptx
