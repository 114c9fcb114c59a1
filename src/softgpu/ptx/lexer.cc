// SPDX-License-Identifier: Apache-2.0
// Tokens of PTX: words, dot words, numbers in all of PTX's spellings, comments. Called by the
// parser.
#include "softgpu/ptx/lexer.h"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <string>

namespace openmps::softgpu::ptx {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool starts_word(char c) { return is_letter(c) || c == '_' || c == '$' || c == '%'; }
bool continues_word(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }

}  // namespace

void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    char c = text_[at_];
    if (c == '\n') ++line_;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v') {
      ++at_;
    } else if (c == '/' && text_.substr(at_, 2) == "//") {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '/' && text_.substr(at_, 2) == "/*") {
      size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) end = text_.size() - 2;
      for (size_t i = at_; i < end; ++i) line_ += text_[i] == '\n';
      at_ = end + 2;
    } else {
      return;
    }
  }
}

Token Lexer::make(Token::Kind kind, size_t begin) {
  Token token;
  token.kind = kind;
  token.text = text_.substr(begin, at_ - begin);
  token.line = line_;
  return token;
}

Token Lexer::number() {
  const size_t begin = at_;
  auto peek = [this](size_t i) { return at_ + i < text_.size() ? text_[at_ + i] : '\0'; };
  int base = 10;
  if (peek(0) == '0' && (peek(1) == 'f' || peek(1) == 'F' || peek(1) == 'd' || peek(1) == 'D')) {
    const bool is_double = peek(1) == 'd' || peek(1) == 'D';
    at_ += 2;
    const size_t digits = at_;
    while (is_hex(peek(0))) ++at_;
    Token token = make(is_double ? Token::Kind::kDouble : Token::Kind::kFloat, begin);
    if (at_ - digits != (is_double ? 16u : 8u)) token.kind = Token::Kind::kError;
    std::from_chars(text_.data() + digits, text_.data() + at_, token.value, 16);
    return token;
  }
  if (peek(0) == '0' && (peek(1) == 'x' || peek(1) == 'X')) base = 16;
  if (peek(0) == '0' && (peek(1) == 'b' || peek(1) == 'B')) base = 2;
  if (base != 10) at_ += 2;
  const size_t digits = at_;
  while (is_hex(peek(0)) && (base == 16 || is_digit(peek(0)))) ++at_;
  const bool fraction =
      base == 10 && ((peek(0) == '.' && is_digit(peek(1))) || ((peek(0) == 'e' || peek(0) == 'E')));
  if (fraction) {
    while (
        is_digit(peek(0)) || peek(0) == '.' || peek(0) == 'e' || peek(0) == 'E' ||
        ((peek(0) == '+' || peek(0) == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E'))) {
      ++at_;
    }
    // Not strtod: its decimal point is the locale's.
    double number = 0;
    auto result = std::from_chars(text_.data() + begin, text_.data() + at_, number);
    const bool good = result.ec == std::errc() && result.ptr == text_.data() + at_;
    Token token = make(good ? Token::Kind::kDouble : Token::Kind::kError, begin);
    token.value = std::bit_cast<uint64_t>(number);
    return token;
  }
  if (base == 10 && at_ - digits > 1 && text_[digits] == '0') base = 8;
  uint64_t value = 0;
  auto result = std::from_chars(text_.data() + digits, text_.data() + at_, value, base);
  const bool good = result.ec == std::errc() && result.ptr == text_.data() + at_ && at_ > digits;
  if (peek(0) == 'U') ++at_;
  Token token = make(good ? Token::Kind::kInteger : Token::Kind::kError, begin);
  token.value = value;
  return token;
}

Token Lexer::next() {
  const size_t before = at_;
  skip_blanks();
  const bool space_before = at_ != before;
  auto read = [this]() -> Token {
    if (at_ >= text_.size() || text_[at_] == '\0') return make(Token::Kind::kEnd, at_);
    const size_t begin = at_;
    const char c = text_[at_];
    auto peek = [this](size_t i) { return at_ + i < text_.size() ? text_[at_ + i] : '\0'; };
    if (is_digit(c)) return number();
    if (starts_word(c)) {
      ++at_;
      while (continues_word(peek(0))) ++at_;
      return make(Token::Kind::kWord, begin);
    }
    if (c == '.' && (continues_word(peek(1)))) {
      ++at_;
      while (continues_word(peek(0)) ||
             (peek(0) == ':' && peek(1) == ':' && continues_word(peek(2))) ||
             (peek(0) == ':' && text_[at_ - 1] == ':')) {
        ++at_;
      }
      return make(Token::Kind::kDotWord, begin + 1);
    }
    if (c == '"') {
      ++at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
        at_ += text_[at_] == '\\' && at_ + 1 < text_.size() ? 2 : 1;
      }
      if (at_ >= text_.size() || text_[at_] != '"') return make(Token::Kind::kError, begin);
      ++at_;
      return make(Token::Kind::kString, begin);
    }
    at_ += (c == '<' && peek(1) == '<') || (c == '>' && peek(1) == '>') ? 2 : 1;
    return make(Token::Kind::kPunctuation, begin);
  };
  Token token = read();
  token.space_before = space_before;
  return token;
}

}  // namespace openmps::softgpu::ptx
