// SPDX-License-Identifier: Apache-2.0
// PTX at module scope: headers, variables, functions' signatures and directives. See parser.h.
#include "softgpu/ptx/parser.h"

#include <tuple>
#include <utility>

#include "softgpu/ptx/parser_outline.h"

namespace openmps::softgpu::ptx {
namespace {

class ModuleParser final : public OutlineParser {
 public:
  ModuleParser(std::shared_ptr<Module> module, bool puts_off)
      : OutlineParser(std::move(module)), puts_off_(puts_off) {}
  bool run();
  bool put_off_body(int32_t function);

 private:
  bool header();
  bool top_level();
  bool alias();
  bool function(bool is_kernel, bool is_extern);
  bool function_directives(Function* function);
  bool dimensions(uint32_t* out);
  int32_t function_index(const std::string& name);

  const bool puts_off_;
  std::unordered_map<std::string, int32_t> functions_;
  std::unordered_map<int32_t, std::pair<Lexer, Token>>
      bodies_;  // where those that are put off begin
};

bool ModuleParser::header() {
  if (!accept_dot("version")) return fail("Missing .version directive at start of file '<input>'");
  // "9.0" reads as one decimal number.
  if (token_.kind != Token::Kind::kDouble) return fail_near();
  const std::string_view text = token_.text;
  const size_t dot = text.find('.');
  uint32_t major = 0, minor = 0;
  for (char c : text.substr(0, dot)) major = major * 10 + static_cast<uint32_t>(c - '0');
  if (dot == std::string_view::npos || text.size() != dot + 2 || major > 99) return fail_near();
  minor = static_cast<uint32_t>(text[dot + 1] - '0');
  module_->version = 10 * major + minor;
  if (major > kNewestVersion / 10) {
    return fail("Unsupported .version " + std::string(text) + "; current version is '" +
                std::to_string(kNewestVersion / 10) + "." + std::to_string(kNewestVersion % 10) +
                "'");
  }
  advance();
  if (!accept_dot("target")) return fail("Missing .target directive after .version");
  std::string option;
  do {
    if (!expect_name(&option)) return false;
    if (module_->target.empty()) module_->target = option;
  } while (accept(','));
  uint32_t capability;
  char suffix;
  if (!parse_target(module_->target, &capability, &suffix)) {
    return fail("Unknown target '" + module_->target + "'");
  }
  if (accept_dot("address_size")) {
    if (token_.kind != Token::Kind::kInteger) return fail_near();
    if (token_.value != 64) return fail("32-bit addresses (.address_size 32) are not supported");
    advance();
  }
  return true;
}

bool ModuleParser::run() {
  if (!header()) return false;
  while (token_.kind != Token::Kind::kEnd) {
    if (!top_level()) return false;
  }
  for (const GlobalVariable& global : module_->globals) {
    for (const Relocation& relocation : global.relocations) {
      if (!scopes_[0].symbols.contains(relocation.symbol) &&
          !functions_.contains(relocation.symbol)) {
        return fail("Unknown symbol '" + relocation.symbol + "' in the initial value of '" +
                    global.name + "'");
      }
    }
  }
  return true;
}

bool ModuleParser::top_level() {
  if (accept(';')) return true;
  if (token_.kind != Token::Kind::kDotWord) return fail_near();
  bool is_extern = false;
  for (;;) {
    if (accept_dot("visible") || accept_dot("weak") || accept_dot("common")) continue;
    if (!accept_dot("extern")) break;
    is_extern = true;
  }
  if (accept_dot("entry")) return function(true, is_extern);
  if (accept_dot("func")) return function(false, is_extern);
  if (accept_dot("global")) return module_variable(Space::kGlobal, is_extern);
  if (accept_dot("const")) return module_variable(Space::kConst, is_extern);
  if (accept_dot("shared")) return module_variable(Space::kShared, is_extern);
  if (accept_dot("alias")) return alias();
  if (accept_dot("pragma")) return skip_to_semicolon();
  if (accept_dot("file")) {
    while (token_.kind == Token::Kind::kInteger || token_.kind == Token::Kind::kString ||
           token_.is(',')) {
      advance();
    }
    return true;
  }
  if (accept_dot("section")) {
    while (!token_.is('{') && token_.kind != Token::Kind::kEnd) advance();
    return skip_braces();
  }
  if (accept_dot("loc")) {
    for (int i = 0; i < 3 && token_.kind == Token::Kind::kInteger; ++i) advance();
    return true;
  }
  return fail_near();
}

bool ModuleParser::alias() {
  std::string name, target;
  if (!expect_name(&name) || !expect(',') || !expect_name(&target) || !expect(';')) return false;
  if (!functions_.contains(target)) return fail("Unknown symbol '" + target + "'");
  module_->functions[function_index(name)].alias_of = target;
  return true;
}

int32_t ModuleParser::function_index(const std::string& name) {
  auto [found, made] = functions_.try_emplace(name, static_cast<int32_t>(functions_.size()));
  if (made) {
    Function& function = module_->functions.emplace_back();
    function.name = name;
    function.is_extern = true;
    scopes_[0].symbols[name] = {Operand::Kind::kFunction, found->second};
  }
  return found->second;
}

bool ModuleParser::dimensions(uint32_t* out) {
  uint32_t given[3] = {1, 1, 1};
  for (int i = 0; i < 3; ++i) {
    if (token_.kind != Token::Kind::kInteger || token_.value > UINT32_MAX) return fail_near();
    given[i] = static_cast<uint32_t>(token_.value);
    advance();
    if (!accept(',')) break;
  }
  for (int i = 0; i < 3; ++i) out[i] = given[i];
  return true;
}

bool ModuleParser::function_directives(Function* function) {
  uint32_t ignored[3] = {};
  const auto number = [&](uint32_t* out) {
    uint32_t given[3] = {};
    if (!dimensions(given)) return false;
    *out = given[0];
    return true;
  };
  for (;;) {
    if (accept_dot("maxntid")) {
      if (!dimensions(function->max_threads)) return false;
    } else if (accept_dot("reqntid")) {
      if (!dimensions(function->required_threads)) return false;
    } else if (accept_dot("minnctapersm") || accept_dot("maxnctapersm")) {
      if (!number(&function->min_blocks)) return false;
    } else if (accept_dot("maxnreg")) {
      if (!number(&function->max_registers)) return false;
    } else if (accept_dot("reqnctapercluster")) {
      if (!dimensions(function->required_cluster)) return false;
    } else if (accept_dot("maxclusterrank")) {
      if (!number(&function->max_cluster_blocks)) return false;
    } else if (accept_dot("explicitcluster")) {
      function->explicit_cluster = true;
    } else if (accept_dot("abi_preserve") || accept_dot("abi_preserve_control")) {
      if (!dimensions(ignored)) return false;
    } else if (accept_dot("noreturn")) {
      function->prototype.no_return = true;
    } else if (accept_dot("pragma")) {
      if (!skip_to_semicolon()) return false;
    } else if (!accept_dot("blocksareclusters") && !accept_dot("unique")) {
      return true;
    }
  }
}

bool ModuleParser::function(bool is_kernel, bool is_extern) {
  Function parsed;
  parsed.is_kernel = is_kernel;
  parsed.line = token_.line;
  if (!is_kernel && accept('(')) {
    if (!parameters(')', Space::kLocal, &parsed.prototype.returns, &parsed)) return false;
  }
  if (!expect_name(&parsed.name)) return false;
  const Space space = is_kernel ? Space::kParam : Space::kLocal;
  if (accept('(') && !parameters(')', space, &parsed.prototype.parameters, &parsed)) return false;
  if (!function_directives(&parsed)) return false;
  const int32_t index = function_index(parsed.name);
  if (token_.is(';') || is_extern) {
    if (!expect(';')) return false;
    if (module_->functions[index].is_extern && module_->functions[index].alias_of.empty()) {
      parsed.is_extern = true;
      module_->functions[index] = std::move(parsed);
    }
    return true;
  }
  if (!token_.is('{')) return fail_near();
  if (!module_->functions[index].is_extern) {
    return fail("Duplicate definition of function '" + parsed.name + "'");
  }
  const std::pair begin(lexer_, token_);
  parsed.is_put_off = puts_off_ && pass_over(&parsed.mentions);
  if (parsed.is_put_off) {
    bodies_.emplace(index, begin);
  } else {
    std::tie(lexer_, token_) = begin;
    scopes_.resize(1);
    error_.clear();
    if (!body(&parsed)) return false;
  }
  module_->functions[index] = std::move(parsed);
  return true;
}

// Parses the body of a function that was put off; false: see error().
bool ModuleParser::put_off_body(int32_t function) {
  error_.clear();
  scopes_.resize(1);
  std::tie(lexer_, token_) = bodies_.at(function);
  Function parsed = module_->functions[function];
  const bool good = body(&parsed);
  if (good) module_->functions[function] = std::move(parsed);
  return good;
}

}  // namespace

bool parse_target(std::string_view name, uint32_t* capability, char* suffix) {
  if (name.substr(0, 3) != "sm_") return false;
  name.remove_prefix(3);
  uint32_t value = 0;
  size_t digits = 0;
  while (digits < name.size() && digits < 4 && name[digits] >= '0' && name[digits] <= '9') {
    value = value * 10 + static_cast<uint32_t>(name[digits++] - '0');
  }
  if (digits < 2 || name.size() > digits + 1) return false;
  *capability = value;
  *suffix = name.size() > digits ? name[digits] : '\0';
  return true;
}

namespace {

Status failure(const Module& module, const ModuleParser& parser) {
  return Status(
      module.version > kNewestVersion ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_ERROR_INVALID_PTX,
      parser.error() + "\nptxas fatal   : Ptx assembly aborted due to errors");
}

std::shared_ptr<Module> module_of(std::string_view text) {
  auto module = std::make_shared<Module>();
  module->source = text;
  return module;
}

class ParsedLazily final : public LazyModule {
 public:
  explicit ParsedLazily(std::string_view text) : module_(module_of(text)), parser_(module_, true) {}
  Status run() { return parser_.run() ? Status() : failure(*module_, parser_); }

