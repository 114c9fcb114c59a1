// SPDX-License-Identifier: Apache-2.0
// cuMemcpy*: each call names its two sides and a box, transfer() does the rest. Implementations
// behind the generated entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/stream.h"
#include "client/thread_state.h"
#include "client/transfer.h"
#include "cuda/copies.h"

namespace openmps::client {
namespace {

CUresult copy_linear(Named to, uint64_t destination, Named from, uint64_t source, size_t bytes,
                     CUstream handle, bool wait) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  const Copy copy{
      side_of(*session, to, destination), side_of(*session, from, source), {.width = bytes}};
  return transfer(*session, *stream, copy, wait);
}

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Of a copy between contexts, whose addresses say by themselves where they are.
CUresult check_contexts(CUcontext to, CUcontext from) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  OPENMPS_CUDA_CHECK(find_context(*session, to, &context));
  return find_context(*session, from, &context);
}

CUresult copy_3d(const CUDA_MEMCPY3D* named, CUstream handle, bool wait) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  if (named == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  OPENMPS_CUDA_CHECK(read_copy_3d(*session, *context, *named, &copy));
  return transfer(*session, *stream, copy, wait);
}

CUresult copy_2d(const CUDA_MEMCPY2D* copy, CUstream stream, bool wait) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D wide = cuda::widen(*copy);
  return copy_3d(&wide, stream, wait);
}

}  // namespace

namespace impl {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy_linear(Named::kAny, dst, Named::kAny, src, ByteCount, nullptr, true);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return copy_linear(Named::kAny, dst, Named::kAny, src, ByteCount, hStream, false);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy_linear(Named::kDevice, dstDevice, Named::kHost, address_of(srcHost), ByteCount,
                     nullptr, true);
}
CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_linear(Named::kHost, address_of(dstHost), Named::kDevice, srcDevice, ByteCount,
                     nullptr, true);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy_linear(Named::kDevice, dstDevice, Named::kDevice, srcDevice, ByteCount, nullptr,
                     true);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return copy_linear(Named::kDevice, dstDevice, Named::kHost, address_of(srcHost), ByteCount,
                     hStream, false);
}
CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy_linear(Named::kHost, address_of(dstHost), Named::kDevice, srcDevice, ByteCount,
                     hStream, false);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy_linear(Named::kDevice, dstDevice, Named::kDevice, srcDevice, ByteCount, hStream,
                     false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, hStream, &stream));
  OPENMPS_CUDA_CHECK(check_contexts(dstContext, srcContext));
  OPENMPS_CUDA_CHECK(refuse_capturing(*session, *stream));
  return impl::cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  OPENMPS_CUDA_CHECK(check_contexts(dstContext, srcContext));
  return impl::cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) { return copy_2d(pCopy, nullptr, true); }
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) {
  return copy_2d(pCopy, nullptr, true);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return copy_2d(pCopy, hStream, false);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) { return copy_3d(pCopy, nullptr, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return copy_3d(pCopy, hStream, false);
}

}  // namespace impl
}  // namespace openmps::client
