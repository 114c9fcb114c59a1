// SPDX-License-Identifier: Apache-2.0
// See stored_image.h.
#include "worker/images/stored_image.h"

namespace openmps::worker {

StoredImage::StoredImage(ImageBytes bytes) {
  Result<UniqueFd> file =
      bytes.empty() ? Result<UniqueFd>(UniqueFd()) : create_sealed_file("openmps-image", bytes);
  if (file.ok() && file->valid()) {
    if (Result<Mapping> mapping = map_sealed(file->get(), bytes.size()); mapping.ok()) {
      file_ = std::move(file).value();
      mapping_ = std::move(mapping).value();
      return;
    }
  }
  bytes_ = std::move(bytes);
}

Result<StoredImage> StoredImage::open(UniqueFd file, uint64_t bytes) {
  Result<Mapping> mapping = map_sealed(file.get(), bytes);
  if (!mapping.ok()) return mapping.status();
  return StoredImage(std::move(file), std::move(mapping).value());
}

}  // namespace openmps::worker
