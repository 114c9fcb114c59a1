// SPDX-License-Identifier: Apache-2.0
// Tables of ELF files. See elf.h.
#include "cuda/elf.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace openmps::cuda {
namespace {

constexpr uint16_t kCudaMachine = 190;  // EM_CUDA

// Sections of relocatable device code (nvcc -rdc=true) for variables in global, local and shared
// memory: as SHT_NOBITS, they have a size and no bytes. Seen in nvcc 13.0's objects.
constexpr uint32_t kGlobalNoBits = 0x7000'0007;
constexpr uint32_t kLocalNoBits = 0x7000'0009;
constexpr uint32_t kSharedNoBits = 0x7000'000a;

Status bad_elf(const std::string& why) { return Status(CUDA_ERROR_INVALID_IMAGE, why); }

bool inside(Bytes image, uint64_t offset, uint64_t bytes) {
  return offset <= image.size() && bytes <= image.size() - offset;
}

bool has_bytes(const Elf64_Shdr& section) {
  switch (section.sh_type) {
    case SHT_NULL:
    case SHT_NOBITS:
    case kGlobalNoBits:
    case kLocalNoBits:
    case kSharedNoBits: return false;
    default: return true;
  }
}

template <typename Entry>
Result<std::vector<Entry>> read_table(Bytes image, uint64_t offset, uint64_t entries,
                                      uint64_t entry_bytes) {
  if (entries == 0) return std::vector<Entry>();
  // No product overflows: both are numbers of 16 bits.
  if (entry_bytes < sizeof(Entry) || !inside(image, offset, entries * entry_bytes)) {
    return bad_elf("an ELF file that ends before its tables");
  }
  std::vector<Entry> table(entries);
  for (uint64_t i = 0; i < entries; ++i) {
    memcpy(&table[i], image.data() + offset + i * entry_bytes, sizeof(Entry));
  }
  return table;
}

// Up to a NUL, or kMostNameBytes.
std::string_view name_at(Bytes names, uint64_t at) {
  if (at >= names.size()) return {};
  const char* text = reinterpret_cast<const char*>(names.data() + at);
  return {text, strnlen(text, std::min<size_t>(names.size() - at, kMostNameBytes))};
}

}  // namespace

Result<uint64_t> cubin_bytes(const Elf64_Ehdr& header) {
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kCudaMachine) {
    return bad_elf("an ELF file of class " + std::to_string(header.e_ident[EI_CLASS]) +
                   " for machine " + std::to_string(header.e_machine));
  }
  if (header.e_shnum == 0) return bad_elf("an ELF file without sections");
  uint64_t total = sizeof(header);
  const auto include = [&total](uint64_t offset, uint64_t entries, uint64_t entry_bytes) {
    if (entries == 0) return true;
    if (offset > kMostImageBytes) return false;
    total = std::max(total, offset + entries * entry_bytes);
    return total <= kMostImageBytes;
  };
  if (!include(header.e_shoff, header.e_shnum, header.e_shentsize) ||
      !include(header.e_phoff, header.e_phnum, header.e_phentsize)) {
    return bad_elf("an ELF file whose tables lie beyond " + std::to_string(kMostImageBytes) +
                   " bytes");
  }
  return total;
}

Result<Elf64_Ehdr> read_elf_header(Bytes image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof(header)) return bad_elf("an ELF file that ends inside its header");
  memcpy(&header, image.data(), sizeof(header));
  return header;
}

Result<std::vector<Elf64_Shdr>> read_sections(Bytes image, const Elf64_Ehdr& header) {
  return read_table<Elf64_Shdr>(image, header.e_shoff, header.e_shnum, header.e_shentsize);
}

Result<std::vector<Elf64_Phdr>> read_segments(Bytes image, const Elf64_Ehdr& header) {
  return read_table<Elf64_Phdr>(image, header.e_phoff, header.e_phnum, header.e_phentsize);
}

Result<std::vector<ElfSection>> read_named_sections(Bytes image) {
  const Result<Elf64_Ehdr> header = read_elf_header(image);
  if (!header.ok()) return header.status();
  const auto table = read_sections(image, *header);
  if (!table.ok()) return table.status();
  if (header->e_shstrndx >= table->size()) return bad_elf("an ELF file without names of sections");
  const uint64_t names = (*table)[header->e_shstrndx].sh_offset;
  std::vector<ElfSection> sections;
  for (const Elf64_Shdr& section : *table) {
    const uint64_t at = names + section.sh_name;
    const std::string_view name = at >= names ? name_at(image, at) : std::string_view();
    const bool is_here = has_bytes(section) && inside(image, section.sh_offset, section.sh_size);
    sections.push_back(
        {section, name, is_here ? image.subspan(section.sh_offset, section.sh_size) : Bytes()});
  }
  return sections;
}

std::vector<ElfSymbol> read_symbols(const std::vector<ElfSection>& sections) {
  std::vector<ElfSymbol> symbols;
  const auto table = std::find_if(sections.begin(), sections.end(), [](const ElfSection& section) {
    return section.header.sh_type == SHT_SYMTAB;
  });
  if (table == sections.end()) return symbols;
  const uint32_t link = table->header.sh_link;
  const Bytes names = link < sections.size() ? sections[link].contents : Bytes();
  ElfSymbol symbol;
  for (size_t at = 0; at + sizeof(symbol.entry) <= table->contents.size();
       at += sizeof(symbol.entry)) {
    memcpy(&symbol.entry, table->contents.data() + at, sizeof(symbol.entry));
    symbol.name = name_at(names, symbol.entry.st_name);
    symbols.push_back(symbol);
  }
  return symbols;
}

Status check_elf(Bytes image) {
  const Result<Elf64_Ehdr> header = read_elf_header(image);
  if (!header.ok()) return header.status();
  const auto sections = read_sections(image, *header);
  if (!sections.ok()) return sections.status();
  const auto segments = read_segments(image, *header);
  if (!segments.ok()) return segments.status();
  const bool whole =
      std::all_of(sections->begin(), sections->end(),
                  [image](const Elf64_Shdr& section) {
                    return !has_bytes(section) || inside(image, section.sh_offset, section.sh_size);
                  }) &&
      std::all_of(segments->begin(), segments->end(), [image](const Elf64_Phdr& segment) {
        return inside(image, segment.p_offset, segment.p_filesz);
      });
  return whole ? Status() : bad_elf("an ELF file that ends before its sections do");
}

}  // namespace openmps::cuda
