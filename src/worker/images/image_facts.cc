// SPDX-License-Identifier: Apache-2.0
// See image_facts.h: cubins are ELF files whose symbol and section names are plain text.
#include "worker/images/image_facts.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/elf.h"
#include "cuda/unpack.h"
#include "worker/images/image_variables.h"
#include "worker/images/prelinked.h"

namespace openmps::worker {
namespace {

using cuda::Bytes;
using Sections = std::vector<cuda::ElfSection>;

bool contains(Bytes bytes, std::string_view text) {
  return memmem(bytes.data(), bytes.size(), text.data(), text.size()) != nullptr;
}

// The position of a directive of PTX, from `at` on. After other letters the word is a modifier of
// an instruction: "ld.global", "cp.async.ca.shared.global".
size_t find_directive(std::string_view ptx, std::string_view name, size_t at) {
  const auto is_letter = [&ptx](size_t i) {
    return i < ptx.size() &&
           (isalnum(static_cast<unsigned char>(ptx[i])) != 0 || ptx[i] == '_' || ptx[i] == '$');
  };
  for (at = ptx.find(name, at); at != std::string_view::npos; at = ptx.find(name, at + 1)) {
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + name.size())) return at;
  }
  return at;
}

bool declares(std::string_view ptx, std::string_view space) {
  return find_directive(ptx, space, 0) != std::string_view::npos;
}

// The name as a whole word: it may be a part of other names.
bool calls_malloc(Bytes ptx) {
  constexpr std::string_view kName = "malloc";
  const auto is_name = [](unsigned char c) { return isalnum(c) != 0 || c == '_' || c == '$'; };
  const unsigned char* begin = ptx.data();
  while (const void* found = memmem(ptx.data(), ptx.size(), kName.data(), kName.size())) {
    const auto* at = static_cast<const unsigned char*>(found);
    const bool begins = at == begin || !is_name(at[-1]);
    ptx = ptx.subspan(static_cast<size_t>(at - ptx.data()) + kName.size());
    if (begins && (ptx.empty() || !is_name(ptx[0]))) return true;
  }
  return false;
}

// Variables that are zero at first have a size and no bytes.
uint64_t variable_bytes_of_elf(const Sections& sections) {
  uint64_t total = 0;
  for (const auto& section : sections) {
    if (!section.name.starts_with(".nv.global")) continue;
    if (__builtin_add_overflow(total, section.header.sh_size, &total)) return ~0ull;
  }
  return total;
}

// A bit of the symbol says so (seen with nvcc 13; it is in no header).
bool has_managed_symbols(const std::vector<cuda::ElfSymbol>& symbols) {
  constexpr unsigned char kManaged = 0x4;
  return std::any_of(symbols.begin(), symbols.end(), [](const cuda::ElfSymbol& symbol) {
    return ELF64_ST_TYPE(symbol.entry.st_info) == STT_OBJECT &&
           (symbol.entry.st_other & kManaged) != 0;
  });
}

// The size of the variable that the text behind a `.global` of PTX declares: " .align 1 .b8
// big[536870912];". 0: it is no declaration.
uint64_t bytes_of_declaration(std::string_view text) {
  const size_t end = std::min(text.find_first_of(";={"), text.size());
  uint64_t bytes = 0;
  uint64_t vector = 1;
  for (size_t at = 0; at < end; ++at) {
    if (text[at] == '.') {
      const std::string_view word = text.substr(at + 1);
      if (word.starts_with("v2")) vector = 2;
      if (word.starts_with("v4")) vector = 4;
      // .b8, .u16, .s32, .f64, .b128, ...: a kind, then the bits.
      if (word.size() > 1 && std::string_view("busf").find(word[0]) != std::string_view::npos) {
        const uint64_t bits = strtoull(std::string(word.substr(1, 3)).c_str(), nullptr, 10);
        if (bits != 0) bytes = bits / 8;
      }
    } else if (text[at] == '[') {
      uint64_t length = strtoull(std::string(text.substr(at + 1, 20)).c_str(), nullptr, 0);
      if (text.substr(at + 1).starts_with("]")) {  // the number of values behind it
        const std::string_view values = text.substr(end, text.find('}', end) - end);
        length = 1 + static_cast<uint64_t>(std::count(values.begin(), values.end(), ','));
      }
      if (__builtin_mul_overflow(bytes, length, &bytes)) return ~0ull;
    }
  }
  return __builtin_mul_overflow(bytes, vector, &bytes) ? ~0ull : bytes;
}

