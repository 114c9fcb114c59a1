// SPDX-License-Identifier: Apache-2.0
// cuArray*, cuMipmappedArray* and the copies of rows of arrays: implementations behind the
// generated entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/array.h"
#include "client/enter.h"
#include "cuda/arrays.h"
#include "cuda/copies.h"

namespace openmps::client {
namespace {

CUresult find_array(CUarray handle, Session** session, Array** array) {
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(session, &context));
  *array = (*session)->arrays.find(handle);
  return *array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult find_array(CUmipmappedArray handle, Session** session, MipmappedArray** array) {
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter(session, &context));
  *array = (*session)->arrays.mipmapped.find(handle);
  return *array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

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

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Array* array = nullptr;
  OPENMPS_CUDA_CHECK(session->arrays.create(*context, *pAllocateArray, &array));
  *pHandle = array->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR wide = cuda::widen(*pAllocateArray);
  return impl::cuArray3DCreate_v2(pHandle, &wide);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  Session* session = nullptr;
  Array* array = nullptr;
  OPENMPS_CUDA_CHECK(find_array(hArray, &session, &array));
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pArrayDescriptor = array->descriptor;
  return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  Session* session = nullptr;
  Array* array = nullptr;
  OPENMPS_CUDA_CHECK(find_array(hArray, &session, &array));
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pArrayDescriptor = cuda::narrow(array->descriptor);
  return CUDA_SUCCESS;
}

// Waits for the GPU, as cuMemFree does: queued kernels may still look at it.
CUresult cuArrayDestroy(CUarray hArray) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  Array* array = session->arrays.find(hArray);
  if (array == nullptr || array->whole != 0) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(session->synchronize(nullptr));
  return session->arrays.destroy(array);
}

// The memory of arrays comes with them here, so these four have no arrays to answer for.
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray hArray, CUdevice) {
  Session* session = nullptr;
  Array* array = nullptr;
  OPENMPS_CUDA_CHECK(find_array(hArray, &session, &array));
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray hArray) {
  Session* session = nullptr;
  Array* array = nullptr;
  OPENMPS_CUDA_CHECK(find_array(hArray, &session, &array));
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray mipmap, CUdevice) {
  Session* session = nullptr;
  MipmappedArray* array = nullptr;
  OPENMPS_CUDA_CHECK(find_array(mipmap, &session, &array));
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray mipmap) {
  Session* session = nullptr;
  MipmappedArray* array = nullptr;
  OPENMPS_CUDA_CHECK(find_array(mipmap, &session, &array));
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuArrayGetPlane(CUarray* pPlaneArray, CUarray hArray, unsigned int planeIdx) {
  Session* session = nullptr;
  Array* array = nullptr;
  Array* plane = nullptr;
  OPENMPS_CUDA_CHECK(find_array(hArray, &session, &array));
  if (pPlaneArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session->arrays.get_part(*array->context, *array,
                                              {.whole = array->id, .index = planeIdx}, &plane));
  *pPlaneArray = plane->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (pHandle == nullptr || pMipmappedArrayDesc == nullptr || numMipmapLevels == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MipmappedArray* array = nullptr;
  OPENMPS_CUDA_CHECK(
      session->arrays.create(*context, *pMipmappedArrayDesc, numMipmapLevels, &array));
  *pHandle = array->as<CUmipmappedArray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  Session* session = nullptr;
  MipmappedArray* array = nullptr;
  Array* part = nullptr;
  OPENMPS_CUDA_CHECK(find_array(hMipmappedArray, &session, &array));
  if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session->arrays.get_part(*array->context, *array,
                                              {.mipmapped = array->id, .index = level}, &part));
  *pLevelArray = part->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  MipmappedArray* array = session->arrays.mipmapped.find(hMipmappedArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(session->synchronize(nullptr));
  return session->arrays.destroy(array);
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
