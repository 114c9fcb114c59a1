// SPDX-License-Identifier: Apache-2.0
// Copies and fills of linear memory in all their spellings. Any thread.
#include "cuda/copies.h"
#include "softgpu/device/copy_issue.h"
#include "softgpu/device/copy_plan.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: the same

namespace {

constexpr bool kSynchronous = true;
constexpr bool kAsynchronous = false;

uint64_t as_address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Synchronous calls use the default stream that the entry point's variant stands for.
CUresult copy(uint64_t to, CopySide to_side, uint64_t from, CopySide from_side, size_t bytes,
              CUstream stream, bool synchronous) {
  return with_stream(stream, [&](Caller&, Stream& target) {
    return issue_copy(target, linear_copy(to, from, bytes), from_side, to_side, synchronous);
  });
}

CUresult copy_shaped(const CUDA_MEMCPY3D& parameters, CUstream stream, bool synchronous) {
  return with_stream(stream, [&](Caller& caller, Stream& target) -> Status {
    CopyShape shape;
    CopySide source;
    CopySide destination;
    OPENMPS_RETURN_IF_ERROR(
        read_copy_parameters(caller.driver, parameters, &shape, &source, &destination));
    return issue_copy(target, shape, source, destination, synchronous);
  });
}

CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes,
                  CUstream stream, bool synchronous) {
  return copy_shaped(cuda::copy_between(to, from, {.width = bytes}), stream, synchronous);
}

CUresult fill(uint64_t to, uint32_t value, uint32_t element, size_t pitch, size_t width,
              size_t height, CUstream stream, bool synchronous) {
  return with_stream(stream, [&](Caller&, Stream& target) -> Status {
    if (height > 1 && (pitch % element != 0 || pitch / element < width))
      return invalid_value("rows that do not fit their pitch");
    FillShape shape;
    shape.destination = to;
    shape.value = value;
    shape.element = element;
    shape.width = width;
    shape.height = height;
    shape.pitch = pitch;
    return issue_fill(target, shape, synchronous);
  });
}

// Addresses say all about a copy between contexts; both contexts have to be there all the same.
CUresult check_contexts(CUcontext to, CUcontext from) {
  return with_driver([&](Driver& driver) -> Status {
    if (driver.contexts.find(to) == nullptr || driver.contexts.find(from) == nullptr)
      return Status(CUDA_ERROR_INVALID_CONTEXT, "not a context");
    return Status();
  });
}

}  // namespace

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return copy(dst, CopySide::kUnified, src, CopySide::kUnified, ByteCount, nullptr, kSynchronous);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return copy(dst, CopySide::kUnified, src, CopySide::kUnified, ByteCount, hStream, kAsynchronous);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return copy(dstDevice, CopySide::kDevice, as_address(srcHost), CopySide::kHost, ByteCount,
              nullptr, kSynchronous);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return copy(dstDevice, CopySide::kDevice, as_address(srcHost), CopySide::kHost, ByteCount,
              hStream, kAsynchronous);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy(as_address(dstHost), CopySide::kHost, srcDevice, CopySide::kDevice, ByteCount,
              nullptr, kSynchronous);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy(as_address(dstHost), CopySide::kHost, srcDevice, CopySide::kDevice, ByteCount,
              hStream, kAsynchronous);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return copy(dstDevice, CopySide::kDevice, srcDevice, CopySide::kDevice, ByteCount, nullptr,
              kSynchronous);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return copy(dstDevice, CopySide::kDevice, srcDevice, CopySide::kDevice, ByteCount, hStream,
              kAsynchronous);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  CUresult result = check_contexts(dstContext, srcContext);
  if (result != CUDA_SUCCESS) return result;
  return copy(dstDevice, CopySide::kDevice, srcDevice, CopySide::kDevice, ByteCount, nullptr,
              kSynchronous);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  CUresult result = check_contexts(dstContext, srcContext);
  if (result != CUDA_SUCCESS) return result;
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.refuse(stream));
    return issue_copy(stream, linear_copy(dstDevice, srcDevice, ByteCount), CopySide::kDevice,
                      CopySide::kDevice, kAsynchronous);
  });
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return copy_row(cuda::row_side(dstArray, dstOffset), cuda::host_side(srcHost), ByteCount, nullptr,
                  kSynchronous);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return copy_row(cuda::row_side(dstArray, dstOffset), cuda::host_side(srcHost), ByteCount, hStream,
                  kAsynchronous);
}

CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return copy_row(cuda::host_side(dstHost), cuda::row_side(srcArray, srcOffset), ByteCount, nullptr,
                  kSynchronous);
}

CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return copy_row(cuda::host_side(dstHost), cuda::row_side(srcArray, srcOffset), ByteCount, hStream,
                  kAsynchronous);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return copy_row(cuda::row_side(dstArray, dstOffset), cuda::device_side(srcDevice), ByteCount,
                  nullptr, kSynchronous);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_row(cuda::device_side(dstDevice), cuda::row_side(srcArray, srcOffset), ByteCount,
                  nullptr, kSynchronous);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_row(cuda::row_side(dstArray, dstOffset), cuda::row_side(srcArray, srcOffset),
                  ByteCount, nullptr, kSynchronous);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* pCopy) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_shaped(cuda::widen(*pCopy), nullptr, kSynchronous);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* pCopy) { return cuMemcpy2D_v2(pCopy); }

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_shaped(cuda::widen(*pCopy), hStream, kAsynchronous);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* pCopy) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_shaped(*pCopy, nullptr, kSynchronous);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_shaped(*pCopy, hStream, kAsynchronous);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* pCopy) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_shaped(cuda::without_contexts(*pCopy), nullptr, kSynchronous);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  if (pCopy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return copy_shaped(cuda::without_contexts(*pCopy), hStream, kAsynchronous);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return fill(dstDevice, uc, 1, 0, N, 1, nullptr, kSynchronous);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return fill(dstDevice, us, 2, 0, N, 1, nullptr, kSynchronous);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return fill(dstDevice, ui, 4, 0, N, 1, nullptr, kSynchronous);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return fill(dstDevice, uc, 1, dstPitch, Width, Height, nullptr, kSynchronous);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  return fill(dstDevice, us, 2, dstPitch, Width, Height, nullptr, kSynchronous);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return fill(dstDevice, ui, 4, dstPitch, Width, Height, nullptr, kSynchronous);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return fill(dstDevice, uc, 1, 0, N, 1, hStream, kAsynchronous);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return fill(dstDevice, us, 2, 0, N, 1, hStream, kAsynchronous);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return fill(dstDevice, ui, 4, 0, N, 1, hStream, kAsynchronous);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  return fill(dstDevice, uc, 1, dstPitch, Width, Height, hStream, kAsynchronous);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  return fill(dstDevice, us, 2, dstPitch, Width, Height, hStream, kAsynchronous);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  return fill(dstDevice, ui, 4, dstPitch, Width, Height, hStream, kAsynchronous);
}
