// SPDX-License-Identifier: Apache-2.0
// What many functions are variants of, as their descriptions call it (`returns` in api/*.toml).
// softgpu has its own functions of these names (softgpu/front/families.h). On the program's
// threads.
#pragma once

#include "client/entry/graph_nodes.h"
#include "cuda/copies.h"
#include "cuda/devices.h"
#include "cuda/stream_values.h"
#include "cuda/versions.h"

namespace openmps::client {

// In the order of which stream a copy or a fill is made. Without a stream it is the default one,
// and the call waits for as much as CUDA's synchronous calls do.
struct StreamOrder {
  StreamOrder() = default;
  StreamOrder(CUstream named) : stream(named), waits(false) {}  // NOLINT: the call's own argument

  CUstream stream = nullptr;
  bool waits = true;
};

// Of a box, `copy` may be NULL, which is CUDA_ERROR_INVALID_VALUE.
[[nodiscard]] CUresult copy_linear(const cuda::LinearSide& to, const cuda::LinearSide& from,
                                   size_t bytes, StreamOrder order = {});
[[nodiscard]] CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes,
                                StreamOrder order = {});
[[nodiscard]] CUresult copy_box(const CUDA_MEMCPY2D* copy, StreamOrder order = {});
[[nodiscard]] CUresult copy_box(const CUDA_MEMCPY3D* copy, StreamOrder order = {});
[[nodiscard]] CUresult copy_box(const CUDA_MEMCPY3D_PEER* copy, StreamOrder order = {});
[[nodiscard]] CUresult fill(const CUDA_MEMSET_NODE_PARAMS& what, StreamOrder order = {});

// Managed memory, with a device or CU_DEVICE_CPU for a place.
[[nodiscard]] CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                              CUdevice device);

// A value that a stream writes or waits for.
[[nodiscard]] CUresult stream_value(CUstream stream, const cuda::StreamValue& value);

}  // namespace openmps::client
