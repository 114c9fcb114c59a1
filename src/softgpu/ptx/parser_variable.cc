// SPDX-License-Identifier: Apache-2.0
// See parser_variable.h.
#include "softgpu/ptx/parser_variable.h"

#include <algorithm>

namespace openmps::softgpu::ptx {

// "( .param .u64 .ptr .global .align 4 name, .param .align 8 .b8 s[24] )", after the opening.
bool VariableParser::parameters(char close, Space space, std::vector<Variable>* out,
                                Function* function) {
  if (accept(close)) return true;
  do {
    Variable variable;
    variable.space = space;
    variable.line = token_.line;
    uint32_t vector = 1;
    bool has_array = false, open_array = false;
    if (accept_dot("reg")) {
      if (function) function->uses_register_parameters = true;
    } else if (!accept_dot("param")) {
      return fail_near();
    }
    if (!variable_attributes(&variable, &vector) ||
        !declarator(&variable, &has_array, &open_array)) {
      return false;
    }
    variable.alignment = std::max(variable.alignment, type_bytes(variable.type));
    out->push_back(std::move(variable));
  } while (accept(','));
  return expect(close);
}

// Alignment, vector size, type, and what only other tools care for.
bool VariableParser::variable_attributes(Variable* variable, uint32_t* vector) {
  bool typed = false;
  while (token_.kind == Token::Kind::kDotWord) {
    const std::string_view word = token_.text;
    if (word == "align") {
      advance();
      const uint64_t value = token_.value;
      if (token_.kind != Token::Kind::kInteger || value == 0 || value > 65536 ||
          (value & (value - 1)) != 0) {
        return fail_near();
      }
      if (!typed || variable->alignment == 1) variable->alignment = static_cast<uint32_t>(value);
    } else if (word == "v2" || word == "v4") {
      *vector = word == "v2" ? 2 : 4;
    } else if (word == "attribute") {
      advance();
      if (!token_.is('(')) return fail_near();
      while (!token_.is(')') && token_.kind != Token::Kind::kEnd) {
        if (token_.kind == Token::Kind::kDotWord && token_.text == "managed") {
          variable->is_managed = true;
        }
        advance();
      }
    } else if (word == "texref" || word == "surfref" || word == "samplerref") {
      variable->type = Type::kB64;
      typed = true;
    } else if (type_from_name(word) != Type::kNone) {
      variable->type = type_from_name(word);
      typed = true;
    } else if (word != "ptr" && word != "global" && word != "shared" && word != "const" &&
               word != "local" && word != "param") {
      return fail_near();
    }
    advance();
  }
  return typed || fail_near();
}

// "name", "name[4][2]", "name[]".
bool VariableParser::declarator(Variable* variable, bool* has_array, bool* open_array) {
  if (!expect_name(&variable->name)) return false;
  unsigned __int128 bytes = type_bytes(variable->type);
  while (accept('[')) {
    *has_array = true;
    if (accept(']')) {
      *open_array = true;
      continue;
    }
    Value value;
    if (!expression(&value) || !expect(']')) return false;
    if (value.kind != Value::Kind::kInteger) return fail_near();
    bytes *= value.bits;
    if (bytes > kMaxVariableBytes) return fail("Array '" + variable->name + "' is too large");
  }
  variable->bytes = *open_array ? 0 : static_cast<uint64_t>(bytes);
  return true;
}

bool VariableParser::module_variable(Space space, bool is_extern) {
  Variable proto;
  uint32_t vector = 1;
  proto.space = space;
  if (!variable_attributes(&proto, &vector)) return false;
  do {
    if (!add_global(space, is_extern, proto, vector)) return false;
  } while (accept(','));
  return expect(';');
}

bool VariableParser::add_global(Space space, bool is_extern, const Variable& proto,
                                uint32_t vector) {
  GlobalVariable variable;
  static_cast<Variable&>(variable) = proto;
  variable.is_extern = is_extern;
  variable.line = token_.line;
  const char* const at = token_.text.data();
  bool has_array = false, open_array = false;
  if (!declarator(&variable, &has_array, &open_array)) return false;
  variable.bytes *= vector;
  variable.alignment = std::max(variable.alignment, type_bytes(proto.type) * vector);
  const std::string name = variable.name;
  auto& symbols = scopes_.back().symbols;
  if (space == Space::kShared) {
    const auto [known, is_new] =
        shared_at_.try_emplace(at, static_cast<int32_t>(module_->shared.size()));
    if (is_new) module_->shared.push_back(variable);
    symbols[name] = {Operand::Kind::kShared, known->second};
    return true;
  }
  auto found = symbols.find(name);
  int32_t index = static_cast<int32_t>(module_->globals.size());
  if (found != symbols.end()) {
    if (found->second.kind != Operand::Kind::kGlobal ||
        !(module_->globals[found->second.index].is_extern || is_extern)) {
      return fail("Duplicate definition of variable '" + name + "'");
    }
    index = found->second.index;
  } else {
    symbols[name] = {Operand::Kind::kGlobal, index};
    module_->globals.emplace_back();
  }
  if (accept('=')) {
    uint64_t end = 0;
    if (!open_array) variable.initial.reserve(std::min<uint64_t>(variable.bytes, 1 << 20));
    if (open_array) variable.bytes = kMaxVariableBytes;
    if (!initializer(&variable, proto.type, &end, 0)) return false;
    if (open_array) variable.bytes = end;
  }
  if (found == symbols.end() || !is_extern) module_->globals[index] = std::move(variable);
  return true;
}

}  // namespace openmps::softgpu::ptx
