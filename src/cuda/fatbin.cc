// SPDX-License-Identifier: Apache-2.0
// Wrappers, containers, entries. See fatbin.h.
#include "cuda/fatbin.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace openmps::cuda {
namespace {

constexpr uint32_t kElfMagic = 0x464c457f;  // "\x7f" "ELF", little endian
constexpr uint16_t kContainerVersion = 1;

Status bad_fatbin(const std::string& why) { return Status(CUDA_ERROR_INVALID_IMAGE, why); }

Result<uint64_t> length_of(const ContainerHeader& header) {
  if (header.magic != kContainerMagic) {
    return bad_fatbin("something that is no fatbin among fatbins");
  }
  if (header.version != kContainerVersion || header.header_bytes < sizeof(header) ||
      header.body_bytes > kMostImageBytes) {
    return bad_fatbin("a fatbin with version " + std::to_string(header.version) + ", a header of " +
                      std::to_string(header.header_bytes) + " and a body of " +
                      std::to_string(header.body_bytes) + " bytes");
  }
  return header.header_bytes + header.body_bytes;
}

// Behind the last entry there may be zeros.
bool is_padding(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](unsigned char byte) { return byte == 0; });
}

}  // namespace

ImageKind kind_of(const void* image, size_t bytes) {
  const auto* start = static_cast<const unsigned char*>(image);
  uint32_t magic = 0;
  for (size_t i = 0; i < std::min(bytes, sizeof(magic)) && start[i] != 0; ++i) {
    magic |= static_cast<uint32_t>(start[i]) << (8 * i);
  }
  switch (magic) {
    case kWrapperMagic: return ImageKind::kWrapper;
    case kContainerMagic: return ImageKind::kContainer;
    case kElfMagic: return ImageKind::kElf;
    default: return ImageKind::kOther;
  }
}

FatbinWrapper read_wrapper(const void* image) {
  FatbinWrapper wrapper;
  memcpy(&wrapper, image, sizeof(wrapper));
  return wrapper;
}

Result<std::vector<Bytes>> inputs_of(const FatbinWrapper& wrapper) {
  const auto* const* list = static_cast<const void* const*>(wrapper.extra);
  if (list == nullptr) return bad_fatbin("a prelinked fatbin without a list");
  std::vector<Bytes> inputs;
  for (; *list != nullptr; ++list) {
    if (kind_of(*list) != ImageKind::kContainer) {
      return bad_fatbin("a prelinked fatbin of foreign entries");
    }
    Result<Bytes> input = container_at(*list);
    if (!input.ok()) return input.status();
    if (inputs.size() == kMostContainers) {
      return bad_fatbin("a prelinked fatbin of more than " + std::to_string(kMostContainers));
    }
    inputs.push_back(*input);
  }
  return inputs;
}

Result<Bytes> container_at(const void* pointer) {
  ContainerHeader header;
  memcpy(&header, pointer, sizeof(header));
  const Result<uint64_t> length = length_of(header);
  if (!length.ok()) return length.status();
  return Bytes(static_cast<const unsigned char*>(pointer), *length);
}

Result<Bytes> front_container(Bytes bytes) {
  ContainerHeader header;
  if (bytes.size() < sizeof(header)) return bad_fatbin("a fatbin that ends inside its header");
  memcpy(&header, bytes.data(), sizeof(header));
  const Result<uint64_t> length = length_of(header);
  if (!length.ok()) return length.status();
  if (*length > bytes.size()) {
    return bad_fatbin("a fatbin of " + std::to_string(*length) + " bytes where " +
                      std::to_string(bytes.size()) + " are left");
  }
  return bytes.first(*length);
}

Status for_each_entry(Bytes container, const std::function<Status(const FatbinEntry&)>& visit) {
  ContainerHeader header;
  memcpy(&header, container.data(), sizeof(header));
  Bytes left = container.subspan(header.header_bytes);
  while (!left.empty()) {
    FatbinEntry entry;
    if (left.size() < sizeof(entry.header)) {
      return is_padding(left) ? Status()
                              : bad_fatbin("a fatbin that ends inside an entry's header");
    }
    memcpy(&entry.header, left.data(), sizeof(entry.header));
    const EntryHeader& h = entry.header;
    if (h.header_bytes == 0 && is_padding(left)) return Status();
    if (h.header_bytes < sizeof(h) || h.header_bytes > left.size() ||
        h.payload_bytes > left.size() - h.header_bytes) {
      return bad_fatbin("a fatbin entry of " + std::to_string(h.payload_bytes) + " bytes where " +
                        std::to_string(left.size()) + " are left");
    }
    entry.payload = left.subspan(h.header_bytes, h.payload_bytes);
    entry.whole = left.first(h.header_bytes + h.payload_bytes);
    OPENMPS_RETURN_IF_ERROR(visit(entry));
    left = left.subspan(entry.whole.size());
  }
  return Status();
}

}  // namespace openmps::cuda
