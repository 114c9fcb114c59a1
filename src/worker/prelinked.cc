// SPDX-License-Identifier: Apache-2.0
// Splitting images and wrapping them again. See prelinked.h.
#include "worker/prelinked.h"

#include <string.h>

#include <algorithm>
#include <string>

#include "wire/commands.h"

namespace openmps::worker {
namespace {

using Bytes = std::span<const unsigned char>;

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kWrapperVersion = 2;  // with a list
constexpr uint32_t kContainerMagic = 0xba55ed50;

struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t body_bytes;
};
static_assert(sizeof(ContainerHeader) == 16);

Status bad(const std::string& why) { return Status(CUDA_ERROR_INVALID_IMAGE, why); }

bool begins_container(Bytes bytes) {
  uint32_t magic = 0;
  if (bytes.size() < sizeof(magic)) return false;
  memcpy(&magic, bytes.data(), sizeof(magic));
  return magic == kContainerMagic;
}

}  // namespace

Result<std::vector<Bytes>> split_image(Bytes image) {
  if (!begins_container(image)) return std::vector<Bytes>{image};
  std::vector<Bytes> containers;
  while (!image.empty()) {
    ContainerHeader header;
    if (!begins_container(image)) return bad("something behind a fatbin that is none");
    if (image.size() < sizeof(header)) return bad("a fatbin that ends inside its header");
    memcpy(&header, image.data(), sizeof(header));
    if (header.header_bytes < sizeof(header) || header.header_bytes > image.size() ||
        header.body_bytes > image.size() - header.header_bytes) {
      return bad("a fatbin of " + std::to_string(header.body_bytes) + " bytes in an image of " +
                 std::to_string(image.size()));
    }
    if (containers.size() == wire::kMaxContainers) {
      return bad("an image of more than " + std::to_string(wire::kMaxContainers) + " fatbins");
    }
    const uint64_t bytes = header.header_bytes + header.body_bytes;
    containers.push_back(image.first(bytes));
    constexpr uint64_t kStep = wire::kContainerAlignment;
    image = image.subspan(std::min<uint64_t>((bytes + kStep - 1) / kStep * kStep, image.size()));
  }
  return containers;
}

DriverImage::DriverImage(Bytes image)
    : wrapper_{kWrapperMagic, kWrapperVersion, image.data(), nullptr} {
  const Result<std::vector<Bytes>> containers = split_image(image);
  if (!containers.ok() || containers->size() == 1) return;
  for (size_t i = 1; i < containers->size(); ++i) inputs_.push_back((*containers)[i].data());
  inputs_.push_back(nullptr);
  wrapper_.inputs = inputs_.data();
}

}  // namespace openmps::worker
