// SPDX-License-Identifier: Apache-2.0
// See image_facts.h: cubins are ELF files whose symbol and section names are plain text.
#include "worker/images/image_facts.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/elf.h"
#include "cuda/unpack.h"
#include "worker/images/image_variables.h"
#include "worker/images/prelinked.h"
#include "worker/images/ptx_variables.h"

namespace openmps::worker {
namespace {

using cuda::Bytes;
using Sections = std::vector<cuda::ElfSection>;

bool contains(Bytes bytes, std::string_view text) {
  return memmem(bytes.data(), bytes.size(), text.data(), text.size()) != nullptr;
}

// The name as a whole word: it may be a part of other names.
bool calls_malloc(std::string_view ptx) {
  constexpr std::string_view kName = "malloc";
  const auto is_name = [&ptx](size_t i) {
    return i < ptx.size() &&
           (isalnum(static_cast<unsigned char>(ptx[i])) != 0 || ptx[i] == '_' || ptx[i] == '$');
  };
  for (size_t at = ptx.find(kName); at != ptx.npos; at = ptx.find(kName, at + 1)) {
    if (!is_name(at - 1) && !is_name(at + kName.size())) return true;
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

// The variables that PTX declares.
void read_variables(std::string_view ptx, ImageFacts* facts) {
  facts->has_variables = facts->has_constants = false;
  const auto look = [facts](const PtxVariable& variable) {
    if (variable.is_constant) {
      (is_nobodys_constant(variable.name) ? facts->has_nobodys : facts->has_constants) = true;
      return;
    }
    facts->has_variables |= !is_nobodys(variable.name, variable.is_initialised);
    uint64_t& total = facts->variable_bytes;
    const uint64_t bytes = variable.is_elsewhere ? 0 : variable.bytes;
    if (__builtin_add_overflow(total, bytes, &total)) total = ~0ull;
  };
  for_each_variable(ptx, look);
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
  facts.allocates = calls_malloc(text);
  facts.is_managed = contains(code, ".managed");
  facts.has_references = contains(code, ".texref") || contains(code, ".surfref");
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
