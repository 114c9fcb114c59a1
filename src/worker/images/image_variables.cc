// SPDX-License-Identifier: Apache-2.0
// See image_variables.h.
#include "worker/images/image_variables.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "cuda/unpack.h"
#include "worker/images/prelinked.h"
#include "worker/images/ptx_variables.h"

namespace openmps::worker {
namespace {

using cuda::Bytes;
using cuda::ElfSection;
using cuda::ElfSymbol;
using Sections = std::vector<ElfSection>;

// Relocations of cubins, as nvcc 13.0 writes them; they are in no header: none; a 64-bit address;
// its low and its high half in an instruction of 16 bytes, at kImmediateOffset.
constexpr uint32_t kNoRelocation = 0;
constexpr uint32_t kAbsolute64 = 2;
constexpr uint32_t kLow32 = 0x38;
constexpr uint32_t kHigh32 = 0x39;
constexpr uint64_t kImmediateOffset = 4;
// Whole-program code reads its variables' addresses from a table; other code has them in
// instructions.
constexpr std::string_view kAddressTable = ".nv.constant4";
constexpr std::string_view kCode = ".text.";
constexpr std::string_view kVariables = ".nv.global";
constexpr std::string_view kConstants = ".nv.constant3";
// Compiling 0.12 MB takes 0.3 s (an H200's host, decision 9).
constexpr uint64_t kMostPtxBytes = 1 << 20;

// Prefixes of the names of literals and tables: nvcc's, the runtime's, those of cuRAND's headers.
constexpr std::string_view kTables[] = {
    "$str", "__unnamed_", "__cudart_", "precalc_xorwow_", "mrg32k3aM", "__cr_lgamma_table"};
// Scopes whose static data, and that of classes in them, is constant by its declaration, as they
// appear in mangled names. CUDA 13.0; CuPy 13 and 14 (cupy/_core/include/cupy).
struct Nobodys {
  std::string_view scope;
  std::string_view member;
};
constexpr Nobodys kNobodys[] = {{"4cuda3std", ""},
                                {"4cuda3ptx", ""},
                                {"4cuda3__", ""},
                                {"4cuda9execution3__", ""},
                                {"4cuda2mr3__", ""},
                                {"6thrust", ""},
                                {"3cub", ""},
                                {"26__nv_atomic_triv_cp_helperI", "5__valE"},
                                {"4cupy11type_traits", "5valueE"},
                                {"6CArrayI", "4ndimE"},
                                {"6CArrayI", "12c_contiguousE"},
                                {"8CIndexerI", "4ndimE"},
                                {"7float16", "3nanE"}};

Status not_supported(const std::string& why) { return Status(CUDA_ERROR_NOT_SUPPORTED, why); }

// The part of a mangled name behind "_ZN", without the anonymous namespace that nvcc adds around
// internal names of a file: "_ZN32_INTERNAL_d6b1abfc_4_a_cu_unused4cuda3std...".
std::string_view outermost_namespace(std::string_view name) {
  if (!name.starts_with("_ZN")) return {};
  name.remove_prefix(3);
  size_t digits = 0;
  size_t length = 0;
  while (digits < name.size() && isdigit(static_cast<unsigned char>(name[digits])) != 0 &&
         length < name.size()) {
    length = 10 * length + static_cast<size_t>(name[digits++] - '0');
  }
  const std::string_view rest = name.substr(digits);
  if (!rest.starts_with("_INTERNAL_") || length > rest.size()) return name;
  return rest.substr(length);
}

struct Code {
  ImageBytes bytes;
  bool is_ptx = false;
};

// Of the entries of one kind that a device may use, the driver takes the newest.
Result<std::optional<cuda::FatbinEntry>> newest_entry(Bytes container, uint16_t kind,
                                                      uint32_t capability) {
  std::optional<cuda::FatbinEntry> newest;
  bool is_one = true;
  const Status read = cuda::for_each_entry(container, [&](const cuda::FatbinEntry& entry) {
    if (!cuda::may_run(entry.header, kind, capability)) return Status();
    const uint32_t best = newest ? newest->header.architecture : 0;
    if (entry.header.architecture < best) return Status();
    is_one = entry.header.architecture > best;
    newest = entry;
    return Status();
  });
  OPENMPS_RETURN_IF_ERROR(read);
  if (!is_one) return not_supported("more than one piece of code that would do");
  return newest;
}

Result<Code> code_of(Bytes image, uint32_t capability, uint64_t most) {
  const cuda::ImageKind kind = cuda::kind_of(image.data(), image.size());
  if (kind != cuda::ImageKind::kContainer) {
    return Code{ImageBytes(image.begin(), image.end()), kind != cuda::ImageKind::kElf};
  }
  const Result<std::vector<Bytes>> containers = split_image(image);
  if (!containers.ok()) return containers.status();
  for (const uint16_t of : {cuda::kElfEntry, cuda::kPtxEntry}) {
    const auto newest = newest_entry(containers->front(), of, capability);
    if (!newest.ok()) return newest.status();
    if (!newest->has_value()) continue;
    const cuda::EntryHeader& header = (*newest)->header;
    if (std::max(header.unpacked_bytes, header.payload_bytes) > most) break;
    ImageBytes buffer;
    const Result<Bytes> code = cuda::unpack(**newest, &buffer);
    if (!code.ok()) return code.status();
    return Code{ImageBytes(code->begin(), code->end()), of == cuda::kPtxEntry};
  }
  return not_supported("no code for the device, or too much");
}

// A relocation, with or without an explicit addend.
struct Relocation {
  uint64_t at;  // offset of r_info in the image
  uint64_t offset;
  uint32_t symbol;
  uint32_t type;
  bool has_addend;  // else the addend is where the address goes
  int64_t addend;
};

// Call f(Relocation) for each of the section, until one fails.
template <typename F>
Status for_each_relocation(const ElfSection& section, F&& f) {
  const bool has_addend = section.header.sh_type == SHT_RELA;
  const size_t bytes = has_addend ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
  for (size_t at = 0; at + bytes <= section.contents.size(); at += bytes) {
    Elf64_Rela entry{};
    memcpy(&entry, section.contents.data() + at, bytes);
    const Relocation relocation{.at = section.header.sh_offset + at + offsetof(Elf64_Rela, r_info),
                                .offset = entry.r_offset,
                                .symbol = static_cast<uint32_t>(ELF64_R_SYM(entry.r_info)),
                                .type = static_cast<uint32_t>(ELF64_R_TYPE(entry.r_info)),
                                .has_addend = has_addend,
                                .addend = entry.r_addend};
    OPENMPS_RETURN_IF_ERROR(f(relocation));
  }
  return Status();
}

// Write an address as the relocation says. False: its type is not known.
bool apply(const Relocation& entry, const ElfSection& target, CUdeviceptr address,
           ImageBytes* cubin) {
  const bool is_whole = target.name == kAddressTable && entry.type == kAbsolute64;
  const bool is_half = target.name.starts_with(kCode) && entry.has_addend &&
                       (entry.type == kLow32 || entry.type == kHigh32);
  const uint64_t skipped = is_half ? kImmediateOffset : 0;
  const uint64_t bytes = is_half ? sizeof(uint32_t) : sizeof(uint64_t);
  const uint64_t size = target.contents.size();
  if (!(is_whole || is_half) || entry.offset > size || size - entry.offset < skipped + bytes) {
    return false;
  }
  unsigned char* const slot = cubin->data() + target.header.sh_offset + entry.offset + skipped;
  uint64_t there = 0;
  memcpy(&there, slot, bytes);
  uint64_t value = address + (entry.has_addend ? static_cast<uint64_t>(entry.addend) : there);
  if (entry.type == kHigh32 && is_half) value >>= 32;
  memcpy(slot, &value, bytes);
  const uint64_t none = ELF64_R_INFO(uint64_t{entry.symbol}, kNoRelocation);
  memcpy(cubin->data() + entry.at, &none, sizeof(none));
  return true;
}

bool is_in_variables(const ElfSymbol& symbol, const Sections& sections) {
  return symbol.entry.st_shndx < sections.size() &&
         sections[symbol.entry.st_shndx].name.starts_with(kVariables);
}

}  // namespace

bool is_nobodys(std::string_view name, bool is_initialised) {
  const auto begins = [&name](std::string_view prefix) { return name.starts_with(prefix); };
  if (begins("_Z15__cccl_requires")) return true;
  if (is_initialised && std::any_of(std::begin(kTables), std::end(kTables), begins)) return true;
  const std::string_view inner = outermost_namespace(name);
  return std::any_of(std::begin(kNobodys), std::end(kNobodys), [inner](const Nobodys& of) {
    return inner.starts_with(of.scope) && inner.ends_with(of.member);
  });
}

bool is_nobodys_constant(std::string_view name) {
  return name.starts_with("_ZZ") || is_nobodys(name, true);
}

bool is_in_constants(const ElfSymbol& symbol, const Sections& sections) {
  return ELF64_ST_TYPE(symbol.entry.st_info) == STT_OBJECT &&
         symbol.entry.st_shndx < sections.size() &&
         sections[symbol.entry.st_shndx].name.starts_with(kConstants);
}

bool is_variable(const ElfSymbol& symbol, const Sections& sections) {
  if (ELF64_ST_TYPE(symbol.entry.st_info) != STT_OBJECT || !is_in_variables(symbol, sections)) {
    return false;
  }
  const bool is_initialised = sections[symbol.entry.st_shndx].name != kVariables;
  return !is_nobodys(symbol.name, is_initialised);
}

namespace {

Result<ImageBytes> place_in_text(const ImageBytes& text, const FindVariable& find) {
  const std::string_view ptx(reinterpret_cast<const char*>(text.data()), text.size());
  PtxAddresses addresses;
  Status status;
  const auto look = [&](const PtxVariable& variable) {
    if (!status.ok() || variable.is_constant ||
        is_nobodys(variable.name, variable.is_initialised)) {
      return;
    }
    const Result<CUdeviceptr> address = find(std::string(variable.name));
    status = address.status();
    if (address.ok() && !addresses.emplace(std::string(variable.name), *address).second) {
      status = not_supported("two variables with the name " + std::string(variable.name));
    }
  };
  for_each_variable(ptx, look);
  OPENMPS_RETURN_IF_ERROR(status);
  const Result<std::string> placed = place_in_ptx(ptx, addresses);
  if (!placed.ok()) return placed.status();
  ImageBytes bytes(placed->begin(), placed->end());
  bytes.push_back(0);
  return bytes;
}

// Variables are told apart by their names. Code that was linked from several modules may have
// variables of one name that are local to these.
Status check_names(const std::vector<ElfSymbol>& symbols, const Sections& sections) {
  std::map<std::string_view, const ElfSymbol*> by_name;
  for (const ElfSymbol& symbol : symbols) {
    if (!is_variable(symbol, sections)) continue;
    const ElfSymbol& first = *by_name.emplace(symbol.name, &symbol).first->second;
    if (first.entry.st_shndx != symbol.entry.st_shndx ||
        first.entry.st_value != symbol.entry.st_value) {
      return not_supported("two variables with the name " + std::string(symbol.name));
    }
  }
  return Status();
}

Result<ImageBytes> place_in_cubin(const ImageBytes& code, const FindVariable& find) {
  const Bytes cubin(code);
  const Result<Sections> sections = cuda::read_named_sections(cubin);
  if (!sections.ok()) return sections.status();
  const std::vector<ElfSymbol> symbols = cuda::read_symbols(*sections);
  OPENMPS_RETURN_IF_ERROR(check_names(symbols, *sections));
  std::map<uint32_t, CUdeviceptr> found;  // by symbol
  ImageBytes placed(cubin.begin(), cubin.end());
  placed.push_back(0);
  for (const ElfSection& section : *sections) {
    const uint32_t type = section.header.sh_type;
    const uint32_t info = section.header.sh_info;
    if ((type != SHT_RELA && type != SHT_REL) || info >= sections->size()) continue;
    const ElfSection& target = (*sections)[info];
    // Relocations of debug information, and of the initial values of variables that no code uses,
    // are skipped.
    if (target.name.starts_with(".debug") || target.name.starts_with(".nv_debug") ||
        target.name.starts_with(kVariables)) {
      continue;
    }
    OPENMPS_RETURN_IF_ERROR(for_each_relocation(section, [&](const Relocation& entry) {
      if (entry.symbol >= symbols.size()) return not_supported("a relocation without a symbol");
      const ElfSymbol& symbol = symbols[entry.symbol];
      const bool is_object = ELF64_ST_TYPE(symbol.entry.st_info) == STT_OBJECT;
      if (is_object ? !is_variable(symbol, *sections) : !is_in_variables(symbol, *sections)) {
        return Status();
      }
      const std::string name(symbol.name);
      auto known = found.find(entry.symbol);
      if (is_object && known == found.end()) {
        const Result<CUdeviceptr> address = find(name);
        if (!address.ok()) return address.status();
        known = found.emplace(entry.symbol, *address).first;
      }
      if (!is_object || !apply(entry, target, known->second, &placed)) {
        return not_supported("the address of " + name + " in " + std::string(target.name));
      }
      return Status();
    }));
  }
  return placed;
}

// The offset behind what is there; nothing: beyond 64 bits.
bool append(uint64_t bytes, uint64_t alignment, VariableLayout* layout, uint64_t* offset) {
  const uint64_t mask = std::max(alignment, kVariableAlignment) - 1;
  if ((mask & (mask + 1)) != 0 || __builtin_add_overflow(layout->bytes, mask, offset)) return false;
  *offset &= ~mask;
  return !__builtin_add_overflow(*offset, bytes, &layout->bytes);
}

Status lay_out_cubin(Bytes cubin, VariableLayout* layout) {
  const Result<Sections> sections = cuda::read_named_sections(cubin);
  if (!sections.ok()) return sections.status();
  std::map<size_t, uint64_t> offsets;  // by section
  for (size_t i = 0; i < sections->size(); ++i) {
    const ElfSection& section = (*sections)[i];
    const auto& header = section.header;
    const bool relocates = header.sh_type == SHT_RELA || header.sh_type == SHT_REL;
    if (relocates && header.sh_info < sections->size() && header.sh_size != 0 &&
        (*sections)[header.sh_info].name.starts_with(kVariables)) {
      return not_supported("a variable that begins with an address");
    }
    if (relocates || !section.name.starts_with(kVariables)) continue;
    if (!append(header.sh_size, header.sh_addralign, layout, &offsets[i])) {
      return not_supported("variables of too many bytes");
    }
    if (header.sh_type == SHT_NOBITS) continue;
    if (section.contents.size() != header.sh_size) return not_supported("variables without bytes");
    layout->contents.push_back(
        {offsets[i], ImageBytes(section.contents.begin(), section.contents.end())});
  }
  const std::vector<ElfSymbol> symbols = cuda::read_symbols(*sections);
  OPENMPS_RETURN_IF_ERROR(check_names(symbols, *sections));
  for (const ElfSymbol& symbol : symbols) {
    const auto section = offsets.find(symbol.entry.st_shndx);
    if (ELF64_ST_TYPE(symbol.entry.st_info) != STT_OBJECT || section == offsets.end()) continue;
    const uint64_t size = (*sections)[section->first].header.sh_size;
    const auto& [value, bytes] = std::pair(symbol.entry.st_value, symbol.entry.st_size);
    if (value > size || bytes > size - value) return not_supported("a variable outside of others");
    layout->variables[std::string(symbol.name)] = {section->second + value, bytes};
  }
  return Status();
}

Status lay_out_text(const ImageBytes& text, VariableLayout* layout) {
  const std::string_view ptx(reinterpret_cast<const char*>(text.data()), text.size());
  Status status;
  const auto look = [&](const PtxVariable& variable) {
    if (!status.ok() || variable.is_constant ||
        is_nobodys(variable.name, variable.is_initialised)) {
      return;
    }
    VariableLayout::Variable placed{.bytes = variable.bytes};
    if (variable.is_elsewhere || !append(variable.bytes, 1, layout, &placed.offset)) {
      status = not_supported("where " + std::string(variable.name) + " is");
    } else if (!variable.values.empty()) {
      Result<std::vector<unsigned char>> bytes = initial_bytes(variable);
      status = bytes.status();
      if (status.ok()) layout->contents.push_back({placed.offset, std::move(bytes).value()});
    }
    if (!layout->variables.emplace(std::string(variable.name), placed).second) {
      status = not_supported("two variables with the name " + std::string(variable.name));
    }
  };
  for_each_variable(ptx, look);
  return status;
}

}  // namespace

Result<VariableLayout> lay_out_variables(Bytes image, uint32_t capability, uint64_t most) {
  const Result<Code> code = code_of(image, capability, most);
  if (!code.ok()) return code.status();
  if (code->bytes.size() > (code->is_ptx ? std::min(most, kMostPtxBytes) : most)) {
    return not_supported("too much code");
  }
  VariableLayout layout;
  OPENMPS_RETURN_IF_ERROR(code->is_ptx ? lay_out_text(code->bytes, &layout)
                                       : lay_out_cubin(Bytes(code->bytes), &layout));
  return layout;
}

bool declares_constant(Bytes image, uint32_t capability, std::string_view name) {
  const Result<Code> code = code_of(image, capability, cuda::kMostUnpackedBytes);
  if (!code.ok()) return true;
  if (code->is_ptx) {
    const std::string_view ptx(reinterpret_cast<const char*>(code->bytes.data()),
                               code->bytes.size());
    bool is_variable = false;
    const auto look = [&](const PtxVariable& variable) {
      is_variable |= !variable.is_constant && variable.name == name;
    };
    for_each_variable(ptx, look);
    return !is_variable;
  }
  const Result<Sections> sections = cuda::read_named_sections(code->bytes);
  if (!sections.ok()) return true;
  const std::vector<ElfSymbol> symbols = cuda::read_symbols(*sections);
  const auto symbol = std::find_if(symbols.begin(), symbols.end(),
                                   [name](const ElfSymbol& of) { return of.name == name; });
  return symbol == symbols.end() || symbol->entry.st_shndx >= sections->size() ||
         (*sections)[symbol->entry.st_shndx].name.starts_with(kConstants);
}

Result<ImageBytes> place_variables(Bytes image, uint32_t capability, uint64_t most,
                                   const FindVariable& find) {
  const Result<Code> code = code_of(image, capability, most);
  if (!code.ok()) return code.status();
  if (code->bytes.size() > (code->is_ptx ? std::min(most, kMostPtxBytes) : most)) {
    return not_supported("too much code");
  }
  return code->is_ptx ? place_in_text(code->bytes, find) : place_in_cubin(code->bytes, find);
}

}  // namespace openmps::worker