// The name that a declaration declares: the last word before its size, its value or its end.
std::string_view name_of_declaration(std::string_view text) {
  text = text.substr(0, text.find_first_of("[=;"));
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  const size_t blank = text.find_last_of(" \t\r\n");
  return blank == std::string_view::npos ? text : text.substr(blank + 1);
}

// The variables in device memory that PTX declares.
void read_variables(std::string_view ptx, ImageFacts* facts) {
  constexpr std::string_view kSpace = ".global";
  for (size_t at = find_directive(ptx, kSpace, 0); at != std::string_view::npos;
       at = find_directive(ptx, kSpace, at + kSpace.size())) {
    const std::string_view rest = ptx.substr(at + kSpace.size());
    const bool is_initialised = rest.substr(0, rest.find(';')).find('=') != std::string_view::npos;
    facts->has_variables |= !is_nobodys(name_of_declaration(rest), is_initialised);
    // A variable that is defined elsewhere has no memory here.
    const size_t line = ptx.find_last_of(";}\n", at);
    const size_t begin = line == std::string_view::npos ? 0 : line + 1;
    if (ptx.substr(begin, at - begin).find(".extern") != std::string_view::npos) continue;
    uint64_t& total = facts->variable_bytes;
    if (__builtin_add_overflow(total, bytes_of_declaration(rest), &total)) total = ~0ull;
  }
}

// The constants that PTX declares.
void read_constants(std::string_view ptx, ImageFacts* facts) {
  constexpr std::string_view kSpace = ".const";
  facts->has_constants = false;
  for (size_t at = find_directive(ptx, kSpace, 0); at != std::string_view::npos;
       at = find_directive(ptx, kSpace, at + kSpace.size())) {
    const bool is_nobodys =
        is_nobodys_constant(name_of_declaration(ptx.substr(at + kSpace.size())));
    (is_nobodys ? facts->has_nobodys : facts->has_constants) = true;
  }
}

// PTX ISA, "Texture Instructions" and "Surface Instructions".
bool names_image_instruction(Bytes ptx) {
  constexpr std::string_view kInstructions[] = {"tex.",  "tld4.",  "txq.", "suld.",
                                                "sust.", "sured.", "suq."};
  return std::any_of(std::begin(kInstructions), std::end(kInstructions),
                     [&](std::string_view name) { return contains(ptx, name); });
}

// What names in code tell, in PTX as in machine code.
ImageFacts named_facts(Bytes code) {
  ImageFacts facts;
  facts.prints = contains(code, "vprintf");
  facts.asserts = contains(code, "__assert");
  return facts;
}

// The names of the constants that an image has.
void read_constants(const std::vector<cuda::ElfSymbol>& symbols, const Sections& sections,
                    ImageFacts* facts) {
  bool any = false;
  bool counts = false;
  for (const cuda::ElfSymbol& symbol : symbols) {
    if (!is_in_constants(symbol, sections)) continue;
    any = true;
    counts |= !is_nobodys_constant(symbol.name);
  }
  facts->has_nobodys = any && !counts;
  if (facts->has_nobodys) facts->has_constants = false;
}

// Functions of the driver are symbols of the code that calls them. To search all of the code for
// the names took half as long as to unpack it (the images of cuBLASLt and cuDNN).
ImageFacts called_facts(const std::vector<cuda::ElfSymbol>& symbols) {
  ImageFacts facts;
  facts.prints = facts.asserts = facts.allocates = false;
  for (const cuda::ElfSymbol& symbol : symbols) {
    facts.prints |= symbol.name.find("vprintf") != std::string_view::npos;
    facts.asserts |= symbol.name.find("__assert") != std::string_view::npos;
    facts.allocates |= symbol.name == "malloc";
  }
  return facts;
}

// Code without symbols is taken to call and to have everything that its bytes name.
ImageFacts facts_without_symbols(Bytes code) {
  ImageFacts facts = named_facts(code);
  facts.allocates = contains(code, {"\0malloc\0", 8});
  facts.has_references = contains(code, ".nv.texref") || contains(code, ".nv.surfref");
  facts.has_constants = contains(code, ".nv.constant3");
  facts.has_variables = contains(code, ".nv.global");
  return facts;
}

// Sections of variables, constants (bank 3), texture and surface references.
ImageFacts facts_of_symbols(const std::vector<cuda::ElfSymbol>& symbols, const Sections& sections) {
  const auto has_section = [&](std::string_view name) {
    return std::any_of(sections.begin(), sections.end(), [&](const cuda::ElfSection& section) {
      return section.name.find(name) != std::string_view::npos;
    });
  };
  ImageFacts facts = called_facts(symbols);
  facts.has_references = has_section(".nv.texref") || has_section(".nv.surfref");
  facts.has_constants = has_section(".nv.constant3");
  read_constants(symbols, sections, &facts);
  facts.has_variables =
      std::any_of(symbols.begin(), symbols.end(),
                  [&](const cuda::ElfSymbol& symbol) { return is_variable(symbol, sections); });
  return facts;
}

