// SPDX-License-Identifier: Apache-2.0
// See parser_body.h.
#include "softgpu/ptx/parser_body.h"

#include <algorithm>

#include "softgpu/ptx/opcode_table.h"

namespace openmps::softgpu::ptx {

bool BodyParser::body(Function* function) {
  function_ = function;
  label_alias_.clear();
  scopes_.emplace_back();
  for (auto* list : {&function->prototype.returns, &function->prototype.parameters}) {
    for (const Variable& variable : *list) {
      scopes_.back().symbols[variable.name] = {Operand::Kind::kVariable,
                                               static_cast<int32_t>(function->variables.size())};
      function->variables.push_back(variable);
    }
  }
  if (!expect('{')) return false;
  size_t depth = 1;
  while (depth > 0) {
    if (accept('{')) {
      if (++depth > kMaxNesting) return fail("Scopes are nested too deeply");
      scopes_.emplace_back();
    } else if (accept('}')) {
      --depth;
      close_scope();
    } else if (!statement()) {
      return false;
    }
  }
  function_ = nullptr;
  return error_.empty();
}

// Labels that this scope used but did not define belong to the scope around it.
void BodyParser::close_scope() {
  Scope closed = std::move(scopes_.back());
  scopes_.pop_back();
  if (scopes_.size() == 1) {
    scopes_.push_back(std::move(closed));
    finish_labels();
    scopes_.pop_back();
    return;
  }
  for (const auto& [name, index] : closed.labels) {
    if (function_->label_lines[index] >= 0) continue;
    auto [outer, made] = scopes_.back().labels.try_emplace(name, index);
    if (!made) label_alias_[index] = outer->second;
  }
}

bool BodyParser::finish_labels() {
  auto resolve = [this](int32_t* index) {
    while (label_alias_[*index] != *index) *index = label_alias_[*index];
    if (function_->label_lines[*index] < 0) {
      fail("Unknown symbol '" + function_->labels[*index] + "'");
    }
  };
  auto check_place = [this](int32_t index) {
    if (function_->targets_of_label.contains(index)) {
      fail("Label '" + function_->labels[index] + "' names a list of targets, no instruction");
    }
  };
  for (Statement& statement : function_->body) {
    const Rule* rule = statement.instruction.rule;
    for (Operand& operand : statement.instruction.operands) {
      if (operand.kind != Operand::Kind::kLabel) continue;
      resolve(&operand.index);
      if (rule->lowering == Lowering::kBranch) check_place(operand.index);
    }
  }
  for (BranchTargets& targets : function_->branch_targets) {
    for (int32_t& label : targets.labels) {
      resolve(&label);
      check_place(label);
    }
  }
  return error_.empty();
}

int32_t BodyParser::label_reference(const std::string& name) {
  auto [found, made] =
      scopes_.back().labels.try_emplace(name, static_cast<int32_t>(function_->labels.size()));
  if (made) {
    function_->labels.push_back(name);
    function_->label_lines.push_back(-1);
    label_alias_.push_back(found->second);
  }
  return found->second;
}

bool BodyParser::define_label(const std::string& name) {
  const int32_t index = label_reference(name);
  if (function_->label_lines[index] >= 0) {
    return fail("Duplicate definition of label '" + name + "'");
  }
  function_->label_lines[index] = static_cast<int32_t>(token_.line);
  Statement& statement = function_->body.emplace_back();
  statement.label = index;
  return true;
}

bool BodyParser::statement() {
  if (!error_.empty()) return false;
  if (accept(';')) return true;
  if (token_.kind == Token::Kind::kDotWord) return directive();
  int32_t guard = -1;
  bool negated = false;
  if (accept('@')) {
    negated = accept('!');
    std::string name;
    if (!expect_name(&name)) return false;
    if (!find_register(name, &guard)) return fail("Unknown symbol '" + name + "'");
    if (function_->registers[guard].type != Type::kPred) {
      return fail("Guard '" + name + "' is not a predicate");
    }
  }
  if (token_.kind != Token::Kind::kWord) return fail_near();
  const Token word = token_;
  advance();
  if (guard < 0 && accept(':')) {
    if (token_.kind == Token::Kind::kDotWord &&
        (token_.text == "branchtargets" || token_.text == "callprototype" ||
         token_.text == "calltargets")) {
      return labelled_directive(std::string(word.text));
    }
    return define_label(std::string(word.text));
  }
  return instruction(word.text, word.line, guard, negated);
}

bool BodyParser::directive() {
  if (accept_dot("reg")) return register_declaration();
  if (accept_dot("local")) return local_variable(Space::kLocal);
  if (accept_dot("param")) return local_variable(Space::kLocal);
  if (accept_dot("shared")) return module_variable(Space::kShared, false);
  if (accept_dot("global")) return module_variable(Space::kGlobal, false);
  if (accept_dot("const")) return module_variable(Space::kConst, false);
  if (accept_dot("pragma")) return skip_to_semicolon();
  if (accept_dot("loc")) {
    // ".loc file line column" and, from newer compilers, ", function_name label, inlined_at ...".
    const uint32_t line = token_.line;
    while (token_.line == line && token_.kind != Token::Kind::kEnd && !token_.is('}')) advance();
    return true;
  }
  if (accept_dot("file")) {
    const uint32_t line = token_.line;
    while (token_.line == line && token_.kind != Token::Kind::kEnd) advance();
    return true;
  }
  if (accept_dot("extern")) {
    if (accept_dot("shared")) return module_variable(Space::kShared, true);
    return fail_near();
  }
  return fail_near();
}

bool BodyParser::register_declaration() {
  uint32_t vector = 1;
  Variable proto;
  if (!variable_attributes(&proto, &vector)) return false;
  do {
    if (token_.kind != Token::Kind::kWord) return fail_near();
    const std::string_view name = token_.text;
    advance();
    if (accept('<')) {
      if (token_.kind != Token::Kind::kInteger || vector != 1) return fail_near();
      scopes_.back().families.push_back({name, proto.type, token_.value});
      advance();
      if (!expect('>')) return false;
      continue;
    }
    for (uint32_t i = 0; i < vector; ++i) {
      std::string full(name);
      if (vector > 1) full += std::string(".") + "xyzw"[i];
      scopes_.back().symbols[full] = {Operand::Kind::kRegister,
                                      static_cast<int32_t>(function_->registers.size())};
      function_->registers.push_back({full, proto.type});
    }
  } while (accept(','));
  return expect(';');
}

bool BodyParser::local_variable(Space space) {
  Variable proto;
  uint32_t vector = 1;
  proto.space = space;
  if (!variable_attributes(&proto, &vector)) return false;
  do {
    Variable variable = proto;
    bool has_array = false, open_array = false;
    variable.line = token_.line;
    if (!declarator(&variable, &has_array, &open_array)) return false;
    variable.bytes *= vector;
    variable.alignment = std::max(variable.alignment, type_bytes(proto.type) * vector);
    scopes_.back().symbols[variable.name] = {Operand::Kind::kVariable,
                                             static_cast<int32_t>(function_->variables.size())};
    function_->variables.push_back(std::move(variable));
  } while (accept(','));
  return expect(';');
}

bool BodyParser::labelled_directive(const std::string& label) {
  if (accept_dot("callprototype")) return call_prototype(label);
  if (accept_dot("calltargets")) {  // a promise that only optimisers use; calls may name it
    scopes_.back().symbols[label] = {Operand::Kind::kPrototype,
                                     static_cast<int32_t>(function_->prototypes.size())};
    function_->prototypes.emplace_back();
    return skip_to_semicolon();
  }
  advance();  // .branchtargets
  const auto index = static_cast<int32_t>(function_->branch_targets.size());
  BranchTargets targets;
  do {
    std::string name;
    if (!expect_name(&name)) return false;
    targets.labels.push_back(label_reference(name));
  } while (accept(','));
  const int32_t own = label_reference(label);
  function_->label_lines[own] = static_cast<int32_t>(token_.line);
  function_->branch_targets.push_back(std::move(targets));
  function_->targets_of_label[own] = index;
  return expect(';');
}

// "(.param .b32 _) _ (.param .b64 _, .param .b32 _) .noreturn;"
bool BodyParser::call_prototype(const std::string& label) {
  Prototype prototype;
  std::string name;
  if (accept('(') && !parameters(')', Space::kLocal, &prototype.returns, nullptr)) return false;
  if (!expect_name(&name)) return false;
  if (accept('(') && !parameters(')', Space::kLocal, &prototype.parameters, nullptr)) return false;
  if (accept_dot("noreturn")) prototype.no_return = true;
  while (token_.kind == Token::Kind::kDotWord || token_.kind == Token::Kind::kInteger) advance();
  scopes_.back().symbols[label] = {Operand::Kind::kPrototype,
                                   static_cast<int32_t>(function_->prototypes.size())};
  function_->prototypes.push_back(std::move(prototype));
  return expect(';');
}

const Symbol* BodyParser::find_symbol(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (auto found = scope->symbols.find(name); found != scope->symbols.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

bool BodyParser::find_register(const std::string& name, int32_t* index) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  const std::string_view prefix = std::string_view(name).substr(0, digits);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (auto found = scope->symbols.find(name); found != scope->symbols.end()) {
      *index = found->second.index;
      return found->second.kind == Operand::Kind::kRegister;
    }
    if (digits == name.size() || name.size() - digits > 9) continue;
    const uint64_t number = std::stoull(name.substr(digits));
    for (const RegisterFamily& family : scope->families) {
      if (family.prefix != prefix || number >= family.count) continue;
      *index = static_cast<int32_t>(function_->registers.size());
      scope->symbols[name] = {Operand::Kind::kRegister, *index};
      function_->registers.push_back({name, family.type});
      return true;
    }
  }
  return false;
}

bool BodyParser::instruction(std::string_view mnemonic, uint32_t line, int32_t guard,
                             bool negated) {
  Statement statement;
  Instruction& made = statement.instruction;
  made.line = line;
  made.guard = guard;
  made.guard_negated = negated;
  std::vector<std::string_view> parts;
  const char* end = mnemonic.data() + mnemonic.size();
  while (token_.kind == Token::Kind::kDotWord) {
    parts.push_back(token_.text);
    end = token_.text.data() + token_.text.size();
    advance();
  }
  made.opcode = std::string_view(mnemonic.data(), static_cast<size_t>(end - mnemonic.data()));
  const RuleRange candidates = rules_of(mnemonic);
  for (const bool any_order : {false, true}) {
    for (const Rule* rule = candidates.begin; rule != candidates.end && !made.rule; ++rule) {
      if (match(*rule, parts, any_order, &made)) made.rule = rule;
    }
  }
  if (!made.rule) {
    if (token_.is(',')) return expect(';');  // no operands begin like this: a slip, not an opcode
    // Refused when a kernel that needs it is used, not now: images contain code that never runs.
    if (!skip_to_semicolon()) return false;
    function_->body.push_back(std::move(statement));
    return true;
  }
  std::string_view letters = made.rule->operands;
  while (!token_.is(';')) {
    const char letter = letters.empty() ? 'X' : letters[0];
    const size_t blank = letters.find(' ');
    letters = blank == std::string_view::npos ? std::string_view() : letters.substr(blank + 1);
    Operand parsed;
    if (!operand(letter, &parsed)) return false;
    made.operands.push_back(std::move(parsed));
    if (!accept(',')) break;
  }
  if (!expect(';')) return false;
  token_.line = token_.line ? token_.line : line;
  if (!check_operands(made)) return false;
  function_->body.push_back(std::move(statement));
  return true;
}

// The count of operands, and that each is of the kind that the rule's letter asks for.
bool BodyParser::check_operands(const Instruction& instruction) {
  using Kind = Operand::Kind;
  const std::string_view shape = instruction.rule->operands;
  size_t at = 0, index = 0;
  bool good = true;
  while (at < shape.size() && good) {
    const char letter = shape[at];
    const bool optional = at + 1 < shape.size() && shape[at + 1] == '?';
    at += optional ? 3 : 2;
    if (index >= instruction.operands.size()) {
      good = optional;
      continue;
    }
    const Operand& operand = instruction.operands[index++];
    if (!operand.selector.empty() && instruction.rule->lowering != Lowering::kVideo) good = false;
    const bool is_register = operand.kind == Kind::kRegister || operand.kind == Kind::kSink;
    const bool is_predicate =
        operand.kind == Kind::kRegister && function_->registers[operand.index].type == Type::kPred;
    switch (letter) {
      case 'D': good = is_register && !is_predicate; break;
      case 'V': good = is_register || operand.kind == Kind::kVector; break;
      case 'P': good = is_predicate || operand.kind == Kind::kSink; break;
      case 'Q':
        good = is_predicate || operand.kind == Kind::kInteger ||
               operand.special == SpecialRegister::kIsExplicitCluster;
        break;
      case 'M': good = operand.kind == Kind::kAddress; break;
      case 'T':
        good = operand.kind == Kind::kAddress && operand.items.size() > 1;
        for (const Operand& item : operand.items) {
          good = good && (item.kind == Kind::kRegister || item.kind == Kind::kInteger ||
                          item.kind == Kind::kFloat || item.kind == Kind::kSpecial);
        }
        break;
      case 'L': good = operand.kind == Kind::kLabel; break;
      case 'S':
        good = operand.kind != Kind::kVector && operand.kind != Kind::kAddress &&
               operand.kind != Kind::kSink && operand.kind != Kind::kList && !is_predicate;
        break;
      default: break;
    }
    for (const Operand& item : operand.items) good = good && item.selector.empty();
  }
  if (good && index == instruction.operands.size()) return true;
  const uint32_t now = token_.line;
  token_.line = instruction.line;
  fail("Arguments mismatch for instruction '" + std::string(instruction.opcode) + "'");
  token_.line = now;
  return false;
}

bool BodyParser::operand(char letter, Operand* out) {
  if (accept('[')) return address(letter, out);
  if (accept('{')) {
    return list('}', Operand::Kind::kVector, letter, out) && (letter != 'V' || second(out));
  }
  if (letter == 'X' && accept('(')) return list(')', Operand::Kind::kList, letter, out);
  if (accept('!')) {
    std::string name;
    out->kind = Operand::Kind::kRegister;
    out->negated = true;
    return expect_name(&name) &&
           (find_register(name, &out->index) || fail("Unknown symbol '" + name + "'"));
  }
  if (token_.kind == Token::Kind::kWord && token_.text != "WARP_SZ") {
    return name_operand(letter, out);
  }
  return constant_operand(out);
}

// "|p" behind what is written, or nothing.
bool BodyParser::second(Operand* out) {
  if (!accept('|')) return true;
  std::string name;
  if (!expect_name(&name)) return false;
  if (name == "_") {
    out->pair = -2;
    return true;
  }
  return find_register(name, &out->pair) || fail("Unknown symbol '" + name + "'");
}

bool BodyParser::name_operand(char letter, Operand* out) {
  std::string name(token_.text);
  advance();
  if (name == "_") {
    out->kind = Operand::Kind::kSink;
    if (!accept('|')) return true;
  }
  // "%tid.x", "%v.x": the selector follows without a blank.
  if (token_.kind == Token::Kind::kDotWord && !token_.space_before) {
    const std::string whole = name + "." + std::string(token_.text);
    // A part of a register, unless there is one of that name.
    const bool is_part = !find_register(whole, &out->index) && find_register(name, &out->index);
    if (is_part) {
      out->selector = token_.text;
    } else {
      name = whole;
    }
    advance();
  }
  if (letter == 'L') {
    out->kind = Operand::Kind::kLabel;
    out->index = label_reference(name);
    return true;
  }
  if (find_register(name, &out->index)) {
    out->kind = Operand::Kind::kRegister;
    return second(out);
  }
  out->special = special_register_from_name(name);
  if (out->special != SpecialRegister::kNone) {
    out->kind = Operand::Kind::kSpecial;
    return true;
  }
  if (const Symbol* symbol = find_symbol(name)) {
    out->kind = symbol->kind;
    out->index = symbol->index;
    while (token_.is('+') || token_.is('-')) {
      const bool minus = token_.is('-');
      advance();
      Value value;
      if (!primary(&value)) return false;
      if (value.kind != Value::Kind::kInteger) return fail_near();
      const uint64_t delta = minus ? -value.bits : value.bits;
      out->offset = static_cast<int64_t>(static_cast<uint64_t>(out->offset) + delta);
    }
    return true;
  }
  if (name[0] == '%' || letter != 'X') return fail("Unknown symbol '" + name + "'");
  out->kind = Operand::Kind::kLabel;
  out->index = label_reference(name);
  return true;
}

bool BodyParser::address(char letter, Operand* out) {
  out->kind = Operand::Kind::kAddress;
  Operand base;
  if (token_.kind == Token::Kind::kWord) {
    if (!name_operand('S', &base)) return false;
    while (token_.is('+') || token_.is('-')) {
      const bool minus = token_.is('-');
      advance();
      Value value;
      if (!primary(&value)) return false;
      if (value.kind != Value::Kind::kInteger) return fail_near();
      const uint64_t delta = minus ? -value.bits : value.bits;
      out->offset = static_cast<int64_t>(static_cast<uint64_t>(out->offset) + delta);
    }
  } else if (!constant_operand(&base)) {
    return false;
  }
  out->items.push_back(std::move(base));
  if (letter == 'T' && accept(',')) {
    Operand coordinates;
    if (!operand('W', &coordinates)) return false;
    if (coordinates.kind != Operand::Kind::kVector) coordinates.items = {coordinates};
    for (Operand& item : coordinates.items) out->items.push_back(std::move(item));
  }
  return expect(']');
}

bool BodyParser::list(char close, Operand::Kind kind, char letter, Operand* out) {
  out->kind = kind;
  if (accept(close)) return true;
  if (++nesting_ > kMaxNesting) return fail("Operands are nested too deeply");
  do {
    Operand item;
    if (!operand(letter == 'V' || letter == 'W' ? 'S' : letter, &item)) return false;
    out->items.push_back(std::move(item));
  } while (accept(','));
  --nesting_;
  return expect(close);
}

bool BodyParser::constant_operand(Operand* out) {
  Value value;
  if (!expression(&value)) return false;
  if (value.kind == Value::Kind::kSymbol) return fail_near();
  out->kind = value.kind == Value::Kind::kInteger ? Operand::Kind::kInteger : Operand::Kind::kFloat;
  out->is_double = value.kind == Value::Kind::kDouble;
  out->integer = value.bits;
  return true;
}

}  // namespace openmps::softgpu::ptx
