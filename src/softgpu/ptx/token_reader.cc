// SPDX-License-Identifier: Apache-2.0
// See token_reader.h.
#include "softgpu/ptx/token_reader.h"

namespace openmps::softgpu::ptx {

void TokenReader::advance() { token_ = lexer_.next(); }

bool TokenReader::fail(const std::string& message) {
  if (error_.empty()) {
    error_ = "ptxas application ptx input, line " + std::to_string(token_.line) +
             "; error   : " + message;
  }
  return false;
}

bool TokenReader::fail_near() {
  if (token_.kind == Token::Kind::kEnd) return fail("Parsing error near '<EOF>': syntax error");
  return fail("Parsing error near '" + std::string(token_.text) + "': syntax error");
}

bool TokenReader::accept(char c) {
  if (!token_.is(c)) return false;
  advance();
  return true;
}

bool TokenReader::accept_dot(std::string_view word) {
  if (token_.kind != Token::Kind::kDotWord || token_.text != word) return false;
  advance();
  return true;
}

bool TokenReader::expect(char c) { return accept(c) || fail_near(); }

bool TokenReader::expect_name(std::string* name) {
  if (token_.kind != Token::Kind::kWord) return fail_near();
  *name = token_.text;
  advance();
  return true;
}

bool TokenReader::skip_to_semicolon() {
  while (!token_.is(';')) {
    if (token_.kind == Token::Kind::kEnd || token_.kind == Token::Kind::kError) return fail_near();
    advance();
  }
  advance();
  return true;
}

bool TokenReader::skip_braces() {
  int depth = 0;
  do {
    if (token_.kind == Token::Kind::kEnd) return fail_near();
    depth += token_.is('{') ? 1 : token_.is('}') ? -1 : 0;
    advance();
  } while (depth > 0);
  return true;
}

}  // namespace openmps::softgpu::ptx
