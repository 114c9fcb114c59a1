// SPDX-License-Identifier: Apache-2.0
// See parser_outline.h.
#include "softgpu/ptx/parser_outline.h"

#include <algorithm>
#include <array>
#include <string>

namespace openmps::softgpu::ptx {
namespace {

// Directives of a body that end with a semicolon and concern nothing but the body.
constexpr std::array<std::string_view, 7> kOwnDirectives = {
    "reg", "local", "param", "pragma", "branchtargets", "callprototype", "calltargets"};

}  // namespace

// "call.uni (result), callee, (arguments), prototype;", at the word behind "call".
void OutlineParser::note_callee(Mentions* mentions) {
  while (token_.kind == Token::Kind::kDotWord) advance();
  if (accept('(')) {
    while (!token_.is(')') && token_.kind != Token::Kind::kEnd) advance();
    accept(')');
    accept(',');
  }
  const Symbol* symbol = find_symbol(std::string(token_.text));
  if (symbol != nullptr && symbol->kind == Operand::Kind::kFunction) {
    mentions->callees.push_back(symbol->index);
  } else {
    mentions->calls_indirectly = true;
  }
}

// kUnknown: it is none that can be passed over.
OutlineParser::Begun OutlineParser::directive() {
  bool good = false;
  if (token_.text == "loc" || token_.text == "file") {  // these end with the line
    const uint32_t line = token_.line;
    while (token_.line == line && token_.kind != Token::Kind::kEnd && !token_.is('}')) advance();
    good = true;
  } else if (accept_dot("shared")) {
    good = module_variable(Space::kShared, false);
  } else if (accept_dot("extern")) {
    good = accept_dot("shared") && module_variable(Space::kShared, true);
  } else {
    good = std::ranges::find(kOwnDirectives, token_.text) != kOwnDirectives.end() &&
           skip_to_semicolon();
  }
  return good ? Begun::kDirective : Begun::kUnknown;
}

// To behind the opcode's first word, or behind a directive or the word of a label.
OutlineParser::Begun OutlineParser::begin_statement(Mentions* mentions) {
  if (token_.kind == Token::Kind::kDotWord) return directive();
  if (accept('@')) {
    accept('!');
    advance();
  }
  const bool is_call = token_.kind == Token::Kind::kWord && token_.text == "call";
  advance();
  if (is_call) note_callee(mentions);
  return Begun::kStatement;
}

// The names of registers, most words of a body, begin with "%", and those of variables hardly ever
// do.
void OutlineParser::rest_of_statement(Mentions* mentions) {
  while (!token_.is(';') && !token_.is(':') && token_.kind != Token::Kind::kEnd &&
         token_.kind != Token::Kind::kError) {
    if (token_.kind == Token::Kind::kWord && (token_.text[0] != '%' || odd_names_)) {
      const Symbol* symbol = find_symbol(std::string(token_.text));
      if (symbol != nullptr && symbol->kind == Operand::Kind::kShared) {
        mentions->variables.insert(symbol->index);
      }
    }
    advance();
  }
}

bool OutlineParser::pass_over(Mentions* mentions) {
  const size_t outside = scopes_.size();
  odd_names_ = std::ranges::any_of(
      module_->shared, [](const Variable& variable) { return variable.name[0] == '%'; });
  do {
    if (token_.kind == Token::Kind::kEnd || token_.kind == Token::Kind::kError) return false;
    if (accept('{')) {
      scopes_.emplace_back();
      if (scopes_.size() - outside > kMaxNesting) return false;
    } else if (accept('}')) {
      scopes_.pop_back();
    } else if (!accept(';') && !accept(':')) {
      const Begun begun = begin_statement(mentions);
      if (begun == Begun::kUnknown) return false;
      if (begun == Begun::kStatement) rest_of_statement(mentions);
    }
  } while (scopes_.size() > outside);
  return true;
}

}  // namespace openmps::softgpu::ptx
