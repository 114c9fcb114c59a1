// SPDX-License-Identifier: Apache-2.0
// Symbols of images: cubins are ELF files whose symbol and section names are plain text.
#include "worker/shared/image_facts.h"

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
#include "worker/shared/prelinked.h"

namespace openmps::worker {
namespace {

using cuda::Bytes;
using Sections = std::vector<cuda::ElfSection>;

bool contains(Bytes bytes, std::string_view text) {
  return memmem(bytes.data(), bytes.size(), text.data(), text.size()) != nullptr;
}

// A variable's directive is followed by white space, an instruction's modifier by the next one.
bool declares(Bytes ptx, std::string_view space) {
  while (const void* found = memmem(ptx.data(), ptx.size(), space.data(), space.size())) {
    const auto at = static_cast<size_t>(static_cast<const unsigned char*>(found) - ptx.data());
    ptx = ptx.subspan(at + space.size());
    if (ptx.empty() || ptx[0] == ' ' || ptx[0] == '\t' || ptx[0] == '\n' || ptx[0] == '\r') {
      return true;
    }
  }
  return false;
}

// The name alone: there are others that it is a part of.
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

// A bit of their symbols says so (seen with nvcc 13; it is in no header).
bool has_managed_symbols(const Sections& sections) {
  constexpr unsigned char kManaged = 0x4;
  for (const auto& table : sections) {
    if (table.header.sh_type != SHT_SYMTAB) continue;
    Elf64_Sym symbol;
    for (size_t at = 0; at + sizeof(symbol) <= table.contents.size(); at += sizeof(symbol)) {
      memcpy(&symbol, table.contents.data() + at, sizeof(symbol));
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && (symbol.st_other & kManaged) != 0) {
        return true;
      }
    }
  }
  return false;
}

// Calls are resolved in a cubin. What is left to the loader in its code are addresses: those of
// functions among them.
bool has_relocated_code(const Sections& sections) {
  return std::any_of(sections.begin(), sections.end(), [](const cuda::ElfSection& section) {
    return section.name.starts_with(".rela.text.") || section.name.starts_with(".rel.text.");
  });
}

// A 64-bit move of a name: the address of a function, where there are functions beside kernels, or
// of a variable. The stack's does not count.
bool moves_addresses(Bytes ptx) {
  const std::string_view text(reinterpret_cast<const char*>(ptx.data()), ptx.size());
  if (text.find(".func") == std::string_view::npos) return false;
  for (const std::string_view move : {"mov.u64", "mov.b64", "mov.s64"}) {
    for (size_t at = text.find(move); at != std::string_view::npos; at = text.find(move, at + 1)) {
      const size_t comma = text.find(',', at);
      const size_t source =
          comma == std::string_view::npos ? comma : text.find_first_not_of(" \t\r\n", comma + 1);
      if (source == std::string_view::npos) break;
      const bool is_name = isalpha(static_cast<unsigned char>(text[source])) != 0 ||
                           text[source] == '_' || text[source] == '$';
      if (is_name && !text.substr(source).starts_with("__local_depot")) return true;
    }
  }
  return false;
}

// One declaration of PTX behind its `.global`: " .align 1 .b8 big[536870912];". Its size, 0 if it
// is none.
uint64_t bytes_of_declaration(std::string_view text) {
  const size_t end = std::min(text.find_first_of(";={"), text.size());
  uint64_t bytes = 0;
  uint64_t vector = 1;
  for (size_t at = 0; at < end; ++at) {
    if (text[at] == '.') {
      const std::string_view word = text.substr(at + 1);
      if (word.starts_with("v2")) vector = 2;
      if (word.starts_with("v4")) vector = 4;
      // .b8, .u16, .s32, .f64, .b128, ...: the kind, then the bits.
      if (word.size() > 1 && std::string_view("busf").find(word[0]) != std::string_view::npos) {
        const uint64_t bits = strtoull(std::string(word.substr(1, 3)).c_str(), nullptr, 10);
        if (bits != 0) bytes = bits / 8;
      }
    } else if (text[at] == '[') {
      uint64_t length = strtoull(std::string(text.substr(at + 1, 20)).c_str(), nullptr, 0);
      if (text.substr(at + 1).starts_with("]")) {  // that of the values behind it
        const std::string_view values = text.substr(end, text.find('}', end) - end);
        length = 1 + static_cast<uint64_t>(std::count(values.begin(), values.end(), ','));
      }
      if (__builtin_mul_overflow(bytes, length, &bytes)) return ~0ull;
    }
  }
  return __builtin_mul_overflow(bytes, vector, &bytes) ? ~0ull : bytes;
}

uint64_t variable_bytes_of_ptx(Bytes ptx) {
  const std::string_view text(reinterpret_cast<const char*>(ptx.data()), ptx.size());
  constexpr std::string_view kSpace = ".global";
  uint64_t total = 0;
  for (size_t at = text.find(kSpace); at != std::string_view::npos;
       at = text.find(kSpace, at + kSpace.size())) {
    const std::string_view rest = text.substr(at + kSpace.size());
    if (rest.empty() || (rest[0] != ' ' && rest[0] != '\t' && rest[0] != '\n')) continue;
    // What is defined elsewhere has no memory here.
    const size_t line = text.find_last_of(";}\n", at);
    const size_t begin = line == std::string_view::npos ? 0 : line + 1;
    if (text.substr(begin, at - begin).find(".extern") != std::string_view::npos) continue;
    if (__builtin_add_overflow(total, bytes_of_declaration(rest), &total)) return ~0ull;
  }
  return total;
}

// PTX ISA, "Texture Instructions" and "Surface Instructions".
bool names_image_instruction(Bytes ptx) {
  constexpr std::string_view kInstructions[] = {"tex.",  "tld4.",  "txq.", "suld.",
                                                "sust.", "sured.", "suq."};
  return std::any_of(std::begin(kInstructions), std::end(kInstructions),
                     [&](std::string_view name) { return contains(ptx, name); });
}

ImageFacts facts_of(Bytes code, bool is_elf) {
  ImageFacts facts;
  const Result<Sections> read = is_elf ? cuda::read_named_sections(code) : Sections();
  const Sections sections = read.ok() ? *read : Sections();
  facts.compiles = !is_elf;
  facts.variable_bytes = is_elf ? variable_bytes_of_elf(sections) : variable_bytes_of_ptx(code);
  facts.prints = contains(code, "vprintf");
  facts.asserts = contains(code, "__assert");
  facts.allocates = is_elf ? contains(code, {"\0malloc\0", 8}) : calls_malloc(code);
  // Sections of variables, initialised ones, constants (bank 3), texture and surface references.
  facts.has_variables = is_elf ? contains(code, ".nv.global") || contains(code, ".nv.constant3") ||
                                     contains(code, ".nv.texref") || contains(code, ".nv.surfref")
                               : declares(code, ".global") || declares(code, ".const") ||
                                     declares(code, ".texref") || declares(code, ".surfref");
  facts.is_managed = is_elf ? has_managed_symbols(sections) : contains(code, ".managed");
  facts.takes_addresses = is_elf ? has_relocated_code(sections) : moves_addresses(code);
  facts.uses_images = !is_elf && names_image_instruction(code);
  return facts;
}

constexpr ImageFacts kNothing{false, false, false, false, false, false, false, false, 0};

void merge(const ImageFacts& from, ImageFacts* to) {
  to->prints |= from.prints;
  to->asserts |= from.asserts;
  to->allocates |= from.allocates;
  to->has_variables |= from.has_variables;
  to->is_managed |= from.is_managed;
  to->takes_addresses |= from.takes_addresses;
  to->uses_images |= from.uses_images;
  to->compiles |= from.compiles;
  // The driver takes one of them.
  to->variable_bytes = std::max(to->variable_bytes, from.variable_bytes);
}

// Machine code runs on newer devices of its generation, PTX on all newer ones.
bool may_run(const cuda::EntryHeader& header, uint16_t kind, uint32_t capability) {
  if (header.kind != kind || header.architecture > capability) return false;
  return kind == cuda::kPtxEntry || header.architecture / 10 == capability / 10;
}

// All entries of one kind that the device may use. Nothing: there is none.
std::optional<ImageFacts> facts_of_kind(Bytes container, uint16_t kind, uint32_t capability) {
  ImageFacts facts = kNothing;
  bool found = false;
  std::vector<unsigned char> buffer;
  const Status read = cuda::for_each_entry(container, [&](const cuda::FatbinEntry& entry) {
    if (!may_run(entry.header, kind, capability)) return Status();
    const Result<Bytes> code = cuda::unpack(entry, &buffer);
    if (!code.ok()) return code.status();
    merge(facts_of(*code, kind == cuda::kElfEntry), &facts);
    found = true;
    return Status();
  });
  if (!read.ok()) return ImageFacts{};  // one can't be read: it may do everything
  if (!found) return std::nullopt;
  return facts;
}

// The code of a container that the device may use, machine code first.
std::optional<ImageFacts> facts_of_container(Bytes container, uint32_t capability) {
  auto facts = facts_of_kind(container, cuda::kElfEntry, capability);
  if (!facts) return facts_of_kind(container, cuda::kPtxEntry, capability);
  // The PTX that stands beside the machine code was compiled from the same source.
  if (facts->has_variables || facts->takes_addresses) {
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
  // The linked code does not run: the driver links all of its inputs.
  ImageFacts facts = kNothing;
  for (size_t i = 1; i < containers->size(); ++i) {
    merge(facts_of_container((*containers)[i], capability).value_or(ImageFacts{}), &facts);
  }
  return facts;
}

}  // namespace openmps::worker
