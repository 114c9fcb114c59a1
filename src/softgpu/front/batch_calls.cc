// SPDX-License-Identifier: Apache-2.0
// Copies in batches, carried out as single copies. Any thread.
#include "cuda/copies.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

constexpr size_t kNoIndex = ~size_t{0};

bool known_order(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
         order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
         order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

bool null_stream(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

bool sound_attributes(const CUmemcpyAttributes* attributes, const size_t* indices, size_t count,
                      size_t copies) {
  if (count == 0 || count > copies || attributes == nullptr || indices == nullptr) return false;
  for (size_t i = 0; i < count; ++i) {
    bool in_order = i == 0 ? indices[0] == 0 : indices[i] > indices[i - 1];
    if (!in_order || indices[i] >= copies || !known_order(attributes[i].srcAccessOrder)) {
      return false;
    }
  }
  return true;
}

CUresult copy_operation(const CUDA_MEMCPY3D_BATCH_OP& operation, CUstream stream) {
  if (!known_order(operation.srcAccessOrder)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy;
  const CUresult result = cuda::read_batched(operation, &copy);
  return result == CUDA_SUCCESS ? cuMemcpy3DAsync_v2(&copy, stream) : result;
}

// copy(index) -> CUresult, up to the first that fails.
template <typename Copy>
CUresult copy_all(size_t count, size_t* failed, Copy&& copy) {
  return recorded_call(CallKind::kCopy, [&] {
    for (size_t i = 0; i < count; ++i) {
      const CUresult result = copy(i);
      if (result == CUDA_SUCCESS) continue;
      if (failed != nullptr) *failed = i;
      return result;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  if (failIdx != nullptr) *failIdx = kNoIndex;
  if (count == 0 || dsts == nullptr || srcs == nullptr || sizes == nullptr ||
      null_stream(hStream) || !sound_attributes(attrs, attrsIdxs, numAttrs, count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return copy_all(count, failIdx,
                  [&](size_t i) { return cuMemcpyAsync(dsts[i], srcs[i], sizes[i], hStream); });
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  return cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, nullptr, hStream);
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  if (failIdx != nullptr) *failIdx = kNoIndex;
  if (numOps == 0 || opList == nullptr || flags != 0 || null_stream(hStream)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return copy_all(numOps, failIdx, [&](size_t i) { return copy_operation(opList[i], hStream); });
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  return cuMemcpy3DBatchAsync(numOps, opList, nullptr, flags, hStream);
}