  const Module& module() const override { return *module_; }
  Status parse_body(int32_t function) override {
    outline_ = module_->functions[function];
    if (parser_.put_off_body(function)) return Status();
    Function& broken = module_->functions[function];
    for (const auto* list : {&broken.prototype.returns, &broken.prototype.parameters}) {
      broken.variables.insert(broken.variables.end(), list->begin(), list->end());
    }
    broken.body.emplace_back().instruction.opcode = "that does not parse";
    return failure(*module_, parser_);
  }
  void drop_body(int32_t function) override { module_->functions[function] = std::move(outline_); }

 private:
  std::shared_ptr<Module> module_;
  ModuleParser parser_;
  Function outline_;  // of the function whose body is there
};

}  // namespace

Result<std::shared_ptr<const Module>> parse(std::string_view text) {
  std::shared_ptr<Module> module = module_of(text);
  ModuleParser parser(module, false);
  if (!parser.run()) return failure(*module, parser);
  return std::shared_ptr<const Module>(std::move(module));
}

Result<std::unique_ptr<LazyModule>> LazyModule::open(std::string_view text) {
  auto made = std::make_unique<ParsedLazily>(text);
  OPENMPS_RETURN_IF_ERROR(made->run());
  return std::unique_ptr<LazyModule>(std::move(made));
}

}  // namespace openmps::softgpu::ptx
