// SPDX-License-Identifier: Apache-2.0
// cuMemcpy*: each call names its two sides and a box, transfer() does the rest. Implementations
// behind the generated entry points, on the program's threads.
#include <string.h>

#include "api/client_impl.h"
#include "client/stream.h"
#include "client/thread_state.h"
#include "client/transfer.h"
#include "cuda/copies.h"

namespace openmps::client {
namespace {

enum class Named { kDevice, kHost, kAny };

// Registered memory is pinned memory under another address.
Side side_of(const Session& session, Named named, uint64_t address) {
  if (named != Named::kDevice) address = session.registered.device_address(address);
  switch (named) {
    case Named::kDevice: return {.address = address, .place = place_of_device(session, address)};
    case Named::kHost: return {.address = address, .place = place_of_host(session, address)};
    case Named::kAny: break;
  }
  return {.address = address, .place = place_of_any(session, address)};
}

CUresult copy_linear(Named to, uint64_t destination, Named from, uint64_t source, size_t bytes,
                     CUstream handle, bool wait) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  return transfer(*session, *stream, side_of(*session, to, destination),
                  side_of(*session, from, source), Box{.width = bytes}, wait);
}

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult resolve_side(const Session& session, const cuda::CopySide& named, const cuda::CopyBox& box,
                      Side* side) {
  switch (named.type) {
    case CU_MEMORYTYPE_HOST: *side = side_of(session, Named::kHost, named.address); break;
    case CU_MEMORYTYPE_DEVICE: *side = side_of(session, Named::kDevice, named.address); break;
    case CU_MEMORYTYPE_UNIFIED: *side = side_of(session, Named::kAny, named.address); break;
    case CU_MEMORYTYPE_ARRAY:
      side->array = session.arrays.find(named.array);
      if (side->array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      side->place = Place::kArray;
      side->x = named.x;
      side->y = named.y;
      side->z = named.z;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  side->pitch = named.pitch_of(box);
  side->slice = side->pitch * named.rows_of(box);
  if (named.x + box.width > side->pitch && box.height > 1) return CUDA_ERROR_INVALID_VALUE;
  // The place is that of the pointer; the box begins at an offset from it.
  side->address += named.z * side->slice + named.y * side->pitch + named.x;
  return CUDA_SUCCESS;
}

// Of a copy between contexts, whose addresses say by themselves where they are.
CUresult check_contexts(CUcontext to, CUcontext from) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  OPENMPS_CUDA_CHECK(find_context(*session, to, &context));
  return find_context(*session, from, &context);
}

CUresult copy_3d(const CUDA_MEMCPY3D* copy, CUstream stream, bool wait) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* work = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, stream, &work));
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Side destination;
  Side source;
  Box box;
  OPENMPS_CUDA_CHECK(read_copy_3d(*session, *context, *copy, &destination, &source, &box));
  return transfer(*session, *work, destination, source, box, wait);
}

CUresult copy_2d(const CUDA_MEMCPY2D* copy, CUstream stream, bool wait) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D wide = cuda::widen(*copy);
  return copy_3d(&wide, stream, wait);
}

}  // namespace

CUresult read_copy_3d(Session& session, const Context& context, const CUDA_MEMCPY3D& copy,
                      Side* destination, Side* source, Box* box) {
  if (copy.srcLOD != 0 || copy.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto most = static_cast<uint64_t>(
      session.device(context.device).attribute[CU_DEVICE_ATTRIBUTE_MAX_PITCH]);
  if (copy.dstPitch > most || copy.srcPitch > most) return CUDA_ERROR_INVALID_VALUE;
  const cuda::CopyBox whole = cuda::box_of(copy);
  *box = Box{whole.width, whole.height, whole.depth};
  OPENMPS_CUDA_CHECK(resolve_side(session, cuda::destination_of(copy), whole, destination));
  return resolve_side(session, cuda::source_of(copy), whole, source);
}

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
