// SPDX-License-Identifier: Apache-2.0
// Copies in batches and between devices, each reduced to the single copies of copy_api.cc: the ring
// makes a batch cheap, and the shared context reaches the memory of all its devices.
// Implementations behind the generated entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/session/enter.h"
#include "cuda/copies.h"

namespace openmps::client {
namespace {

constexpr size_t kNoIndex = ~size_t{0};  // what CUDA says when no single operation is at fault

// Batches can't go to the NULL stream, whose order they would not keep.
bool is_null_stream(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY; }

bool is_known_order(CUmemcpySrcAccessOrder order) {
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
         order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
         order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

// Attribute i is for the copies from attrsIdxs[i] to the next one's. What they allow (to read the
// source early, to overlap) is never needed: a source is read in stream order or during the call.
bool are_sound(const CUmemcpyAttributes* attrs, const size_t* indices, size_t count,
               size_t copies) {
  if (count == 0 || count > copies || attrs == nullptr || indices == nullptr || indices[0] != 0) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    const bool ordered = i == 0 || indices[i] > indices[i - 1];
    if (!ordered || indices[i] >= copies || !is_known_order(attrs[i].srcAccessOrder)) return false;
  }
  return true;
}

// One after the other; *failed is the first that fails.
template <typename CopyOne>
CUresult copy_in_turn(size_t count, size_t* failed, CopyOne&& copy) {
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = copy(i);
    if (result == CUDA_SUCCESS) continue;
    *failed = i;
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult copy_batch(const CUdeviceptr* dsts, const CUdeviceptr* srcs, const size_t* sizes,
                    size_t count, const CUmemcpyAttributes* attrs, const size_t* indices,
                    size_t attributes, size_t* failed, CUstream stream) {
  *failed = kNoIndex;
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (count == 0 || dsts == nullptr || srcs == nullptr || sizes == nullptr ||
      is_null_stream(stream) || !are_sound(attrs, indices, attributes, count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return copy_in_turn(count, failed, [&](size_t i) {
    return impl::cuMemcpyAsync(dsts[i], srcs[i], sizes[i], stream);
  });
}

CUresult copy_operation(const CUDA_MEMCPY3D_BATCH_OP& operation, CUstream stream) {
  if (operation.flags != 0 && operation.flags != CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_known_order(operation.srcAccessOrder)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy;
  OPENMPS_CUDA_CHECK(cuda::read_batched(operation, &copy));
  return impl::cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult copy_3d_batch(size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed,
                       unsigned long long flags, CUstream stream) {
  *failed = kNoIndex;
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  if (count == 0 || operations == nullptr || flags != 0 || is_null_stream(stream)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return copy_in_turn(count, failed,
                      [&](size_t i) { return copy_operation(operations[i], stream); });
}

}  // namespace

namespace impl {

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  size_t failed = 0;
  return copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, &failed, hStream);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  if (failIdx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  size_t failed = 0;
  return copy_3d_batch(numOps, opList, &failed, flags, hStream);
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList, size_t* failIdx,
                              unsigned long long flags, CUstream hStream) {
  if (failIdx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_3d_batch(numOps, opList, failIdx, flags, hStream);
}

}  // namespace impl
}  // namespace openmps::client
