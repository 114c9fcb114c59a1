// SPDX-License-Identifier: Apache-2.0
// cuArray*, cuMipmappedArray* and the copies of rows of arrays: implementations behind the
// generated entry points, on the program's threads.
#include "api/client_handlers.h"
#include "client/memory/array.h"
#include "client/session/enter.h"
#include "cuda/arrays.h"
#include "cuda/copies.h"

namespace openmps::client {
namespace {

CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes) {
  const CUDA_MEMCPY3D row = cuda::copy_between(to, from, {.width = bytes});
  return impl::cuMemcpy3D_v2(&row);
}
CUresult copy_row(const cuda::CopySide& to, const cuda::CopySide& from, size_t bytes,
                  CUstream stream) {
  const CUDA_MEMCPY3D row = cuda::copy_between(to, from, {.width = bytes});
  return impl::cuMemcpy3DAsync_v2(&row, stream);
}

}  // namespace

namespace impl {

CUresult cuArray3DCreate_v2(Session& session, Context& context, CUarray* pHandle,
                            const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  Array* array = nullptr;
  OPENMPS_CUDA_CHECK(session.arrays.create(context, *pAllocateArray, &array));
  *pHandle = array->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR wide = cuda::widen(*pAllocateArray);
  return impl::cuArray3DCreate_v2(pHandle, &wide);
}

// Waits for the GPU, as cuMemFree does: queued kernels may still look at it.
CUresult cuArrayDestroy(Session& session, Context&, Array& array) {
  if (array.whole != 0) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(session.synchronize(nullptr));
  return session.arrays.destroy(&array);
}

CUresult cuArrayGetPlane(Session& session, Context&, CUarray* pPlaneArray, Array& array,
                         unsigned int planeIdx) {
  Array* plane = nullptr;
  OPENMPS_CUDA_CHECK(session.arrays.get_part(*array.context, array,
                                             {.whole = array.id, .index = planeIdx}, &plane));
  *pPlaneArray = plane->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(Session& session, Context& context, CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  if (numMipmapLevels == 0) return CUDA_ERROR_INVALID_VALUE;
  MipmappedArray* array = nullptr;
  OPENMPS_CUDA_CHECK(session.arrays.create(context, *pMipmappedArrayDesc, numMipmapLevels, &array));
  *pHandle = array->as<CUmipmappedArray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(Session& session, Context&, CUarray* pLevelArray,
                                  MipmappedArray& array, unsigned int level) {
  Array* part = nullptr;
  OPENMPS_CUDA_CHECK(session.arrays.get_part(*array.context, array,
                                             {.mipmapped = array.id, .index = level}, &part));
  *pLevelArray = part->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(Session& session, Context&, MipmappedArray& array) {
  OPENMPS_CUDA_CHECK(session.synchronize(nullptr));
  return session.arrays.destroy(&array);
}

// ---- Copies of a row ----------------------------------------------------------------------------

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return copy_row(cuda::row_side(dstArray, dstOffset), cuda::host_side(srcHost), ByteCount);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return copy_row(cuda::row_side(dstArray, dstOffset), cuda::host_side(srcHost), ByteCount,
                  hStream);
}
CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return copy_row(cuda::host_side(dstHost), cuda::row_side(srcArray, srcOffset), ByteCount);
}
CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return copy_row(cuda::host_side(dstHost), cuda::row_side(srcArray, srcOffset), ByteCount,
                  hStream);
}
CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return copy_row(cuda::row_side(dstArray, dstOffset), cuda::device_side(srcDevice), ByteCount);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_row(cuda::device_side(dstDevice), cuda::row_side(srcArray, srcOffset), ByteCount);
}
CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_row(cuda::row_side(dstArray, dstOffset), cuda::row_side(srcArray, srcOffset),
                  ByteCount);
}

}  // namespace impl
}  // namespace openmps::client
