// SPDX-License-Identifier: Apache-2.0
// Cubins as far as the worker reads them: symbols of variables, and relocations that name them.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace openmps::worker {

class TestCubin {
 public:
  enum Section : uint16_t {
    kNone = 0,
    kNames,
    kStrings,
    kSymbols,
    kGlobal,       // .nv.global, 64 bytes that are zero
    kInitialised,  // .nv.global.init, 32 bytes
    kConstants,    // .nv.constant3, 16 bytes
    kAddresses,    // .nv.constant4, 32 bytes
    kCode,         // .text.kern, 32 bytes
    kOfAddresses,  // their relocations
    kOfCode,
    kSections
  };

  // Symbol 0 is none.
  TestCubin() { symbols_.emplace_back(); }
  // Its number.
  uint32_t add(const std::string& name, Section section, uint64_t value = 0,
               unsigned char type = STT_OBJECT) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<uint32_t>(strings_.size());
    symbol.st_info = ELF64_ST_INFO(STB_LOCAL, type);
    symbol.st_shndx = section;
    symbol.st_value = value;
    symbol.st_size = 4;
    strings_ += name + '\0';
    symbols_.push_back(symbol);
    return static_cast<uint32_t>(symbols_.size() - 1);
  }
  void relocate(Section in, uint64_t offset, uint32_t symbol, uint32_t type, int64_t addend = 0) {
    (in == kAddresses ? of_addresses_ : of_code_)
        .push_back({offset, ELF64_R_INFO(uint64_t{symbol}, type), addend});
  }

  [[nodiscard]] std::string image() const {
    const std::string names[kSections] = {"",
                                          ".shstrtab",
                                          ".strtab",
                                          ".symtab",
                                          constants_only_ ? ".other" : ".nv.global",
                                          ".nv.global.init",
                                          has_constants_ ? ".nv.constant3" : ".other",
                                          ".nv.constant4",
                                          ".text.kern",
                                          ".rela.nv.constant4",
                                          ".rela.text.kern"};
    std::string text;
    Elf64_Shdr headers[kSections]{};
    for (uint16_t i = 0; i < kSections; ++i) {
      headers[i].sh_name = static_cast<uint32_t>(text.size());
      text += names[i] + '\0';
    }
    std::string body;
    const auto put = [&](Section section, uint32_t type, const std::string& bytes,
                         uint32_t link = 0, uint32_t info = 0) {
      headers[section].sh_type = type;
      headers[section].sh_offset = sizeof(Elf64_Ehdr) + sizeof(headers) + body.size();
      headers[section].sh_size = bytes.size();
      headers[section].sh_link = link;
      headers[section].sh_info = info;
      body += bytes;
    };
    put(kNames, SHT_STRTAB, text);
    put(kStrings, SHT_STRTAB, strings_);
    put(kSymbols, SHT_SYMTAB, bytes_of(symbols_), kStrings);
    put(kInitialised, SHT_PROGBITS, std::string(32, '\1'));
    put(kConstants, SHT_PROGBITS, std::string(16, '\2'));
    put(kAddresses, SHT_PROGBITS, std::string(32, '\0'));
    put(kCode, SHT_PROGBITS, std::string(32, '\x7f'));
    put(kOfAddresses, SHT_RELA, bytes_of(of_addresses_), kSymbols, kAddresses);
    put(kOfCode, SHT_RELA, bytes_of(of_code_), kSymbols, kCode);
    headers[kGlobal].sh_type = SHT_NOBITS;
    headers[kGlobal].sh_size = 64;
    Elf64_Ehdr header{};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_machine = 190;  // EM_CUDA
    header.e_shoff = sizeof(header);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = kSections;
    header.e_shstrndx = kNames;
    return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) +
           std::string(reinterpret_cast<const char*>(headers), sizeof(headers)) + body;
  }
  // Sections without which it has constants, or nothing else.
  TestCubin& with_constants() { return has_constants_ = true, *this; }
  TestCubin& without_variables() { return constants_only_ = true, *this; }

  // Where a section's bytes begin in an image that this made.
  static uint64_t offset_of(const std::string& image, Section section) {
    Elf64_Shdr header;
    memcpy(&header, image.data() + sizeof(Elf64_Ehdr) + section * sizeof(header), sizeof(header));
    return header.sh_offset;
  }

 private:
  template <typename T>
  static std::string bytes_of(const std::vector<T>& entries) {
    return {reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(T)};
  }

  std::string strings_ = std::string(1, '\0');
  std::vector<Elf64_Sym> symbols_;
  std::vector<Elf64_Rela> of_addresses_;
  std::vector<Elf64_Rela> of_code_;
  bool has_constants_ = false;
  bool constants_only_ = false;
};

}  // namespace openmps::worker
