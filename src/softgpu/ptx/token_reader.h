// SPDX-License-Identifier: Apache-2.0
// The tokens of a PTX text as the parser takes them, and the first error. The base of the parser's
// classes, each of which adds what the next needs: TokenReader, ValueParser, VariableParser,
// BodyParser and, in parser.cc, ModuleParser.
#pragma once

#include <string>
#include <string_view>

#include "softgpu/ptx/lexer.h"

namespace openmps::softgpu::ptx {

// Nested { } of a function, parentheses of an expression, braces of an initialiser: far above what
// compilers write, low enough for the parser's own recursion.
inline constexpr int kMaxNesting = 200;

class TokenReader {
 public:
  const std::string& error() const { return error_; }

 protected:
  explicit TokenReader(std::string_view text) : lexer_(text) { advance(); }

  void advance();
  bool accept(char c);
  bool accept_dot(std::string_view word);
  bool expect(char c);
  bool expect_name(std::string* name);
  bool fail(const std::string& message);  // always false
  bool fail_near();                       // syntax error at the current token
  bool skip_to_semicolon();
  bool skip_braces();

  Lexer lexer_;
  Token token_;
  std::string error_;
};

}  // namespace openmps::softgpu::ptx
