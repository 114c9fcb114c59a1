// SPDX-License-Identifier: Apache-2.0
// See ptx_variables.h; words as in the PTX ISA, "Syntax".
#include "worker/images/ptx_variables.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

namespace openmps::worker {
namespace {

// Prefix of the registers that are added to hold addresses.
constexpr std::string_view kRegister = "%openmps_variable_";

Status unsupported(const std::string& why) { return Status(CUDA_ERROR_NOT_SUPPORTED, why); }

bool is_letter(char c) {
  return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

struct Word {
  enum class Kind { kName, kDirective, kNumber, kMark };
  Kind kind = Kind::kMark;
  size_t begin = 0;
  size_t end = 0;
};
using Words = std::vector<Word>;

std::string_view text_of(std::string_view text, const Word& word) {
  return text.substr(word.begin, word.end - word.begin);
}

// The end of the blanks, the comment or the string that begins at `at`; `at`: a word begins there.
size_t skip(std::string_view text, size_t at) {
  const auto behind = [&text](size_t found, size_t bytes) {
    return found == std::string_view::npos ? text.size() : found + bytes;
  };
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return behind(text.find('\n', at), 1);
  if (rest.starts_with("/*")) return behind(text.find("*/", at + 2), 2);
  if (rest.starts_with('"')) return behind(text.find('"', at + 1), 1);
  return isspace(static_cast<unsigned char>(rest[0])) != 0 || rest[0] == 0 ? at + 1 : at;
}

// The first word that begins at `at` or behind; of no length: there is none.
Word next_word(std::string_view text, size_t at) {
  while (at < text.size()) {
    const size_t end = skip(text, at);
    if (end == at) break;
    at = end;
  }
  Word word{Word::Kind::kMark, at, at};
  if (at == text.size()) return word;
  const char first = text[word.end++];
  const auto take = [&](Word::Kind kind, auto&& belongs) {
    word.kind = kind;
    while (word.end < text.size() && belongs(text[word.end])) ++word.end;
  };
  if (isdigit(static_cast<unsigned char>(first)) != 0) {
    take(Word::Kind::kNumber, [](char c) { return is_letter(c) || c == '.'; });
  } else if (first == '.') {
    take(Word::Kind::kDirective, [](char c) { return is_letter(c) || c == ':'; });
  } else if (is_letter(first) || first == '%') {
    take(Word::Kind::kName, is_letter);
  }
  return word;
}

Words words_of(std::string_view text) {
  Words words;
  for (Word word = next_word(text, 0); word.begin != word.end; word = next_word(text, word.end)) {
    words.push_back(word);
  }
  return words;
}

// Products of sizes in untrusted text.
uint64_t product(uint64_t a, uint64_t b) { return __builtin_mul_overflow(a, b, &a) ? ~0ull : a; }

// The declaration of a variable from the word behind its state space on, up to its end, which
// `*word` becomes: " .align 1 .b8 big[536870912];".
void read_declaration(std::string_view ptx, Word* word, PtxVariable* variable) {
  uint64_t vector = 1;
  bool is_counted = false;  // its length is the number of its values
  uint64_t values = 1;
  size_t first = 0;  // of the values
  for (std::string_view before; word->begin != word->end; *word = next_word(ptx, word->end)) {
    const std::string_view part = text_of(ptx, *word);
    // A parameter of a function, which may be said to point to device memory, has no such end.
    if (part == ";" || (part == "{" && !variable->is_initialised)) break;
    if (part == "=" && !variable->is_initialised) {
      variable->is_initialised = true;
      first = word->end;
    }
    if (variable->is_initialised) {
      values += part == "," ? 1 : 0;
    } else if (word->kind == Word::Kind::kName && variable->name.empty()) {
      variable->name = part;
    } else if (part == ".v2" || part == ".v4") {
      vector = part == ".v2" ? 2 : 4;
    } else if (before == "[") {
      is_counted |= part == "]";
      if (part != "]") {
        const uint64_t length = strtoull(std::string(part.substr(0, 20)).c_str(), nullptr, 0);
        variable->bytes = product(variable->bytes, length);
      }
    } else if (word->kind == Word::Kind::kDirective && part.size() > 2 &&
               std::string_view("busf").find(part[1]) != part.npos) {
      // .b8, .u16, .s32, .f64, .b128, ...: a kind, then the bits.
      const uint64_t bits = strtoull(std::string(part.substr(2, 3)).c_str(), nullptr, 10);
      if (bits != 0) variable->element_bytes = variable->bytes = bits / 8;
    }
    before = part;
  }
  if (variable->is_initialised) variable->values = ptx.substr(first, word->begin - first);
  variable->bytes = product(product(variable->bytes, vector), is_counted ? values : 1);
}

class Placing {
 public:
  Placing(std::string_view ptx, const PtxAddresses& addresses)
      : ptx_(ptx), addresses_(addresses), words_(words_of(ptx)) {}

  Result<std::string> run() {
    if (ptx_.find(kRegister) != std::string_view::npos) return unsupported("it has been placed");
    if (!is_of_64_bits()) return unsupported("addresses that are not of 64 bits");
    for (at_ = 0; at_ < words_.size(); ++at_) OPENMPS_RETURN_IF_ERROR(look());
    if (depth_ != 0) return unsupported("PTX that ends inside braces");
    return edited();
  }

 private:
  struct Edit {
    size_t begin;
    size_t end;
    std::string text;
  };

  // "" beyond the last word.
  [[nodiscard]] std::string_view text(size_t i) const {
    return i < words_.size() ? text_of(ptx_, words_[i]) : std::string_view();
  }
  [[nodiscard]] bool is_of_64_bits() const {
    for (size_t i = 0; i + 1 < words_.size(); ++i) {
      if (text(i) == ".address_size") return text(i + 1) == "64";
    }
    return false;
  }

  Status look() {
    const std::string_view word = text(at_);
    if (word == "{") {
      if (depth_++ == 0) begin_braces();
    } else if (word == "}") {
      if (depth_-- == 0) return unsupported("PTX with a brace too many");
      if (depth_ == 0) end_braces();
    } else if (word == ";" && depth_ == 0) {
      statement_ = {};
    } else if (words_[at_].kind == Word::Kind::kDirective && depth_ == 0) {
      statement_.has_global |= word == ".global";
      statement_.has_function |= word == ".entry" || word == ".func";
    } else if (words_[at_].kind == Word::Kind::kName) {
      const auto found = addresses_.find(word);
      if (found != addresses_.end()) {
        return depth_ != 0 && in_function_ ? place(found) : declare(word);
      }
    }
    return Status();
  }

  void begin_braces() {
    in_function_ = statement_.has_function;
    body_ = words_[at_].end;
    used_.clear();
  }
  // The addresses that the function uses are loaded first.
  void end_braces() {
    if (!in_function_) return;  // a list of values: the statement goes on
    std::string begin;
    for (const size_t number : used_) {
      const auto address = std::next(addresses_.begin(), static_cast<ptrdiff_t>(number))->second;
      char text[96];
      const std::string name = register_of(number);
      snprintf(text, sizeof(text), "\n.reg .b64 %s;\nmov.b64 %s, 0x%llx;", name.c_str(),
               name.c_str(), static_cast<unsigned long long>(address));
      begin += text;
    }
    if (!begin.empty()) edits_.push_back({body_, body_, std::move(begin)});
    in_function_ = false;
    statement_ = {};
  }

  static std::string register_of(size_t number) {
    return std::string(kRegister) + std::to_string(number);
  }

  // Outside of functions a name may appear where it is declared, and among initial values.
  Status declare(std::string_view name) const {
    const bool is_variable = statement_.has_global && !statement_.has_function;
    return is_variable ? Status() : unsupported(std::string(name) + " outside of functions");
  }

  // "+ 8", "+ -8" and "- 8" behind the word: the offset, and the word behind it.
  [[nodiscard]] std::string offset_behind(size_t i, size_t* behind) const {
    *behind = i + 1;
    std::string sign;
    size_t next = i + 1;
    while (text(next) == "+" || text(next) == "-") sign += text(next++);
    if (sign.empty() || next >= words_.size() || words_[next].kind != Word::Kind::kNumber) {
      return {};
    }
    *behind = next + 1;
    if (sign == "+") return std::string(text(next));
    return sign == "-" || sign == "+-" ? "-" + std::string(text(next)) : "";
  }

  Status place(PtxAddresses::const_iterator variable) {
    const auto number = static_cast<size_t>(std::distance(addresses_.begin(), variable));
    const Word& word = words_[at_];
    size_t behind = 0;
    const std::string offset = offset_behind(at_, &behind);
    const std::string name = register_of(number);
    const std::string_view before = at_ == 0 ? std::string_view() : text(at_ - 1);
    used_.insert(number);
    // "mov.u64 %rd1, x;" and "cvta.global.u64 %rd1, x;", the former with an offset, too.
    const bool is_source = before == "," && at_ >= 4 && text(behind) == ";";
    const bool is_moved = is_source && is_move(at_ - 4);
    const bool has_offset = behind != at_ + 1;
    const bool is_converted = is_source && !has_offset && at_ >= 5 && text(at_ - 5) == "cvta" &&
                              text(at_ - 4) == ".global" && text(at_ - 3) == ".u64";
    if ((before == "[" && text(behind) == "]") || (is_moved && !has_offset) || is_converted) {
      edits_.push_back({word.begin, word.end, name});
    } else if (is_moved && !offset.empty()) {
      edits_.push_back({words_[at_ - 4].begin, words_[behind].begin,
                        "add.s64 " + std::string(text(at_ - 2)) + ", " + name + ", " + offset});
    } else {
      return unsupported("how " + variable->first + " is used");
    }
    return Status();
  }
  // From the word on: "mov .u64 REGISTER ,".
  [[nodiscard]] bool is_move(size_t i) const {
    const std::string_view type = text(i + 1);
    return text(i) == "mov" && (type == ".u64" || type == ".b64" || type == ".s64");
  }

  std::string edited() {
    std::sort(edits_.begin(), edits_.end(),
              [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
    std::string out;
    size_t copied = 0;
    for (const Edit& edit : edits_) {
      out += ptx_.substr(copied, edit.begin - copied);
      out += edit.text;
      copied = edit.end;
    }
    return out += ptx_.substr(copied);
  }

  const std::string_view ptx_;
  const PtxAddresses& addresses_;
  const Words words_;
  size_t at_ = 0;
  size_t depth_ = 0;
  // Of the text outside of functions, as far as it has been read.
  struct Statement {
    bool has_global = false;
    bool has_function = false;
  };
  Statement statement_;
  bool in_function_ = false;  // inside of braces
  size_t body_ = 0;           // position behind its first brace
  std::set<size_t> used_;     // numbers of the variables
  std::vector<Edit> edits_;
};

}  // namespace

void for_each_variable(std::string_view ptx, FunctionRef<void(const PtxVariable&)> f) {
  Word before;
  for (Word word = next_word(ptx, 0); word.begin != word.end;
       before = std::exchange(word, next_word(ptx, word.end))) {
    const std::string_view space = text_of(ptx, word);
    if (space != ".global" && space != ".const") continue;
    // The modifier of an instruction follows the name directly.
    const std::string_view linkage = text_of(ptx, before);
    const bool is_modifier = before.end == word.begin && before.kind != Word::Kind::kMark &&
                             before.kind != Word::Kind::kNumber && linkage != ".extern" &&
                             linkage != ".visible" && linkage != ".weak" && linkage != ".common";
    if (is_modifier) continue;
    PtxVariable variable;
    variable.is_constant = space == ".const";
    variable.is_elsewhere = linkage == ".extern";
    word = next_word(ptx, word.end);
    read_declaration(ptx, &word, &variable);
    f(variable);
  }
}

Result<std::vector<unsigned char>> initial_bytes(const PtxVariable& variable) {
  const Status refused = unsupported("how " + std::string(variable.name) + " begins");
  std::vector<unsigned char> bytes;
  bool is_negative = false;
  for (const Word& word : words_of(variable.values)) {
    const std::string text(text_of(variable.values, word));
    if (text == "{" || text == "}" || text == ",") continue;
    if (text == "-") {
      is_negative = true;
      continue;
    }
    // "0f3F800000" and "0d3FF0000000000000" are the bits of a float and of a double.
    const bool is_float = text.starts_with("0f") || text.starts_with("0F");
    const bool is_double = text.starts_with("0d") || text.starts_with("0D");
    if (word.kind != Word::Kind::kNumber || (is_float && variable.element_bytes != 4) ||
        (is_double && variable.element_bytes != 8) || variable.element_bytes > sizeof(uint64_t)) {
      return refused;
    }
    const bool has_bits = is_float || is_double;
    char* end = nullptr;
    uint64_t value = strtoull(text.c_str() + (has_bits ? 2 : 0), &end, has_bits ? 16 : 0);
    if (*end != '\0' && std::string_view(end) != "U") return refused;
    if (std::exchange(is_negative, false)) value = ~value + 1;
    const auto* const begin = reinterpret_cast<const unsigned char*>(&value);
    bytes.insert(bytes.end(), begin, begin + variable.element_bytes);
  }
  return bytes.size() <= variable.bytes ? Result(std::move(bytes))
                                        : Result<std::vector<unsigned char>>(refused);
}

Result<std::string> place_in_ptx(std::string_view ptx, const PtxAddresses& addresses) {
  return Placing(ptx, addresses).run();
}

}  // namespace openmps::worker
