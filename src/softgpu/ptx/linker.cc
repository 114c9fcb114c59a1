// SPDX-License-Identifier: Apache-2.0
// Linking PTX. See linker.h. An input is cut into its statements at module scope; the result is one
// header, all variables, a declaration of every function, then their bodies.
#include "softgpu/ptx/linker.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "softgpu/ptx/device_calls.h"
#include "softgpu/ptx/lexer.h"
#include "softgpu/ptx/parser.h"

namespace openmps::softgpu::ptx {
namespace {

enum class Linkage { kLocal, kVisible, kWeak, kExtern };

// A function, a kernel or a variable at module scope.
struct SymbolStatement {
  Linkage linkage = Linkage::kLocal;
  bool is_function = false;
  bool is_kernel = false;
  bool is_shared = false;  // an extern one is the launch's dynamic shared memory
  bool is_alias = false;
  bool has_body = false;
  std::string name;
  std::string head;               // without its linkage, up to the body
  std::string body;               // or the ";" of a declaration, or a variable's initial value
  std::vector<std::string> used;  // words of head and body
};

struct Input {
  std::string name;
  std::string version;
  uint32_t version_number = 0;
  std::string target;
  uint32_t capability = 0;
  std::vector<SymbolStatement> statements;
};

// What the device's run time provides.
bool is_builtin(const std::string& name) {
  return name == "vprintf" || name == "malloc" || name == "free" || name == "__assertfail" ||
         name == "cudaGraphSetConditional" || find_device_function(name) != nullptr;
}

// Functions of the device runtime that need nothing but PTX: an input that is there if one of them
// is asked for; what a program defines itself goes first. The handle of a grid is the address of
// its workspace, which only a cooperative launch has: a word of no use here, then one whose highest
// bit all blocks together turn over, each with one addition, as those do that cooperative groups
// put into a program: both may meet in one kernel.
constexpr char kDeviceLibrary[] = R"(.version 7.0
.target sm_70
.address_size 64
.weak .func (.param .b64 handle) cudaCGGetIntrinsicHandle (.param .b32 scope) {
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u32 %r1, [scope];
  mov.u32 %r2, %envreg1;
  mov.u32 %r3, %envreg2;
  mov.b64 %rd1, {%r3, %r2};
  setp.eq.u32 %p1, %r1, 1;  // cudaCGScopeGrid
  selp.b64 %rd2, %rd1, 0, %p1;
  st.param.b64 [handle], %rd2;
  ret;
}
.weak .func (.param .b32 error) cudaCGSynchronize (.param .b64 handle, .param .b32 flags) {
  .reg .pred %p<4>;
  .reg .b32 %r<20>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [handle];
  setp.eq.u64 %p1, %rd1, 0;
  @%p1 bra INVALID;
  barrier.sync 0;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %tid.y;
  mov.u32 %r3, %tid.z;
  or.b32 %r4, %r1, %r2;
  or.b32 %r4, %r4, %r3;
  setp.ne.u32 %p1, %r4, 0;
  @%p1 bra ARRIVED;
  mov.u32 %r5, %nctaid.x;
  mov.u32 %r6, %nctaid.y;
  mov.u32 %r7, %nctaid.z;
  mul.lo.u32 %r8, %r5, %r6;
  mul.lo.u32 %r8, %r8, %r7;
  mov.u32 %r9, %ctaid.x;
  mov.u32 %r10, %ctaid.y;
  mov.u32 %r11, %ctaid.z;
  or.b32 %r12, %r9, %r10;
  or.b32 %r12, %r12, %r11;
  sub.u32 %r13, 0x80000001, %r8;
  setp.eq.u32 %p2, %r12, 0;
  selp.b32 %r14, %r13, 1, %p2;
  fence.acq_rel.gpu;
  atom.global.add.u32 %r15, [%rd1+4], %r14;
LOOK:
  ld.acquire.gpu.global.u32 %r16, [%rd1+4];
  xor.b32 %r17, %r15, %r16;
  setp.ge.s32 %p3, %r17, 0;
  @%p3 bra LOOK;
ARRIVED:
  barrier.sync 0;
  mov.u32 %r18, 0;
  st.param.b32 [error], %r18;
  ret;
INVALID:
  mov.u32 %r18, 1;  // cudaErrorInvalidValue
  st.param.b32 [error], %r18;
  ret;
}
)";

// Reads the statements of one input. Local names become `name$L<number>`.
class Reader {
 public:
  Reader(const LinkInput& input, size_t number)
      : lexer_(input.text), suffix_("$L" + std::to_string(number)) {
    parsed_.name = input.name;
    advance();
  }
  bool read(Input* parsed);

