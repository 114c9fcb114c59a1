// SPDX-License-Identifier: Apache-2.0
// The headers and tables of ELF files: cubins, and objects of the host with device code in them.
// Input is untrusted: nothing beyond its bytes is read. Errors: CUDA_ERROR_INVALID_IMAGE with the
// reason. Any thread.
#pragma once

#include <elf.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "cuda/fatbin.h"

namespace openmps::cuda {

// How long a cubin is: nvcc writes the program headers behind the section headers, so its tables
// come last. `header` is all that is read. Errors: no cubin, no sections, tables beyond
// kMostImageBytes.
[[nodiscard]] Result<uint64_t> cubin_bytes(const Elf64_Ehdr& header);

[[nodiscard]] Result<Elf64_Ehdr> read_elf_header(Bytes image);

// The table of sections, or of segments. Errors: it leaves the image.
[[nodiscard]] Result<std::vector<Elf64_Shdr>> read_sections(Bytes image, const Elf64_Ehdr& header);
[[nodiscard]] Result<std::vector<Elf64_Phdr>> read_segments(Bytes image, const Elf64_Ehdr& header);

struct ElfSection {
  Elf64_Shdr header;
  std::string_view name;  // its first kMostNameBytes; empty: it lies outside of the image
  Bytes contents;         // empty: so do they, or it has none
};
// A bound for names without a terminating NUL.
inline constexpr size_t kMostNameBytes = 256;

// Errors: no ELF file, or its table of sections leaves the image or has no section for names.
[[nodiscard]] Result<std::vector<ElfSection>> read_named_sections(Bytes image);

struct ElfSymbol {
  Elf64_Sym entry;
  std::string_view name;  // its first kMostNameBytes; empty: it lies outside of the table of names
};
// Those of the first table of symbols, in its order; none: there is no such table.
[[nodiscard]] std::vector<ElfSymbol> read_symbols(const std::vector<ElfSection>& sections);

// Do the tables, and what they name, lie within the image?
Status check_elf(Bytes image);

}  // namespace openmps::cuda
