// SPDX-License-Identifier: Apache-2.0
// Images of several fatbin containers: programs that nvcc -rdc=true links. The first container is
// the linked code; the others are its inputs, one of each object file, which the driver compiles
// and links again where the linked code can't be used. Any thread.
#pragma once

#include <vector>

#include "cuda/fatbin.h"

namespace openmps::worker {

// The containers of an image as it is sent (wire::kContainerAlignment), or the image itself if it
// does not begin with one. Errors: CUDA_ERROR_INVALID_IMAGE with the reason: a length beyond the
// end, other bytes behind a container, too many containers.
Result<std::vector<cuda::Bytes>> split_image(cuda::Bytes image);

// What the driver takes as an image: the image itself, or a wrapper with pointers to its
// containers. Lives as long as the call that loads it: the driver copies.
class DriverImage {
 public:
  // `image` has passed check_image_bounds and outlives this.
  explicit DriverImage(cuda::Bytes image);
  DriverImage(const DriverImage&) = delete;
  DriverImage& operator=(const DriverImage&) = delete;

  [[nodiscard]] const void* data() const {
    return inputs_.empty() ? wrapper_.data : static_cast<const void*>(&wrapper_);
  }

 private:
  cuda::FatbinWrapper wrapper_;
  std::vector<const void*> inputs_;  // ends with NULL, if there are any
};

}  // namespace openmps::worker