 private:
  void advance() { token_ = lexer_.next(); }
  [[nodiscard]] bool at_end() const {
    return token_.kind == Token::Kind::kEnd || token_.kind == Token::Kind::kError;
  }
  bool accept_dot(std::string_view word) {
    if (token_.kind != Token::Kind::kDotWord || token_.text != word) return false;
    advance();
    return true;
  }
  bool header();
  bool skip_directive(bool* skipped);
  bool statement();
  void append(std::string* text);
  void rename_locals();

  Lexer lexer_;
  Token token_;
  uint32_t last_line_ = 0;  // of the token appended last
  const std::string suffix_;
  Input parsed_;
};

bool Reader::header() {
  if (!accept_dot("version")) return false;
  parsed_.version = token_.text;
  for (const char c : parsed_.version) {
    if (c != '.') parsed_.version_number = parsed_.version_number * 10 + (c - '0');
  }
  advance();
  if (!accept_dot("target")) return false;
  parsed_.target = token_.text;
  char suffix = '\0';
  if (!parse_target(parsed_.target, &parsed_.capability, &suffix)) return false;
  advance();
  while (token_.is(',')) {
    advance();
    advance();
  }
  if (accept_dot("address_size")) advance();
  return true;
}

// Debug information and advice: of no use to the result.
bool Reader::skip_directive(bool* skipped) {
  *skipped = true;
  if (accept_dot("file")) {
    while (token_.kind == Token::Kind::kInteger || token_.kind == Token::Kind::kString ||
           token_.is(',')) {
      advance();
    }
    return true;
  }
  if (accept_dot("section")) {
    while (!token_.is('{') && !at_end()) advance();
    int depth = 0;
    do {
      if (at_end()) return false;
      depth += token_.is('{') ? 1 : token_.is('}') ? -1 : 0;
      advance();
    } while (depth > 0);
    return true;
  }
  if (accept_dot("pragma")) {
    while (!token_.is(';') && !at_end()) advance();
    advance();
    return true;
  }
  *skipped = false;
  return true;
}

// The token as written, so that the text can be read again, in lines: some directives end with
// theirs. Words are marked for renaming by a leading character that no token has.
void Reader::append(std::string* text) {
  if (token_.space_before) *text += token_.line != last_line_ ? '\n' : ' ';
  last_line_ = token_.line;
  if (token_.kind == Token::Kind::kWord) *text += '\1';
  if (token_.kind == Token::Kind::kDotWord) *text += '.';
  *text += token_.text;
  if (token_.kind == Token::Kind::kWord) *text += '\2';
}

bool Reader::statement() {
  SymbolStatement made;
  int depth = 0;
  bool in_body = false;
  for (;; advance()) {
    if (at_end()) return false;
    if (!in_body && depth == 0) {
      const bool dot = token_.kind == Token::Kind::kDotWord;
      if (dot && (token_.text == "visible" || token_.text == "weak" || token_.text == "extern" ||
                  token_.text == "common")) {
        made.linkage = token_.text == "visible"  ? Linkage::kVisible
                       : token_.text == "extern" ? Linkage::kExtern
                                                 : Linkage::kWeak;
        continue;
      }
      if (dot && token_.text == "func") made.is_function = true;
      if (dot && token_.text == "entry") made.is_function = made.is_kernel = true;
      if (dot && token_.text == "alias") made.is_alias = true;
      if (dot && token_.text == "shared") made.is_shared = true;
      if (token_.kind == Token::Kind::kWord && made.name.empty()) made.name = token_.text;
      in_body = token_.is('=') || token_.is(';') || (made.is_function && token_.is('{'));
      made.has_body = in_body && made.is_function && token_.is('{');
    }
    if (token_.kind == Token::Kind::kWord) made.used.emplace_back(token_.text);
    append(in_body ? &made.body : &made.head);
    depth += token_.is('(') || token_.is('{') ? 1 : token_.is(')') || token_.is('}') ? -1 : 0;
    if (depth != 0) continue;
    if (token_.is(';') || (made.has_body && token_.is('}'))) break;
  }
  advance();
  if (made.name.empty()) return false;
  parsed_.statements.push_back(std::move(made));
  return true;
}

// Takes the marks out again, and gives local names their suffix.
void Reader::rename_locals() {
  std::set<std::string, std::less<>> locals;
  for (const SymbolStatement& statement : parsed_.statements) {
    if (statement.linkage == Linkage::kLocal && !statement.is_kernel) locals.insert(statement.name);
  }
  // A declaration without linkage of what is visible elsewhere in the input is no local.
  for (const SymbolStatement& statement : parsed_.statements) {
    if (statement.linkage != Linkage::kLocal) locals.erase(statement.name);
  }
  const auto rename = [&](std::string* text) {
    std::string plain;
    plain.reserve(text->size());
    for (size_t at = 0; at < text->size();) {
      if ((*text)[at] != '\1') {
        plain += (*text)[at++];
        continue;
      }
      const size_t end = text->find('\2', at);
      const std::string_view word(text->data() + at + 1, end - at - 1);
      plain += word;
      if (locals.contains(word)) plain += suffix_;
      at = end + 1;
    }
    text->swap(plain);
  };
  for (SymbolStatement& statement : parsed_.statements) {
    rename(&statement.head);
    rename(&statement.body);
    if (locals.contains(statement.name)) statement.name += suffix_;
    for (std::string& word : statement.used) {
      if (locals.contains(word)) word += suffix_;
    }
  }
}

bool Reader::read(Input* parsed) {
  if (!header()) return false;
  while (token_.kind != Token::Kind::kEnd) {
    bool skipped = false;
    if (!skip_directive(&skipped)) return false;
    if (!skipped && !statement()) return false;
  }
  rename_locals();
  *parsed = std::move(parsed_);
  return true;
}

// Whose definition of each external symbol counts.
class SymbolTable {
 public:
  Status add(const Input& input, const SymbolStatement& statement) {
    if (statement.is_alias) return Status();
    const bool defines =
        statement.linkage != Linkage::kExtern && (statement.has_body || !statement.is_function);
    if (!defines) return Status();
    auto [found, first] = definitions_.try_emplace(statement.name, Definition{&statement, &input});
    if (first) return Status();
    Definition& known = found->second;
    if (statement.linkage == Linkage::kWeak) return Status();
    if (known.statement->linkage != Linkage::kWeak) {
      return Status(CUDA_ERROR_UNKNOWN, "error   : Multiple definition of '" + statement.name +
                                            "' in '" + input.name + "', first defined in '" +
                                            known.input->name + "'");
    }
    known = {&statement, &input};
    return Status();
  }
  [[nodiscard]] const SymbolStatement* find(const std::string& name) const {
    const auto found = definitions_.find(name);
    return found == definitions_.end() ? nullptr : found->second.statement;
  }

