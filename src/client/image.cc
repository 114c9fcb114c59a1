// SPDX-License-Identifier: Apache-2.0
// Image lengths from headers. Layouts: fatbin wrapper and container as nvcc 13.0 writes them,
// ELF64.
#include "client/image.h"

#include <string.h>

#include <algorithm>
#include <string>

namespace openmps::client {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kContainerMagic = 0xba55ed50;
constexpr uint32_t kElfMagic = 0x464c457f;  // "\x7f" "ELF", little endian

struct Wrapper {
  uint32_t magic;
  uint32_t version;  // 1, or 2: `extra` is an array of containers that ends with NULL
  const void* data;
  const void* extra;  // version 1: a file name or NULL
};

struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t body_bytes;
};

struct ElfHeader {
  unsigned char identity[16];  // [4]: class, 2 for 64 bits
  uint16_t type;
  uint16_t machine;
  uint32_t version;
  uint64_t entry;
  uint64_t program_offset;
  uint64_t section_offset;
  uint32_t flags;
  uint16_t header_bytes;
  uint16_t program_entry_bytes;
  uint16_t program_entries;
  uint16_t section_entry_bytes;
  uint16_t section_entries;
  uint16_t names_index;
};
static_assert(sizeof(Wrapper) == 24 && sizeof(ContainerHeader) == 16 && sizeof(ElfHeader) == 64);

constexpr uint16_t kCudaMachine = 190;  // EM_CUDA

Status bad(const std::string& why) { return Status(CUDA_ERROR_INVALID_IMAGE, why); }

// Where the reader's bytes come from: a bare pointer (no end) or a file (with one).
struct Bytes {
  const unsigned char* data;
  uint64_t available;  // UINT64_MAX: the program vouches

  template <typename T>
  [[nodiscard]] bool read(T* value) const {
    if (available < sizeof(T)) return false;
    memcpy(value, data, sizeof(T));
    return true;
  }
};

Result<Image> container(const Bytes& bytes) {
  ContainerHeader header;
  if (!bytes.read(&header)) return bad("a fatbin that ends inside its header");
  const uint64_t total = header.header_bytes + header.body_bytes;
  if (header.version != 1 || header.header_bytes < sizeof(header) ||
      header.body_bytes > kMostImageBytes) {
    return bad("a fatbin with version " + std::to_string(header.version) + ", a header of " +
               std::to_string(header.header_bytes) + " and a body of " +
               std::to_string(header.body_bytes) + " bytes");
  }
  if (total > bytes.available) return bad("a fatbin that ends before its last entry");
  return Image{bytes.data, total};
}

Result<Image> elf(const Bytes& bytes) {
  ElfHeader header;
  if (!bytes.read(&header)) return bad("an ELF file that ends inside its header");
  if (header.identity[4] != 2 || header.machine != kCudaMachine) {
    return bad("an ELF file of class " + std::to_string(header.identity[4]) + " for machine " +
               std::to_string(header.machine));
  }
  // nvcc writes the program headers behind the section headers, so either may come last.
  uint64_t total = sizeof(header);
  const auto include = [&total](uint64_t offset, uint64_t entries, uint64_t entry_bytes) {
    if (entries == 0) return true;
    if (offset > kMostImageBytes) return false;
    total = std::max(total, offset + entries * entry_bytes);
    return total <= kMostImageBytes;
  };
  if (!include(header.section_offset, header.section_entries, header.section_entry_bytes) ||
      !include(header.program_offset, header.program_entries, header.program_entry_bytes)) {
    return bad("an ELF file whose tables lie beyond " + std::to_string(kMostImageBytes) + " bytes");
  }
  if (header.section_entries == 0) return bad("an ELF file without sections");
  if (total > bytes.available) return bad("an ELF file that ends before its tables");
  return Image{bytes.data, total};
}

// PTX is text: printable, or white space. Its first bytes tell it from binary rubbish.
Result<Image> ptx(const Bytes& bytes) {
  constexpr uint64_t kLooked = 16;
  uint64_t length = 0;
  while (length < bytes.available && length <= kMostImageBytes && bytes.data[length] != 0) {
    const unsigned char c = bytes.data[length];
    const bool text = c >= 0x20 || (c >= '\t' && c <= '\r');
    if (length < kLooked && (!text || c == 0x7f || c >= 0x80)) {
      return bad("neither a fatbin, nor a cubin, nor PTX");
    }
    ++length;
  }
  if (length == 0) return bad("an empty image");
  if (length > kMostImageBytes) return bad("PTX without an end");
  // The NUL goes along; at the end of a file that has none the sender adds it.
  const bool ends = length == bytes.available;
  return Image{bytes.data, ends ? length : length + 1, ends};
}

