// SPDX-License-Identifier: Apache-2.0
// Bounds of images. Layouts: the fatbin container (docs/interop.md) and ELF64.
#include "worker/image_bounds.h"

#include <elf.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "worker/prelinked.h"

namespace openmps::worker {
namespace {

using Bytes = std::span<const unsigned char>;

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kContainerMagic = 0xba55ed50;
constexpr uint16_t kPtxEntry = 1;

// Sections of relocatable device code (nvcc -rdc=true) for variables in global, local and shared
// memory: as SHT_NOBITS, they have a size and no bytes. Seen in nvcc 13.0's objects.
constexpr uint32_t kGlobalNoBits = 0x7000'0007;
constexpr uint32_t kLocalNoBits = 0x7000'0009;
constexpr uint32_t kSharedNoBits = 0x7000'000a;

struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t body_bytes;
};
// The part of an entry's header that says where the next entry begins, and where in the header
// the compiler's options are.
struct EntryHeader {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
};
static_assert(sizeof(ContainerHeader) == 16 && sizeof(EntryHeader) == 16);

Status bad(const std::string& why) { return Status(CUDA_ERROR_INVALID_IMAGE, why); }

template <typename T>
bool read(Bytes bytes, T* value) {
  if (bytes.size() < sizeof(T)) return false;
  memcpy(value, bytes.data(), sizeof(T));
  return true;
}

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

bool is_elf(Bytes bytes) {
  return bytes.size() >= SELFMAG && memcmp(bytes.data(), ELFMAG, SELFMAG) == 0;
}

// Every entry of a table of sections or segments, if the table itself is inside.
template <typename Entry, typename Inside>
bool table_inside(Bytes image, uint64_t offset, uint64_t entries, uint64_t entry_bytes,
                  Inside entry_inside) {
  if (entries == 0) return true;
  if (entry_bytes < sizeof(Entry) || !inside(image, offset, entries * entry_bytes)) return false;
  for (uint64_t i = 0; i < entries; ++i) {
    Entry entry;
    memcpy(&entry, image.data() + offset + i * entry_bytes, sizeof(entry));
    if (!entry_inside(entry)) return false;
  }
  return true;
}

Status check_elf(Bytes image) {
  Elf64_Ehdr header;
  if (!read(image, &header)) return bad("an ELF file that ends inside its header");
  const bool sections = table_inside<Elf64_Shdr>(
      image, header.e_shoff, header.e_shnum, header.e_shentsize, [image](const Elf64_Shdr& s) {
        return !has_bytes(s) || inside(image, s.sh_offset, s.sh_size);
      });
  const bool segments = table_inside<Elf64_Phdr>(
      image, header.e_phoff, header.e_phnum, header.e_phentsize,
      [image](const Elf64_Phdr& p) { return inside(image, p.p_offset, p.p_filesz); });
  if (!sections || !segments) return bad("an ELF file that ends before its sections do");
  return Status();
}

// PTX without a place for options makes NVIDIA's driver (580) read beyond the entry and crash; nvcc
// writes 64 there.
bool has_options(Bytes entry) {
  constexpr size_t kOptionsOffset = 20;
  uint32_t options = 0;
  return entry.size() > kOptionsOffset && read(entry.subspan(kOptionsOffset), &options) &&
         options != 0;
}

// `image`: a container as split_image gives it. And of the machine code in it, where that is not
// compressed.
Status check_container(Bytes image) {
  ContainerHeader header;
  if (!read(image, &header)) return bad("a fatbin that ends inside its header");
  Bytes left = image.subspan(header.header_bytes, header.body_bytes);
  while (!left.empty()) {
    EntryHeader entry;
    // What is shorter than a header can only be padding behind the last entry.
    if (!read(left, &entry) || std::all_of(left.begin(), left.end(), [](auto b) { return b == 0; }))
      return Status();
    if (entry.header_bytes < sizeof(entry) ||
        !inside(left, entry.header_bytes, entry.payload_bytes)) {
      return bad("a fatbin entry of " + std::to_string(entry.payload_bytes) + " bytes where " +
                 std::to_string(left.size()) + " are left");
    }
    if (entry.kind == kPtxEntry && !has_options(left.first(entry.header_bytes))) {
      return bad("a fatbin entry of PTX whose header has no options");
    }
    const Bytes payload = left.subspan(entry.header_bytes, entry.payload_bytes);
    if (is_elf(payload)) OPENMPS_RETURN_IF_ERROR(check_elf(payload));
    left = left.subspan(entry.header_bytes + entry.payload_bytes);
  }
  return Status();
}

}  // namespace

Status check_image_bounds(Bytes image) {
  uint32_t magic = 0;
  if (!read(image, &magic)) return Status();
  if (magic == kWrapperMagic) return bad("a fatbin wrapper: it holds pointers");
  if (magic == kContainerMagic) {
    const Result<std::vector<Bytes>> containers = split_image(image);
    if (!containers.ok()) return containers.status();
    for (const Bytes container : *containers) OPENMPS_RETURN_IF_ERROR(check_container(container));
    return Status();
  }
  if (is_elf(image)) return check_elf(image);
  return Status();
}

}  // namespace openmps::worker
