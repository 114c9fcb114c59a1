// SPDX-License-Identifier: Apache-2.0
// cuArray* and cuMipmappedArray*: implementations behind the generated entry points, on the
// program's threads.
#include <algorithm>

#include "api/client_handlers.h"
#include "client/memory/array.h"
#include "client/session/enter.h"
#include "cuda/arrays.h"

namespace openmps::client {
namespace impl {

CUresult cuArray3DCreate_v2(Session& session, Context& context, CUarray* pHandle,
                            const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  Array* array = nullptr;
  OPENMPS_CUDA_CHECK(session.arrays.create(context, *pAllocateArray, &array));
  *pHandle = array->as<CUarray>();
  return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return impl::cuArray3DCreate_v2(pHandle, nullptr);
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
  MipmappedArray* array = nullptr;
  OPENMPS_CUDA_CHECK(
      session.arrays.create(context, *pMipmappedArrayDesc, std::max(numMipmapLevels, 1u), &array));
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

}  // namespace impl
}  // namespace openmps::client