Result<Image> plain(const Bytes& bytes) {
  uint32_t magic = 0;
  if (bytes.read(&magic)) {
    if (magic == kContainerMagic) return container(bytes);
    if (magic == kElfMagic) return elf(bytes);
  }
  return ptx(bytes);
}

Bytes unbounded(const void* data) { return {static_cast<const unsigned char*>(data), UINT64_MAX}; }

// A version 2 wrapper names the linked code of the whole program, and behind it a list of what went
// into it, one container of each object file.
Result<Image> prelinked(const Wrapper& wrapper) {
  const auto* const* list = static_cast<const void* const*>(wrapper.extra);
  if (list == nullptr) return bad("a prelinked fatbin without a list");
  if (wrapper.data == nullptr) return bad("a prelinked fatbin without linked code");
  Result<Image> image = container(unbounded(wrapper.data));
  if (!image.ok()) return image;
  for (; *list != nullptr; ++list) {
    uint32_t magic = 0;
    memcpy(&magic, *list, sizeof(magic));
    if (magic != kContainerMagic) return bad("a prelinked fatbin with a foreign entry");
    Result<Image> input = container(unbounded(*list));
    if (!input.ok()) return input;
    if (image->inputs.size() + 1 == wire::kMaxContainers) {
      return bad("a prelinked fatbin of more than " + std::to_string(wire::kMaxContainers));
    }
    image->inputs.emplace_back(input->data, input->bytes);
  }
  if (image->wire_bytes() > kMostImageBytes) return bad("a prelinked fatbin that is too large");
  return image;
}

uint64_t padded(uint64_t bytes) {
  return (bytes + wire::kContainerAlignment - 1) / wire::kContainerAlignment *
         wire::kContainerAlignment;
}

// The part of `piece`, which lies at `start`, that is in [offset, offset + count) goes to where it
// belongs in `target`.
void copy_overlap(std::span<const unsigned char> piece, uint64_t start, uint64_t offset,
                  uint64_t count, unsigned char* target) {
  const uint64_t first = std::max(start, offset);
  const uint64_t end = std::min(start + piece.size(), offset + count);
  if (first < end) memcpy(target + (first - offset), piece.data() + (first - start), end - first);
}

}  // namespace

uint64_t Image::wire_bytes() const {
  if (inputs.empty()) return bytes + (add_nul ? 1 : 0);
  uint64_t total = padded(bytes);
  for (const auto& input : inputs) total += padded(input.size());
  return total;
}

void Image::copy(uint64_t offset, uint64_t count, unsigned char* target) const {
  const uint64_t own = offset < bytes ? std::min(count, bytes - offset) : 0;
  if (own != 0) memcpy(target, data + offset, own);
  memset(target + own, 0, count - own);  // padding, or the NUL
  uint64_t start = padded(bytes);
  for (const auto& input : inputs) {
    copy_overlap(input, start, offset, count, target);
    start += padded(input.size());
  }
}

Result<Image> find_image(const void* image) {
  if (image == nullptr) return Status(CUDA_ERROR_INVALID_VALUE, "a null image");
  uint32_t magic = 0;
  // Byte by byte up to a NUL: an image may be as short as one character of text.
  const auto* start = static_cast<const unsigned char*>(image);
  for (size_t i = 0; i < sizeof(magic); ++i) {
    magic |= static_cast<uint32_t>(start[i]) << (8 * i);
    if (start[i] == 0) break;
  }
  if (magic == kWrapperMagic) {
    Wrapper wrapper;
    memcpy(&wrapper, image, sizeof(wrapper));
    if (wrapper.version == 2) return prelinked(wrapper);
    if (wrapper.version != 1 || wrapper.data == nullptr) {
      return bad("a fatbin wrapper of version " + std::to_string(wrapper.version));
    }
    return plain(unbounded(wrapper.data));
  }
  if (magic == kContainerMagic) return container(unbounded(image));
  if (magic == kElfMagic) return elf(unbounded(image));
  return ptx(unbounded(image));
}

Result<Image> find_image(std::span<const std::byte> file) {
  const Bytes bytes{reinterpret_cast<const unsigned char*>(file.data()), file.size()};
  uint32_t magic = 0;
  // A wrapper holds pointers: it makes no sense in a file.
  if (bytes.read(&magic) && magic == kWrapperMagic) return bad("a fatbin wrapper in a file");
  return plain(bytes);
}

}  // namespace openmps::client
