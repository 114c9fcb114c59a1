// SPDX-License-Identifier: Apache-2.0
// Splits PTX text into tokens. Used by the parser alone; holds no state but its position.
#pragma once

#include <cstdint>
#include <string_view>

namespace openmps::softgpu::ptx {

struct Token {
  enum class Kind : uint8_t {
    kEnd,
    kError,
    kWord,     // name, mnemonic, %register
    kDotWord,  // ".global", "::" parts included; text is without the dot
    kInteger,
    kFloat,
    kDouble,
    kString,
    kPunctuation,  // one character, or "<<", ">>"
  };
  Kind kind = Kind::kEnd;
  std::string_view text;
  uint64_t value = 0;  // kInteger, and the bits of kFloat and kDouble
  uint32_t line = 0;
  bool space_before = false;

  bool is(char c) const { return kind == Kind::kPunctuation && text.size() == 1 && text[0] == c; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();

 private:
  void skip_blanks();
  Token make(Token::Kind kind, size_t begin);
  Token number();

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace openmps::softgpu::ptx
