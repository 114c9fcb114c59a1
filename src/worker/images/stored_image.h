// SPDX-License-Identifier: Apache-2.0
// The bytes of an image that a worker holds, in a sealed file of memory, so that other workers can
// have them without a copy. Never changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "cuda/elf.h"
#include "cuda/status.h"
#include "worker/images/image_variables.h"

namespace openmps::worker {

class StoredImage {
 public:
  // Where no file can be made the image has none. std::bad_alloc: there is no memory.
  explicit StoredImage(ImageBytes bytes);
  // An image that another worker has made. Errors: those of map_sealed().
  static Result<StoredImage> open(UniqueFd file, uint64_t bytes);

  [[nodiscard]] const unsigned char* data() const {
    return mapping_.valid() ? static_cast<const unsigned char*>(mapping_.address()) : bytes_.data();
  }
  [[nodiscard]] size_t size() const {
    return mapping_.valid() ? static_cast<size_t>(mapping_.bytes()) : bytes_.size();
  }
  [[nodiscard]] const unsigned char* begin() const { return data(); }
  [[nodiscard]] const unsigned char* end() const { return data() + size(); }
  [[nodiscard]] unsigned char back() const { return data()[size() - 1]; }
  friend bool operator==(const StoredImage& one, cuda::Bytes other) {
    return std::ranges::equal(one, other);
  }

  // Invalid: there is none, or it has been closed.
  [[nodiscard]] const UniqueFd& file() const { return file_; }
  // The bytes stay.
  void close_file() { file_.reset(); }

 private:
  StoredImage(UniqueFd file, Mapping mapping)
      : file_(std::move(file)), mapping_(std::move(mapping)) {}

  UniqueFd file_;
  Mapping mapping_;
  ImageBytes bytes_;  // without a mapping
};

}  // namespace openmps::worker