 private:
  struct Definition {
    const SymbolStatement* statement;
    const Input* input;
  };
  std::map<std::string, Definition> definitions_;
};

const char* keyword(Linkage linkage) {
  switch (linkage) {
    case Linkage::kVisible: return ".visible ";
    case Linkage::kWeak: return ".weak ";
    case Linkage::kExtern: return ".extern ";
    default: return "";
  }
}

// A symbol that some statement of the input uses beside its own declaration.
bool is_used(const Input& input, const SymbolStatement& declaration) {
  return std::any_of(input.statements.begin(), input.statements.end(), [&](const auto& other) {
    return &other != &declaration &&
           std::find(other.used.begin(), other.used.end(), declaration.name) != other.used.end();
  });
}

Status check_defined(const Input& input, const SymbolTable& symbols) {
  for (const SymbolStatement& statement : input.statements) {
    const bool needs = statement.linkage == Linkage::kExtern && !statement.is_shared &&
                       !is_builtin(statement.name) && symbols.find(statement.name) == nullptr;
    if (needs && is_used(input, statement)) {
      return Status(CUDA_ERROR_UNKNOWN, "error   : Undefined reference to '" + statement.name +
                                            "' in '" + input.name + "'");
    }
  }
  return Status();
}

std::string combine(const std::vector<Input>& inputs, const SymbolTable& symbols) {
  std::string variables;
  std::string declarations;
  std::string bodies;
  std::set<std::string> declared;
  for (const Input& input : inputs) {
    for (const SymbolStatement& statement : input.statements) {
      const SymbolStatement* definition = symbols.find(statement.name);
      const bool defined_here = definition == &statement;
      if (statement.is_alias) {
        bodies += statement.head + statement.body + "\n";
      } else if (!statement.is_function) {
        // An extern variable without a definition is dynamic shared memory, or unused.
        const bool keep =
            definition != nullptr ? defined_here : declared.insert(statement.name).second;
        if (keep) variables += keyword(statement.linkage) + statement.head + statement.body + "\n";
      } else if ((!statement.is_kernel || definition != nullptr) &&
                 declared.insert(statement.name).second) {
        // Kernels too: others may launch them.
        const Linkage linkage = definition != nullptr ? definition->linkage : statement.linkage;
        declarations += keyword(linkage) + statement.head + ";\n";
      }
      if (statement.is_function && defined_here) {
        bodies += keyword(statement.linkage) + statement.head + statement.body + "\n";
      }
    }
  }
  return variables + declarations + bodies;
}

// With the device library, if they declare what is in it.
Result<std::vector<Input>> read_all(const std::vector<LinkInput>& inputs) {
  Input library;
  if (!Reader({"the device library", kDeviceLibrary}, inputs.size()).read(&library)) {
    return Status(CUDA_ERROR_UNKNOWN, "error   : the device library can't be linked");
  }
  const auto is_in_library = [&library](const SymbolStatement& symbol) {
    return symbol.linkage == Linkage::kExtern &&
           std::ranges::any_of(library.statements, [&symbol](const SymbolStatement& its) {
             return its.name == symbol.name;
           });
  };
  std::vector<Input> parsed(inputs.size());
  bool needs_library = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!Reader(inputs[i], i).read(&parsed[i])) {
      return Status(CUDA_ERROR_INVALID_PTX, "error   : '" + inputs[i].name + "' can't be linked");
    }
    needs_library |= std::ranges::any_of(parsed[i].statements, is_in_library);
  }
  if (needs_library) parsed.push_back(std::move(library));
  return parsed;
}

// What no inputs become, which are no error: an H200 makes an empty module of them.
constexpr char kEmptyModule[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

}  // namespace

Result<std::string> link(const std::vector<LinkInput>& inputs) {
  Result<std::vector<Input>> read = read_all(inputs);
  if (!read.ok()) return read.status();
  const std::vector<Input>& parsed = *read;
  SymbolTable symbols;
  const Input* newest = nullptr;
  const Input* highest = nullptr;
  for (const Input& input : parsed) {
    for (const SymbolStatement& statement : input.statements) {
      OPENMPS_RETURN_IF_ERROR(symbols.add(input, statement));
    }
    if (newest == nullptr || input.version_number > newest->version_number) newest = &input;
    if (highest == nullptr || input.capability > highest->capability) highest = &input;
  }
  if (newest == nullptr) return std::string(kEmptyModule);
  for (const Input& input : parsed) OPENMPS_RETURN_IF_ERROR(check_defined(input, symbols));
  return ".version " + newest->version + "\n.target " + highest->target + "\n.address_size 64\n" +
         combine(parsed, symbols);
}

}  // namespace openmps::softgpu::ptx
