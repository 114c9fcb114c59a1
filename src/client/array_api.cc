// SPDX-License-Identifier: Apache-2.0
// cuArray*, cuMipmappedArray* and the copies of rows of arrays: implementations behind the
// generated entry points, on the program's threads.
#include "api/client_impl.h"
#include "client/array.h"
#include "client/stream.h"
#include "client/thread_state.h"

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
  *array = (*session)->mipmapped_arrays.find(handle);
  return *array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// One row between an array and linear memory, or another array; offsets and lengths in bytes.
struct RowSide {
  CUmemorytype type = CU_MEMORYTYPE_ARRAY;
  uint64_t address = 0;
  CUarray array = nullptr;
  size_t offset = 0;
};
RowSide row_of(CUarray array, size_t offset) { return {CU_MEMORYTYPE_ARRAY, 0, array, offset}; }
RowSide host_row(const void* host) {
  return {CU_MEMORYTYPE_HOST, reinterpret_cast<uint64_t>(host), nullptr, 0};
}
RowSide device_row(CUdeviceptr device) { return {CU_MEMORYTYPE_DEVICE, device, nullptr, 0}; }

CUDA_MEMCPY3D box_of(const RowSide& to, const RowSide& from, size_t bytes) {
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = from.type;
  box.srcHost = reinterpret_cast<const void*>(from.address);
  box.srcDevice = from.address;
  box.srcArray = from.array;
  box.srcXInBytes = from.offset;
  box.dstMemoryType = to.type;
  box.dstHost = reinterpret_cast<void*>(to.address);
  box.dstDevice = to.address;
  box.dstArray = to.array;
  box.dstXInBytes = to.offset;
  box.WidthInBytes = bytes;
  box.Height = 1;
  box.Depth = 1;
  return box;
}

CUresult copy_row(const RowSide& to, const RowSide& from, size_t bytes) {
  const CUDA_MEMCPY3D box = box_of(to, from, bytes);
  return impl::cuMemcpy3D_v2(&box);
}
CUresult copy_row(const RowSide& to, const RowSide& from, size_t bytes, CUstream stream) {
  const CUDA_MEMCPY3D box = box_of(to, from, bytes);
  return impl::cuMemcpy3DAsync_v2(&box, stream);
}

}  // namespace

namespace impl {

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Array* array = nullptr;
  OPENMPS_CUDA_CHECK(create_array(*session, *context, *pAllocateArray, &array));
  *pHandle = array->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR wide{pAllocateArray->Width,  pAllocateArray->Height,      0,
                                     pAllocateArray->Format, pAllocateArray->NumChannels, 0};
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
  const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor;
  *pArrayDescriptor = {d.Width, d.Height, d.Format, d.NumChannels};
  return CUDA_SUCCESS;
}

// Waits for the GPU, as cuMemFree does: queued kernels may still look at it.
CUresult cuArrayDestroy(CUarray hArray) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  Array* array = session->arrays.find(hArray);
  if (array == nullptr || array->whole != 0) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(synchronize(*session, nullptr));
  return destroy_array(*session, array);
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
  OPENMPS_CUDA_CHECK(
      get_part(*session, *array->context, *array, {.whole = array->id, .index = planeIdx}, &plane));
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
      create_mipmapped_array(*session, *context, *pMipmappedArrayDesc, numMipmapLevels, &array));
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
  OPENMPS_CUDA_CHECK(
      get_part(*session, *array->context, *array, {.mipmapped = array->id, .index = level}, &part));
  *pLevelArray = part->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  MipmappedArray* array = session->mipmapped_arrays.find(hMipmappedArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(synchronize(*session, nullptr));
  return destroy_mipmapped_array(*session, array);
}

// ---- Copies of a row ----------------------------------------------------------------------------

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return copy_row(row_of(dstArray, dstOffset), host_row(srcHost), ByteCount);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return copy_row(row_of(dstArray, dstOffset), host_row(srcHost), ByteCount, hStream);
}
CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return copy_row(host_row(dstHost), row_of(srcArray, srcOffset), ByteCount);
}
CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return copy_row(host_row(dstHost), row_of(srcArray, srcOffset), ByteCount, hStream);
}
CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return copy_row(row_of(dstArray, dstOffset), device_row(srcDevice), ByteCount);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_row(device_row(dstDevice), row_of(srcArray, srcOffset), ByteCount);
}
CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return copy_row(row_of(dstArray, dstOffset), row_of(srcArray, srcOffset), ByteCount);
}

}  // namespace impl
}  // namespace openmps::client
