// SPDX-License-Identifier: Apache-2.0
// Constant expressions and initial values of PTX. A part of the parser, see token_reader.h.
#pragma once

#include <cstdint>
#include <string>

#include "softgpu/ptx/ast.h"
#include "softgpu/ptx/token_reader.h"

namespace openmps::softgpu::ptx {

// A constant expression's value.
struct Value {
  enum class Kind : uint8_t { kInteger, kFloat, kDouble, kSymbol } kind = Kind::kInteger;
  uint64_t bits = 0;
  std::string symbol;
  int64_t addend = 0;
  int mask_shift = -1;
};

class ValueParser : public TokenReader {
 protected:
  using TokenReader::TokenReader;

  bool expression(Value* out, int precedence = 0);
  bool primary(Value* out);
  bool initializer(GlobalVariable* variable, Type type, uint64_t* at, int depth);

  int nesting_ = 0;

 private:
  bool store_value(GlobalVariable* variable, Type type, uint64_t at, const Value& value);
};

}  // namespace openmps::softgpu::ptx
