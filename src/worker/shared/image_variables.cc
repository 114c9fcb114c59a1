// SPDX-License-Identifier: Apache-2.0
// Names and relocations of variables. See image_variables.h.
#include "worker/shared/image_variables.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "cuda/unpack.h"
#include "worker/shared/prelinked.h"

namespace openmps::worker {
namespace {

using cuda::Bytes;
using cuda::ElfSection;
using cuda::ElfSymbol;
using Sections = std::vector<ElfSection>;

// Relocations of cubins, as nvcc 13.0 writes them; they are in no header. None; a 64-bit address;
// its low and its high half in an instruction of 16 bytes, at kImmediateOffset.
constexpr uint32_t kNoRelocation = 0;
constexpr uint32_t kAbsolute64 = 2;
constexpr uint32_t kLow32 = 0x38;
constexpr uint32_t kHigh32 = 0x39;
constexpr uint64_t kImmediateOffset = 4;
// Whole-program code reads its variables' addresses from a table, other code has them inside.
constexpr std::string_view kAddressTable = ".nv.constant4";
constexpr std::string_view kCode = ".text.";
constexpr std::string_view kVariables = ".nv.global";

Status not_supported(const std::string& why) { return Status(CUDA_ERROR_NOT_SUPPORTED, why); }

// The part of a mangled name behind "_ZN", without the anonymous namespace that nvcc puts around
// what a file keeps to itself: "_ZN32_INTERNAL_d6b1abfc_4_a_cu_unused4cuda3std...".
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

// Of the entries that may run, the driver takes the newest.
Result<ImageBytes> machine_code(Bytes image, uint32_t capability, uint64_t most) {
  switch (cuda::kind_of(image.data(), image.size())) {
    case cuda::ImageKind::kElf:
      if (image.size() > most) return not_supported("too much code");
      return ImageBytes(image.begin(), image.end());
    case cuda::ImageKind::kContainer: break;
    default: return not_supported("no machine code");
  }
  const Result<std::vector<Bytes>> containers = split_image(image);
  if (!containers.ok()) return containers.status();
  std::optional<cuda::FatbinEntry> newest;
  bool is_one = false;
  const Status read =
      cuda::for_each_entry(containers->front(), [&](const cuda::FatbinEntry& entry) {
        if (!cuda::may_run(entry.header, cuda::kElfEntry, capability)) return Status();
        const uint32_t best = newest ? newest->header.architecture : 0;
        if (entry.header.architecture < best) return Status();
        is_one = entry.header.architecture > best;
        newest = entry;
        return Status();
      });
  OPENMPS_RETURN_IF_ERROR(read);
  if (!newest || !is_one) return not_supported("not one piece of machine code for the device");
  if (std::max(newest->header.unpacked_bytes, newest->header.payload_bytes) > most) {
    return not_supported("too much code");
  }
  ImageBytes buffer;
  const Result<Bytes> code = cuda::unpack(*newest, &buffer);
  if (!code.ok()) return code.status();
  return ImageBytes(code->begin(), code->end());
}

// A relocation, with or without an addend of its own.
struct Relocation {
  uint64_t at;  // of r_info, in the image
  uint64_t offset;
  uint32_t symbol;
  uint32_t type;
  bool has_addend;  // otherwise it stands where the address goes
  int64_t addend;
};

// f(Relocation) for each of the section, until one fails.
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

// Put an address where a relocation would. False: it would in a way that is not known.
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

bool is_compilers_own(std::string_view name, bool is_initialised) {
  const auto begins = [&name](std::string_view prefix) { return name.starts_with(prefix); };
  if (is_initialised && (begins("$str") || begins("__unnamed_") || begins("__cudart_"))) {
    return true;
  }
  const std::string_view space = outermost_namespace(name);
  return space.starts_with("4cuda3std") || space.starts_with("6thrust");
}

bool is_variable(const ElfSymbol& symbol, const Sections& sections) {
  if (ELF64_ST_TYPE(symbol.entry.st_info) != STT_OBJECT || !is_in_variables(symbol, sections)) {
    return false;
  }
  const bool is_initialised = sections[symbol.entry.st_shndx].name != kVariables;
  return !is_compilers_own(symbol.name, is_initialised);
}

Result<ImageBytes> place_variables(Bytes image, uint32_t capability, uint64_t most,
                                   const FindVariable& find) {
  Result<ImageBytes> code = machine_code(image, capability, most);
  if (!code.ok()) return code.status();
  const Bytes cubin(*code);
  const Result<Sections> sections = cuda::read_named_sections(cubin);
  if (!sections.ok()) return sections.status();
  const std::vector<ElfSymbol> symbols = cuda::read_symbols(*sections);
  std::map<uint32_t, CUdeviceptr> found;  // by symbol
  ImageBytes placed(cubin.begin(), cubin.end());
  placed.push_back(0);
  for (const ElfSection& section : *sections) {
    const uint32_t type = section.header.sh_type;
    const uint32_t info = section.header.sh_info;
    if ((type != SHT_RELA && type != SHT_REL) || info >= sections->size()) continue;
    const ElfSection& target = (*sections)[info];
    // What describes the code for debuggers, and how the variables that nobody uses begin.
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

}  // namespace openmps::worker
