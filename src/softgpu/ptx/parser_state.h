// SPDX-License-Identifier: Apache-2.0
// The parser's class: shared by parser.cc (module scope), parser_body.cc (function bodies) and
// parser_value.cc (constant expressions, initial values). Nobody else includes this.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "softgpu/ptx/ast.h"
#include "softgpu/ptx/lexer.h"

namespace openmps::softgpu::ptx {

// Nested { } of a function, parentheses of an expression, braces of an initialiser: far above what
// compilers write, low enough for the parser's own recursion.
inline constexpr int kMaxNesting = 200;
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

// A constant expression's value.
struct Value {
  enum class Kind : uint8_t { kInteger, kFloat, kDouble, kSymbol } kind = Kind::kInteger;
  uint64_t bits = 0;
  std::string symbol;
  int64_t addend = 0;
  int mask_shift = -1;
};

class Parser {
 public:
  explicit Parser(std::shared_ptr<Module> module);
  bool run();
  const std::string& error() const { return error_; }
  bool unsupported_version() const { return unsupported_version_; }

 private:
  // Tokens.
  void advance();
  bool accept(char c);
  bool accept_dot(std::string_view word);
  bool expect(char c);
  bool expect_name(std::string* name);
  bool fail(const std::string& message);  // always false
  bool fail_near();                       // syntax error at the current token
  bool skip_to_semicolon();
  bool skip_braces();

  // Module scope (parser.cc).
  bool header();
  bool top_level();
  bool alias();
  bool function(bool is_kernel, bool is_extern);
  bool function_directives(Function* function);
  bool parameters(char close, Space space, std::vector<Variable>* out, Function* function);
  bool dimensions(uint32_t* out);
  bool declarator(Variable* variable, bool* has_array, bool* open_array);
  bool variable_attributes(Variable* variable, uint32_t* vector);
  bool module_variable(Space space, bool is_extern);
  bool add_global(Space space, bool is_extern, const Variable& proto, uint32_t vector);
  int32_t function_index(const std::string& name);

  // Function bodies (parser_body.cc).
  bool body(Function* function);
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
  const Symbol* find_symbol(const std::string& name) const;
  int32_t label_reference(const std::string& name);
  bool define_label(const std::string& name);
  void close_scope();
  bool finish_labels();

  // Values (parser_value.cc).
  bool expression(Value* out, int precedence = 0);
  bool primary(Value* out);
  bool initializer(GlobalVariable* variable, Type type, uint64_t* at, int depth);
  bool store_value(GlobalVariable* variable, Type type, uint64_t at, const Value& value);

  std::shared_ptr<Module> module_;
  Lexer lexer_;
  Token token_;
  std::string error_;
  bool unsupported_version_ = false;
  int nesting_ = 0;
  std::vector<Scope> scopes_;  // [0]: the module
  std::unordered_map<std::string, int32_t> functions_;
  Function* function_ = nullptr;  // being parsed
  std::vector<int32_t> label_alias_;
};

}  // namespace openmps::softgpu::ptx
