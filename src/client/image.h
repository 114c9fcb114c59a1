// SPDX-License-Identifier: Apache-2.0
// How long is the image behind a bare pointer? cuModuleLoadData and cuLibraryLoadData get no
// length: it follows from the headers of a fatbin, a cubin, or the NUL that ends PTX. The program
// vouches that its pointer is readable as far as those headers say, as with any driver; what the
// headers say is checked for sense before it is believed. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/fatbin.h"
#include "wire/commands/code.h"

namespace openmps::client {

struct Image {
  const unsigned char* data = nullptr;
  uint64_t bytes = 0;
  bool add_nul = false;  // PTX from a file that ends without one
  // Of a program linked by nvcc -rdc=true: the containers that the code in `data` was linked from.
  // They hold the PTX, which the driver compiles and links anew where that code does not run.
  std::vector<cuda::Bytes> inputs = {};

  // Where the next container of a linked program may begin as it travels.
  static constexpr uint64_t padded(uint64_t bytes) {
    return (bytes + wire::kContainerAlignment - 1) / wire::kContainerAlignment *
           wire::kContainerAlignment;
  }
};

// The bytes to send for an image pointer: the containers inside a fatbin wrapper, a bare container,
// an ELF file, PTX text with its NUL. Errors: CUDA_ERROR_INVALID_IMAGE, with the reason.
Result<Image> find_image(const void* image);

// The image in a file's contents, which must hold all of it.
Result<Image> find_image(std::span<const std::byte> file);

}  // namespace openmps::client
