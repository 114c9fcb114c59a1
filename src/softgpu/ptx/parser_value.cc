// SPDX-License-Identifier: Apache-2.0
// See parser_value.h.
#include "softgpu/ptx/parser_value.h"

#include <bit>
#include <cstring>

namespace openmps::softgpu::ptx {
namespace {

struct BinaryOperator {
  std::string_view text;
  int precedence;
};
constexpr BinaryOperator kOperators[] = {
    {"|", 1}, {"^", 2}, {"&", 3}, {"<<", 4}, {">>", 4},
    {"+", 5}, {"-", 5}, {"*", 6}, {"/", 6},  {"%", 6},
};

bool apply(std::string_view op, uint64_t a, uint64_t b, uint64_t* out) {
  const auto sa = static_cast<int64_t>(a), sb = static_cast<int64_t>(b);
  if ((op == "/" || op == "%") && (b == 0 || (sa == INT64_MIN && sb == -1))) return false;
  if (op == "|") *out = a | b;
  if (op == "^") *out = a ^ b;
  if (op == "&") *out = a & b;
  if (op == "<<") *out = b < 64 ? a << b : 0;
  if (op == ">>") *out = b < 64 ? a >> b : 0;
  if (op == "+") *out = a + b;
  if (op == "-") *out = a - b;
  if (op == "*") *out = a * b;
  if (op == "/") *out = static_cast<uint64_t>(sa / sb);
  if (op == "%") *out = static_cast<uint64_t>(sa % sb);
  return true;
}

}  // namespace

bool ValueParser::primary(Value* out) {
  if (++nesting_ > kMaxNesting) return fail("Expression is nested too deeply");
  bool good = true;
  if (token_.is('-') || token_.is('~') || token_.is('!') || token_.is('+')) {
    const char op = token_.text[0];
    advance();
    good = primary(out);
    if (good && op != '+') {
      if (out->kind == Value::Kind::kSymbol) return fail_near();
      if (op == '-' && out->kind == Value::Kind::kInteger) out->bits = -out->bits;
      if (op == '-' && out->kind == Value::Kind::kFloat) out->bits ^= 0x80000000u;
      if (op == '-' && out->kind == Value::Kind::kDouble) out->bits ^= uint64_t{1} << 63;
      if (op == '~') out->bits = ~out->bits;
      if (op == '!') out->bits = out->bits == 0;
    }
  } else if (accept('(')) {
    if (token_.kind == Token::Kind::kDotWord) {  // "(.s64) 5": all constants are 64 bits wide
      advance();
      good = expect(')') && primary(out);
    } else {
      good = expression(out) && expect(')');
    }
  } else if (token_.kind == Token::Kind::kInteger) {
    out->bits = token_.value;
    advance();
    if (accept('(')) {  // "0xff00(symbol)": one byte of an address
      const uint64_t mask = out->bits;
      out->mask_shift = mask ? std::countr_zero(mask) : 0;
      const int shift = out->mask_shift;
      if (mask == 0 || mask >> shift != 0xff || shift % 8 != 0) return fail_near();
      good = expression(out) && expect(')');
      if (good && out->kind != Value::Kind::kSymbol) return fail_near();
      out->mask_shift = shift;
    }
  } else if (token_.kind == Token::Kind::kFloat || token_.kind == Token::Kind::kDouble) {
    out->kind = token_.kind == Token::Kind::kFloat ? Value::Kind::kFloat : Value::Kind::kDouble;
    out->bits = token_.value;
    advance();
  } else if (token_.kind == Token::Kind::kWord) {
    std::string name(token_.text);
    advance();
    if (name == "generic" && accept('(')) {
      good = expression(out) && expect(')');
    } else if (name == "WARP_SZ") {
      out->bits = 32;
    } else {
      out->kind = Value::Kind::kSymbol;
      out->symbol = std::move(name);
    }
  } else {
    good = fail_near();
  }
  --nesting_;
  return good;
}

bool ValueParser::expression(Value* out, int precedence) {
  if (!primary(out)) return false;
  for (;;) {
    const BinaryOperator* op = nullptr;
    if (token_.kind == Token::Kind::kPunctuation) {
      for (const BinaryOperator& candidate : kOperators) {
        if (candidate.text == token_.text) op = &candidate;
      }
    }
    if (!op || op->precedence <= precedence) return true;
    advance();
    Value right;
    if (!expression(&right, op->precedence)) return false;
    if (out->kind == Value::Kind::kSymbol && right.kind == Value::Kind::kInteger &&
        (op->text == "+" || op->text == "-")) {
      const uint64_t delta = op->text == "+" ? right.bits : -right.bits;
      out->addend = static_cast<int64_t>(static_cast<uint64_t>(out->addend) + delta);
    } else if (out->kind != Value::Kind::kInteger || right.kind != Value::Kind::kInteger ||
               !apply(op->text, out->bits, right.bits, &out->bits)) {
      return fail("Illegal constant expression");
    }
  }
}

bool ValueParser::store_value(GlobalVariable* variable, Type type, uint64_t at,
                              const Value& value) {
  const uint32_t size = type_bytes(type);
  if (at + size > variable->bytes) {
    return fail("Too many initial values for '" + variable->name + "'");
  }
  if (at + size > (uint64_t{1} << 32)) {
    return fail("Initial value of '" + variable->name + "' is too large");
  }
  if (variable->initial.size() < at + size) variable->initial.resize(at + size);
  uint64_t bits = value.bits;
  if (value.kind == Value::Kind::kSymbol) {
    variable->relocations.push_back({at, size, value.symbol, value.addend, value.mask_shift});
    return true;
  }
  if (value.kind == Value::Kind::kDouble && size == 4 && is_float(type)) {
    bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(value.bits)));
  }
  if (value.kind == Value::Kind::kFloat && size == 8) {
    bits = std::bit_cast<uint64_t>(
        static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(value.bits))));
  }
  if (value.kind == Value::Kind::kInteger && is_float(type) && size >= 4) {
    const auto number = static_cast<double>(static_cast<int64_t>(value.bits));
    bits = size == 8 ? std::bit_cast<uint64_t>(number)
                     : std::bit_cast<uint32_t>(static_cast<float>(number));
  }
  std::memcpy(variable->initial.data() + at, &bits, std::min<uint32_t>(size, 8));
  return true;
}

// One value or "{ a, b, { c } }": nested braces only group, values are stored one after another.
bool ValueParser::initializer(GlobalVariable* variable, Type type, uint64_t* at, int depth) {
  if (depth > kMaxNesting) return fail("Initial value is nested too deeply");
  if (!accept('{')) {
    Value value;
    if (!expression(&value) || !store_value(variable, type, *at, value)) return false;
    *at += type_bytes(type);
    return true;
  }
  if (accept('}')) return true;
  do {
    if (!initializer(variable, type, at, depth + 1)) return false;
  } while (accept(','));
  return expect('}');
}

}  // namespace openmps::softgpu::ptx