ImageFacts facts_of_elf(Bytes code) {
  const Result<Sections> read = cuda::read_named_sections(code);
  const Sections sections = read.ok() ? *read : Sections();
  const std::vector<cuda::ElfSymbol> symbols = cuda::read_symbols(sections);
  ImageFacts facts =
      symbols.empty() ? facts_without_symbols(code) : facts_of_symbols(symbols, sections);
  facts.compiles = false;
  facts.variable_bytes = variable_bytes_of_elf(sections);
  facts.is_managed = has_managed_symbols(symbols);
  return facts;
}

ImageFacts facts_of_ptx(Bytes code) {
  ImageFacts facts = named_facts(code);
  const std::string_view text(reinterpret_cast<const char*>(code.data()), code.size());
  facts.allocates = calls_malloc(code);
  facts.is_managed = contains(code, ".managed");
  facts.has_references = declares(text, ".texref") || declares(text, ".surfref");
  read_constants(text, &facts);
  facts.has_variables = false;
  facts.uses_images = names_image_instruction(code);
  read_variables(text, &facts);
  return facts;
}

ImageFacts facts_of(Bytes code, bool is_elf) {
  return is_elf ? facts_of_elf(code) : facts_of_ptx(code);
}

constexpr ImageFacts kNothing{.prints = false,
                              .asserts = false,
                              .allocates = false,
                              .has_variables = false,
                              .has_constants = false,
                              .has_references = false,
                              .is_managed = false,
                              .compiles = false};

void merge(const ImageFacts& from, ImageFacts* to) {
  to->prints |= from.prints;
  to->asserts |= from.asserts;
  to->allocates |= from.allocates;
  to->has_variables |= from.has_variables;
  to->has_constants |= from.has_constants;
  to->has_nobodys |= from.has_nobodys;
  to->has_references |= from.has_references;
  to->is_managed |= from.is_managed;
  to->uses_images |= from.uses_images;
  to->compiles |= from.compiles;
  // The driver takes one of several.
  to->variable_bytes = std::max(to->variable_bytes, from.variable_bytes);
}

// All entries of one kind that the device may use. Nothing: there is none.
std::optional<ImageFacts> facts_of_kind(Bytes container, uint16_t kind, uint32_t capability) {
  ImageFacts facts = kNothing;
  bool found = false;
  std::vector<unsigned char> buffer;
  const Status read = cuda::for_each_entry(container, [&](const cuda::FatbinEntry& entry) {
    if (!cuda::may_run(entry.header, kind, capability)) return Status();
    const Result<Bytes> code = cuda::unpack(entry, &buffer);
    if (!code.ok()) return code.status();
    merge(facts_of(*code, kind == cuda::kElfEntry), &facts);
    found = true;
    return Status();
  });
  if (!read.ok()) return ImageFacts{};  // one can't be read: it may do anything
  if (!found) return std::nullopt;
  return facts;
}

// The code of a container that the device may use, machine code first.
std::optional<ImageFacts> facts_of_container(Bytes container, uint32_t capability) {
  auto facts = facts_of_kind(container, cuda::kElfEntry, capability);
  if (!facts) return facts_of_kind(container, cuda::kPtxEntry, capability);
  // PTX beside machine code was compiled from the same source.
  if (facts->binds()) {
    const auto source = facts_of_kind(container, cuda::kPtxEntry, capability);
    facts->uses_images = source && source->uses_images;
  }
  return facts;
}

}  // namespace

ImageFacts read_image_facts(Bytes image, uint32_t capability) {
  const cuda::ImageKind kind = cuda::kind_of(image.data(), image.size());
  if (kind != cuda::ImageKind::kContainer) return facts_of(image, kind == cuda::ImageKind::kElf);
  const Result<std::vector<Bytes>> containers = split_image(image);
  if (!containers.ok()) return {};
  if (const auto facts = facts_of_container(containers->front(), capability)) return *facts;
  if (containers->size() == 1) return {};
  // The linked code can't be used: the driver links all of its inputs.
  ImageFacts facts = kNothing;
  for (size_t i = 1; i < containers->size(); ++i) {
    merge(facts_of_container((*containers)[i], capability).value_or(ImageFacts{}), &facts);
  }
  return facts;
}

}  // namespace openmps::worker
