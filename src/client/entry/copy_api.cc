// SPDX-License-Identifier: Apache-2.0
// cuMemcpy*: each call names its two sides and a box, transfer() does the rest. Implementations
// behind the generated entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/session/enter.h"
#include "client/session/graph_params.h"
#include "client/session/submit.h"
#include "cuda/copies.h"

namespace openmps::client {
namespace {

using Named = Places::Named;

// A copy that was checked and copies something.
struct Transfer {
  const Copy& copy;
  bool wait;

  CUresult describe(Session&, Work* work) const {
    // What ends before the call returns can't be in a graph; between device memory nothing does.
    const bool between_devices = on_device(copy.destination) && on_device(copy.source);
    if (wait && !between_devices) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *work = copy_work(copy);
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    if (!session.managed.any()) [[likely]] {
      return session.transfers.copy(stream, copy, wait);
    }
    OPENMPS_CUDA_CHECK(session.managed.send(stream));
    OPENMPS_CUDA_CHECK(session.transfers.copy(stream, copy, wait));
    const bool on_host = !on_device(copy.destination) && !on_device(copy.source);
    return wait || on_host ? session.managed.fetch() : CUDA_SUCCESS;
  }
};

// Whatever is asked for, checked and copied in stream order.
CUresult transfer(Session& session, Stream& stream, const Copy& copy, bool wait) {
  const Box& box = copy.box;
  if (box.empty()) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(session.places.check(copy));
  if (box.height * box.depth == 1 || !is_contiguous(copy)) {
    return submit(session, stream, Transfer{copy, wait});
  }
  const Copy row{copy.destination, copy.source, {.width = box.width * box.height * box.depth}};
  return submit(session, stream, Transfer{row, wait});
}

CUresult copy_linear(Named to, uint64_t destination, Named from, uint64_t source, size_t bytes,
                     CUstream handle, bool wait) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  const Copy copy{session->places.side_of(to, destination),
                  session->places.side_of(from, source),
                  {.width = bytes}};
  return transfer(*session, *stream, copy, wait);
}

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult copy_3d(const CUDA_MEMCPY3D* named, CUstream handle, bool wait) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  if (named == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  OPENMPS_CUDA_CHECK(session->places.read(*context, *named, &copy));
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
