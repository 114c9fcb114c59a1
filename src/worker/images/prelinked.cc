// SPDX-License-Identifier: Apache-2.0
// See prelinked.h.
#include "worker/images/prelinked.h"

#include <algorithm>
#include <string>

#include "wire/commands/code.h"

namespace openmps::worker {

using cuda::Bytes;

Result<std::vector<Bytes>> split_image(Bytes image) {
  if (cuda::kind_of(image.data(), image.size()) != cuda::ImageKind::kContainer) {
    return std::vector<Bytes>{image};
  }
  std::vector<Bytes> containers;
  while (!image.empty()) {
    const Result<Bytes> container = cuda::front_container(image);
    if (!container.ok()) return container.status();
    if (containers.size() == wire::kMaxContainers) {
      return Status(CUDA_ERROR_INVALID_IMAGE,
                    "an image of more than " + std::to_string(wire::kMaxContainers) + " fatbins");
    }
    containers.push_back(*container);
    constexpr uint64_t kStep = wire::kContainerAlignment;
    const uint64_t padded = (container->size() + kStep - 1) / kStep * kStep;
    image = image.subspan(std::min<uint64_t>(padded, image.size()));
  }
  return containers;
}

DriverImage::DriverImage(Bytes image)
    : wrapper_{cuda::kWrapperMagic, cuda::kPrelinked, image.data(), nullptr} {
  const Result<std::vector<Bytes>> containers = split_image(image);
  if (!containers.ok() || containers->size() == 1) return;
  for (size_t i = 1; i < containers->size(); ++i) inputs_.push_back((*containers)[i].data());
  inputs_.push_back(nullptr);
  wrapper_.extra = inputs_.data();
}

}  // namespace openmps::worker
