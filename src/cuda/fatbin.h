// SPDX-License-Identifier: Apache-2.0
// The images that programs hand to cuModuleLoadData, as far as all readers of them agree: wrappers,
// containers and their entries, as nvcc 13.0 writes them. The client asks how long an image is, the
// worker whether it keeps to its bytes and what its code refers to, softgpu for its PTX. Input is
// untrusted: every length is checked before it is believed. Errors: CUDA_ERROR_INVALID_IMAGE with
// the reason. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cuda/status.h"

namespace openmps::cuda {

using Bytes = std::span<const unsigned char>;

// Larger than any image so far (cuBLASLt's fatbins are some 100 MB): a corrupt length beyond this
// is an error, not an attempt to read it.
inline constexpr uint64_t kMostImageBytes = 2ull << 30;
// Of a program linked by nvcc -rdc=true: one of each object file, and the linked code.
inline constexpr size_t kMostContainers = 4096;

enum class ImageKind { kWrapper, kContainer, kElf, kOther };

// By the first bytes, of which none behind a NUL is read: an image may be as short as one character
// of text.
[[nodiscard]] ImageKind kind_of(const void* image, size_t bytes = SIZE_MAX);

// What nvcc puts into a program: pointers of that program's.
inline constexpr uint32_t kWrapperMagic = 0x466243b1;
inline constexpr uint32_t kPrelinked = 2;
struct FatbinWrapper {
  uint32_t magic;
  uint32_t version;   // 1 or kPrelinked
  const void* data;   // a container; of a prelinked program the linked code
  const void* extra;  // prelinked: an array, ended by NULL, of the containers it was linked from
};
static_assert(sizeof(FatbinWrapper) == 24);

// `image` is of kind kWrapper.
[[nodiscard]] FatbinWrapper read_wrapper(const void* image);
// The list behind a prelinked wrapper. Errors: there is none, what is not a container, too many.
[[nodiscard]] Result<std::vector<Bytes>> inputs_of(const FatbinWrapper& wrapper);

// A container: header and entries.
inline constexpr uint32_t kContainerMagic = 0xba55ed50;
struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t body_bytes;
};
static_assert(sizeof(ContainerHeader) == 16);
// The program vouches for a bare pointer as far as the header
// says.
[[nodiscard]] Result<Bytes> container_at(const void* pointer);
// The one that `bytes` begin with.
[[nodiscard]] Result<Bytes> front_container(Bytes bytes);

struct EntryHeader {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;  // this one and what follows it, such as the compiler's options
  uint64_t payload_bytes;
  uint32_t packed_bytes;  // of the payload; the rest is padding
  uint32_t options_offset;
  uint16_t minor;
  uint16_t major;
  uint32_t architecture;  // 10 * major + minor of the compute capability
  uint32_t bits;
  uint64_t flags;
  uint64_t reserved;
  uint64_t unpacked_bytes;
};
static_assert(sizeof(EntryHeader) == 64 && offsetof(EntryHeader, packed_bytes) == 16 &&
              offsetof(EntryHeader, architecture) == 28 && offsetof(EntryHeader, flags) == 40);
inline constexpr uint16_t kPtxEntry = 1;
inline constexpr uint16_t kElfEntry = 2;
// Machine code runs on newer devices of its generation, PTX on all newer ones. `capability`:
// 10 * major + minor of the device's.
[[nodiscard]] inline bool may_run(const EntryHeader& header, uint16_t kind, uint32_t capability) {
  if (header.kind != kind || header.architecture > capability) return false;
  return kind == kPtxEntry || header.architecture / 10 == capability / 10;
}
inline constexpr uint64_t kPackedByLz4 = 0x2000;
inline constexpr uint64_t kPackedByZstd = 0x8000;

struct FatbinEntry {
  EntryHeader header;
  Bytes payload;  // packed, if the flags say so (unpack.h)
  Bytes whole;    // with its header
};

// Visits the entries of a container in their order. Errors: the visit's, which ends the walk; an
// entry that leaves the container.
Status for_each_entry(Bytes container, const std::function<Status(const FatbinEntry&)>& visit);

}  // namespace openmps::cuda
