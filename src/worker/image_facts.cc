// SPDX-License-Identifier: Apache-2.0
// Symbols of images. Layouts: the fatbin container (docs/interop.md); cubins are ELF files whose
// symbol and section names are plain text.
#include "worker/image_facts.h"

#include <ctype.h>
#include <elf.h>
#include <lz4.h>
#include <string.h>
#include <zstd.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/prelinked.h"

namespace openmps::worker {
namespace {

using Bytes = std::span<const unsigned char>;

constexpr uint32_t kContainerMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1;
constexpr uint16_t kElf = 2;
constexpr uint64_t kLz4 = 0x2000;
constexpr uint64_t kZstd = 0x8000;
// More than any single cubin so far: an image that claims to unpack to more is not looked into.
constexpr uint64_t kMostUnpacked = 256ull << 20;

struct Entry {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t padded_bytes;
  uint32_t compressed_bytes;
  uint32_t options_offset;
  uint16_t minor, major;
  uint32_t architecture;
  uint32_t bits;
  uint64_t flags;
  uint64_t reserved;
  uint64_t unpacked_bytes;
};
static_assert(sizeof(Entry) == 64);
static_assert(offsetof(Entry, compressed_bytes) == 16 && offsetof(Entry, architecture) == 28 &&
              offsetof(Entry, flags) == 40 && offsetof(Entry, unpacked_bytes) == 56);

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

ImageFacts facts_of(Bytes code, bool is_elf) {
  ImageFacts facts;
  facts.compiles = !is_elf;
  facts.prints = contains(code, "vprintf");
  facts.asserts = contains(code, "__assert");
  facts.allocates = is_elf ? contains(code, {"\0malloc\0", 8}) : calls_malloc(code);
  // Sections of variables, initialised ones, constants (bank 3), texture and surface references.
  facts.has_variables = is_elf ? contains(code, ".nv.global") || contains(code, ".nv.constant3") ||
                                     contains(code, ".nv.texref") || contains(code, ".nv.surfref")
                               : declares(code, ".global") || declares(code, ".const") ||
                                     declares(code, ".texref") || declares(code, ".surfref");
  return facts;
}

void merge(const ImageFacts& from, ImageFacts* to) {
  to->prints |= from.prints;
  to->asserts |= from.asserts;
  to->allocates |= from.allocates;
  to->has_variables |= from.has_variables;
  to->compiles |= from.compiles;
}

// The code of an entry, unpacked into `buffer` where it is compressed.
std::optional<Bytes> code_of(const Entry& entry, Bytes payload,
                             std::vector<unsigned char>* buffer) {
  if ((entry.flags & (kLz4 | kZstd)) == 0) return payload;
  if (entry.compressed_bytes > payload.size() || entry.unpacked_bytes == 0 ||
      entry.unpacked_bytes > kMostUnpacked) {
    return std::nullopt;
  }
  buffer->resize(entry.unpacked_bytes);
  if ((entry.flags & kZstd) != 0) {
    const size_t bytes =
        ZSTD_decompress(buffer->data(), buffer->size(), payload.data(), entry.compressed_bytes);
    if (ZSTD_isError(bytes) != 0) return std::nullopt;
    return Bytes(buffer->data(), bytes);
  }
  const int bytes = LZ4_decompress_safe(
      reinterpret_cast<const char*>(payload.data()), reinterpret_cast<char*>(buffer->data()),
      static_cast<int>(entry.compressed_bytes), static_cast<int>(buffer->size()));
  if (bytes < 0) return std::nullopt;
  return Bytes(buffer->data(), static_cast<size_t>(bytes));
}

// All entries of one kind that the device may use. Nothing: there is none, or one can't be read.
std::optional<ImageFacts> facts_of_kind(Bytes entries, uint16_t kind, uint32_t capability) {
  ImageFacts facts{false, false, false, false};
  bool found = false;
  std::vector<unsigned char> buffer;
  Entry entry;
  while (entries.size() >= sizeof(entry)) {
    memcpy(&entry, entries.data(), sizeof(entry));
    if (entry.header_bytes < sizeof(entry) || entry.header_bytes > entries.size() ||
        entry.padded_bytes > entries.size() - entry.header_bytes) {
      break;
    }
    const Bytes payload = entries.subspan(entry.header_bytes, entry.padded_bytes);
    entries = entries.subspan(entry.header_bytes + entry.padded_bytes);
    const bool runs = kind == kElf ? entry.architecture / 10 == capability / 10 : true;
    if (entry.kind != kind || !runs || entry.architecture > capability) continue;
    const std::optional<Bytes> code = code_of(entry, payload, &buffer);
    if (!code) return ImageFacts{};
    merge(facts_of(*code, kind == kElf), &facts);
    found = true;
  }
  if (!found) return std::nullopt;
  return facts;
}

}  // namespace

namespace {

std::optional<Bytes> entries_of(Bytes container) {
  uint16_t header_bytes = 0;
  if (container.size() < 16) return std::nullopt;
  memcpy(&header_bytes, container.data() + 6, sizeof(header_bytes));
  if (header_bytes > container.size()) return std::nullopt;
  return container.subspan(header_bytes);
}

// The code of a container that the device may use, machine code first.
std::optional<ImageFacts> facts_of_container(Bytes container, uint32_t capability) {
  const std::optional<Bytes> entries = entries_of(container);
  if (!entries) return ImageFacts{};
  if (const auto facts = facts_of_kind(*entries, kElf, capability)) return facts;
  return facts_of_kind(*entries, kPtx, capability);
}

}  // namespace

ImageFacts read_image_facts(Bytes image, uint32_t capability) {
  uint32_t magic = 0;
  if (image.size() < sizeof(magic)) return {};
  memcpy(&magic, image.data(), sizeof(magic));
  if (memcmp(image.data(), ELFMAG, SELFMAG) == 0) return facts_of(image, true);
  if (magic != kContainerMagic) return facts_of(image, false);
  const Result<std::vector<Bytes>> containers = split_image(image);
  if (!containers.ok()) return {};
  if (const auto facts = facts_of_container(containers->front(), capability)) return *facts;
  if (containers->size() == 1) return {};
  // The linked code does not run: the driver links all of its inputs.
  ImageFacts facts{false, false, false};
  for (size_t i = 1; i < containers->size(); ++i) {
    merge(facts_of_container((*containers)[i], capability).value_or(ImageFacts{}), &facts);
  }
  return facts;
}

}  // namespace openmps::worker
