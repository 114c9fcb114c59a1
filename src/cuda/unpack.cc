// SPDX-License-Identifier: Apache-2.0
// Decompression. See unpack.h.
#include "cuda/unpack.h"

#include <lz4.h>
#include <zstd.h>

#include <string>

namespace openmps::cuda {
namespace {

Status bad(const std::string& why) { return Status(CUDA_ERROR_INVALID_IMAGE, why); }

}  // namespace

Result<Bytes> unpack(const FatbinEntry& entry, std::vector<unsigned char>* buffer) {
  const EntryHeader& header = entry.header;
  if ((header.flags & (kPackedByLz4 | kPackedByZstd)) == 0) return entry.payload;
  if (header.packed_bytes > entry.payload.size() || header.unpacked_bytes == 0 ||
      header.unpacked_bytes > kMostUnpackedBytes) {
    return bad("a fatbin entry of " + std::to_string(header.packed_bytes) + " bytes for " +
               std::to_string(header.unpacked_bytes));
  }
  const Bytes packed = entry.payload.first(header.packed_bytes);
  buffer->resize(header.unpacked_bytes);
  if ((header.flags & kPackedByZstd) != 0) {
    const size_t bytes =
        ZSTD_decompress(buffer->data(), buffer->size(), packed.data(), packed.size());
    if (ZSTD_isError(bytes) != 0) {
      return bad(std::string("a fatbin entry that zstd can't unpack: ") + ZSTD_getErrorName(bytes));
    }
    return Bytes(buffer->data(), bytes);
  }
  const int bytes = LZ4_decompress_safe(
      reinterpret_cast<const char*>(packed.data()), reinterpret_cast<char*>(buffer->data()),
      static_cast<int>(packed.size()), static_cast<int>(buffer->size()));
  if (bytes < 0) return bad("a fatbin entry that LZ4 can't unpack");
  return Bytes(buffer->data(), static_cast<size_t>(bytes));
}

}  // namespace openmps::cuda
