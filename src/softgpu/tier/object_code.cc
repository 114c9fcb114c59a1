// SPDX-License-Identifier: Apache-2.0
// See object_code.h.
#include "softgpu/tier/object_code.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace openmps::softgpu::tier {
namespace {

// A section's bytes, checked to be inside the file.
bool part_of(std::string_view file, uint64_t offset, uint64_t bytes, std::string_view* part) {
  if (offset > file.size() || bytes > file.size() - offset) return false;
  *part = file.substr(offset, bytes);
  return true;
}

template <class T>
bool read_at(std::string_view file, uint64_t offset, T* value) {
  std::string_view part;
  if (!part_of(file, offset, sizeof *value, &part)) return false;
  std::memcpy(value, part.data(), sizeof *value);
  return true;
}

class Flattener {
 public:
  Flattener(std::string_view file, std::string_view name, ObjectCode* code)
      : file_(file), name_(name), code_(code) {}

  bool run() {
    return read_sections() && place_sections() && read_symbols() && relocate() && found_;
  }

 private:
  bool read_sections() {
    Elf64_Ehdr header;
    if (!read_at(file_, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_type != ET_REL || header.e_machine != EM_X86_64) {
      return false;
    }
    sections_.resize(header.e_shnum);
    for (size_t i = 0; i < sections_.size(); ++i) {
      if (!read_at(file_, header.e_shoff + i * sizeof(Elf64_Shdr), &sections_[i])) return false;
    }
    return true;
  }

  bool place_sections() {
    places_.assign(sections_.size(), UINT64_MAX);
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& section = sections_[i];
      if (!(section.sh_flags & SHF_ALLOC) || section.sh_type == SHT_X86_64_UNWIND) continue;
      if (section.sh_flags & SHF_WRITE) {
        if (section.sh_size == 0) continue;
        return false;
      }
      std::string_view bytes;
      if (!part_of(file_, section.sh_offset, section.sh_size, &bytes)) return false;
      const uint64_t alignment = std::max<uint64_t>(section.sh_addralign, 1);
      code_->bytes.resize((code_->bytes.size() + alignment - 1) / alignment * alignment);
      places_[i] = code_->bytes.size();
      code_->bytes.append(bytes);
    }
    return true;
  }

  bool read_symbols() {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections_.size()) continue;
      const Elf64_Shdr& names = sections_[section.sh_link];
      symbols_.resize(section.sh_size / sizeof(Elf64_Sym));
      for (size_t i = 0; i < symbols_.size(); ++i) {
        if (!read_at(file_, section.sh_offset + i * sizeof(Elf64_Sym), &symbols_[i])) return false;
        std::string_view name;
        if (!part_of(file_, names.sh_offset + symbols_[i].st_name, name_.size() + 1, &name)) {
          continue;
        }
        if (name.substr(0, name_.size()) == name_ && name.back() == '\0' &&
            place_of(symbols_[i], &code_->entry)) {
          found_ = true;
        }
      }
    }
    return true;
  }

  bool place_of(const Elf64_Sym& symbol, uint64_t* place) const {
    if (symbol.st_shndx >= places_.size() || places_[symbol.st_shndx] == UINT64_MAX) return false;
    *place = places_[symbol.st_shndx] + symbol.st_value;
    return true;
  }

  bool relocate() {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_RELA || section.sh_info >= places_.size() ||
          places_[section.sh_info] == UINT64_MAX) {
        continue;
      }
      for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= section.sh_size; at += sizeof(Elf64_Rela)) {
        Elf64_Rela one;
        if (!read_at(file_, section.sh_offset + at, &one) ||
            !apply(one, places_[section.sh_info])) {
          return false;
        }
      }
    }
    return true;
  }

  bool apply(const Elf64_Rela& one, uint64_t section) {
    const uint32_t type = ELF64_R_TYPE(one.r_info), index = ELF64_R_SYM(one.r_info);
    uint64_t target = 0;
    if ((type != R_X86_64_PC32 && type != R_X86_64_PLT32) || index >= symbols_.size() ||
        !place_of(symbols_[index], &target)) {
      return false;
    }
    const uint64_t place = section + one.r_offset;
    if (place + 4 > code_->bytes.size()) return false;
    const auto value = static_cast<int32_t>(static_cast<int64_t>(target) + one.r_addend -
                                            static_cast<int64_t>(place));
    std::memcpy(code_->bytes.data() + place, &value, sizeof value);
    return true;
  }

  std::string_view file_, name_;
  ObjectCode* code_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<uint64_t> places_;  // by section; UINT64_MAX: not part of the code
  std::vector<Elf64_Sym> symbols_;
  bool found_ = false;
};

}  // namespace

bool flatten_object(std::string_view object, std::string_view name, ObjectCode* code) {
  *code = {};
  return Flattener(object, name, code).run();
}

ExecutableCode::ExecutableCode(const ObjectCode& code) : size_(code.bytes.size()) {
  if (code.entry >= size_) return;
  pages_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages_ == MAP_FAILED) {
    pages_ = nullptr;
    return;
  }
  std::memcpy(pages_, code.bytes.data(), size_);
  if (mprotect(pages_, size_, PROT_READ | PROT_EXEC) != 0) return;
  entry_ = static_cast<const std::byte*>(pages_) + code.entry;
}

ExecutableCode::~ExecutableCode() {
  if (pages_ != nullptr) munmap(pages_, size_);
}

}  // namespace openmps::softgpu::tier
