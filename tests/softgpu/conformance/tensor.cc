// SPDX-License-Identifier: Apache-2.0
// See tensor.h.
#include "tensor.h"

#include "api/prototypes.h"
#include "inputs.h"

namespace conformance {
namespace {

struct Layout {
  cuuint64_t sizes[5];
  cuuint32_t box[5];
};
constexpr cuuint32_t kWords = 2 * kInputWords;
constexpr Layout kLayouts[] = {
    {{kWords * kThreads}, {64}},
    {{kWords, kThreads}, {8, 8}},
    {{kWords, kLanes, kWarps}, {8, 8, 1}},
    {{8, 4, kLanes, kWarps}, {8, 2, 4, 1}},
    {{8, 4, 8, kLanes / 8, kWarps}, {8, 2, 2, 2, 1}},
};
// The corner of a filter of three by three (by three) elements, one beyond each border.
constexpr int kCorner[] = {-1, -1, -1};
constexpr int kNoFilter[] = {0, 0, 0};

}  // namespace

CUresult make_tensor_map(const Case& one, CUdeviceptr memory, CUtensorMap* map) {
  const auto rank = static_cast<cuuint32_t>(one.tensor.rank);
  const Layout& layout = kLayouts[rank - 1];
  cuuint64_t strides[5];
  cuuint64_t bytes = 4;
  for (cuuint32_t i = 0; i < rank; ++i) strides[i] = bytes *= layout.sizes[i];
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  const CUtensorMapSwizzle swizzle =
      one.tensor.swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B : CU_TENSOR_MAP_SWIZZLE_NONE;
  void* address = reinterpret_cast<void*>(memory);
  if (one.tensor.im2col) {
    const int* corner = one.tensor.whole ? kNoFilter : kCorner;
    return cuTensorMapEncodeIm2col(
        map, CU_TENSOR_MAP_DATA_TYPE_UINT32, rank, address, layout.sizes, strides, corner, corner,
        8, 8, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, rank, address, layout.sizes,
                                strides, layout.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace conformance
