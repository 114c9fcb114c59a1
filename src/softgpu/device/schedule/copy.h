// SPDX-License-Identifier: Apache-2.0
// What a copy engine does: pitched copies and fills of up to three dimensions, on addresses that
// are valid in this process. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/abi.h"

namespace openmps::softgpu {

struct CopyShape {
  uint64_t source = 0;
  uint64_t destination = 0;
  uint64_t width = 0;  // bytes per row
  uint64_t height = 1;
  uint64_t depth = 1;
  uint64_t source_pitch = 0;  // bytes from row to row
  uint64_t source_slice = 0;  // bytes from plane to plane
  uint64_t destination_pitch = 0;
  uint64_t destination_slice = 0;
  // A copy with an array, as the program named it; null: memory only.
  std::shared_ptr<const CUDA_MEMCPY3D> named;

  [[nodiscard]] bool empty() const { return width == 0 || height == 0 || depth == 0; }
  // Bytes from the first to behind the last byte that is touched; UINT64_MAX: does not fit 64 bits.
  [[nodiscard]] uint64_t source_extent() const;
  [[nodiscard]] uint64_t destination_extent() const;
};

struct FillShape {
  uint64_t destination = 0;
  uint32_t value = 0;
  uint32_t element = 1;  // bytes: 1, 2, 4
  uint64_t width = 0;    // elements per row
  uint64_t height = 1;
  uint64_t pitch = 0;  // bytes from row to row

  [[nodiscard]] bool empty() const { return width == 0 || height == 0; }
  [[nodiscard]] uint64_t extent() const;
};

CopyShape linear_copy(uint64_t destination, uint64_t source, uint64_t bytes);

void run_copy(const CopyShape& shape);
void run_fill(const FillShape& shape);

}  // namespace openmps::softgpu
