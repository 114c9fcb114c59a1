// SPDX-License-Identifier: Apache-2.0
// See image_bounds.h.
#include "worker/images/image_bounds.h"

#include <vector>

#include "cuda/elf.h"
#include "worker/images/prelinked.h"

namespace openmps::worker {
namespace {

using cuda::Bytes;
using cuda::ImageKind;

// The same check for the machine code in an entry, where that is not compressed.
Status check_entry(const cuda::FatbinEntry& entry) {
  // PTX without a place for options makes NVIDIA's driver (580) read beyond the entry and crash;
  // nvcc writes 64 there.
  if (entry.header.kind == cuda::kPtxEntry && entry.header.options_offset == 0) {
    return Status(CUDA_ERROR_INVALID_IMAGE, "a fatbin entry of PTX whose header has no options");
  }
  const Bytes payload = entry.payload;
  const bool is_elf = cuda::kind_of(payload.data(), payload.size()) == ImageKind::kElf;
  return is_elf ? cuda::check_elf(payload) : Status();
}

}  // namespace

Status check_image_bounds(Bytes image) {
  switch (cuda::kind_of(image.data(), image.size())) {
    case ImageKind::kWrapper:
      return Status(CUDA_ERROR_INVALID_IMAGE, "a fatbin wrapper: it holds pointers");
    case ImageKind::kElf: return cuda::check_elf(image);
    case ImageKind::kOther: return Status();
    case ImageKind::kContainer: break;
  }
  const Result<std::vector<Bytes>> containers = split_image(image);
  if (!containers.ok()) return containers.status();
  for (const Bytes container : *containers) {
    OPENMPS_RETURN_IF_ERROR(cuda::for_each_entry(container, check_entry));
  }
  return Status();
}

}  // namespace openmps::worker
