// SPDX-License-Identifier: Apache-2.0
// The many ways to name a copy (rows of arrays, two dimensions, between contexts, of a batch) as
// the one that says all, CUDA_MEMCPY3D. What of it is allowed is the caller's to judge. Pure; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/abi.h"

namespace openmps::cuda {

// Elements of rows are bytes here, as in CUDA_MEMCPY3D.
struct CopyBox {
  size_t width = 0;
  size_t height = 1;
  size_t depth = 1;
};

struct CopySide {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  uint64_t address = 0;     // of memory, whichever
  CUarray array = nullptr;  // of CU_MEMORYTYPE_ARRAY
  size_t x = 0;             // where the box begins: bytes, rows, slices
  size_t y = 0;
  size_t z = 0;
  size_t pitch = 0;  // bytes from row to row; 0: rows without gaps
  size_t rows = 0;   // from slice to slice; 0: slices without gaps
  size_t level = 0;  // of detail

  // What the zeros stand for.
  [[nodiscard]] size_t pitch_of(const CopyBox& box) const {
    return pitch != 0 ? pitch : x + box.width;
  }
  [[nodiscard]] size_t rows_of(const CopyBox& box) const {
    return rows != 0 ? rows : y + box.height;
  }
};

// Linear memory as a call names it: where it is, or that its address says so.
struct LinearSide {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  uint64_t address = 0;
};
[[nodiscard]] inline LinearSide on_host(const void* host) {
  return {CU_MEMORYTYPE_HOST, reinterpret_cast<uint64_t>(host)};
}
[[nodiscard]] inline LinearSide on_device(CUdeviceptr device) {
  return {CU_MEMORYTYPE_DEVICE, device};
}
[[nodiscard]] inline LinearSide anywhere(CUdeviceptr address) {
  return {CU_MEMORYTYPE_UNIFIED, address};
}

// Sides of a box: host memory, device memory, and a row of an array from `offset` bytes on.
[[nodiscard]] CopySide host_side(const void* host);
[[nodiscard]] CopySide device_side(CUdeviceptr device);
[[nodiscard]] CopySide row_side(CUarray array, size_t offset);

[[nodiscard]] CUDA_MEMCPY3D copy_between(const CopySide& destination, const CopySide& source,
                                         const CopyBox& box);

[[nodiscard]] CopySide source_of(const CUDA_MEMCPY3D& copy);
[[nodiscard]] CopySide destination_of(const CUDA_MEMCPY3D& copy);
[[nodiscard]] inline CopyBox box_of(const CUDA_MEMCPY3D& copy) {
  return {copy.WidthInBytes, copy.Height, copy.Depth};
}

[[nodiscard]] CUDA_MEMCPY3D widen(const CUDA_MEMCPY2D& copy);
// The contexts say nothing that the addresses don't.
[[nodiscard]] CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER& copy);
// Errors: CUDA_ERROR_NOT_SUPPORTED: a side that is an array; CUDA_ERROR_INVALID_VALUE: that is
// neither that nor memory.
[[nodiscard]] CUresult read_batched(const CUDA_MEMCPY3D_BATCH_OP& operation, CUDA_MEMCPY3D* copy);

}  // namespace openmps::cuda
