// SPDX-License-Identifier: Apache-2.0
// Arrays, texture and surface objects. Any thread.
#include "cuda/arrays.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/memory/array.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// Run body(const Array&) on a live array.
template <typename Body>
CUresult with_array(CUarray handle, Body&& body) {
  return with_context([&](Caller& caller) -> Status {
    std::shared_ptr<Array> array = caller.driver.arrays.find(handle);
    return array == nullptr ? invalid_handle("not an array") : body(*array);
  });
}

template <typename Body>
CUresult with_mipmapped_array(CUmipmappedArray handle, Body&& body) {
  return with_context([&](Caller& caller) -> Status {
    std::shared_ptr<MipmappedArray> array = caller.driver.mipmapped_arrays.find(handle);
    return array == nullptr ? invalid_handle("not a mipmapped array") : body(*array);
  });
}

template <typename Body>
CUresult with_texture(CUtexObject handle, Body&& body) {
  return with_context([&](Caller& caller) -> Status {
    std::shared_ptr<TextureObject> object = caller.driver.texture_objects.find(handle);
    return object == nullptr ? invalid_value("not a texture object") : body(*object);
  });
}

}  // namespace

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return with_context([&](Caller& caller) -> Status {
    if (pHandle == nullptr || pAllocateArray == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    return deliver_handle(create_array(*caller.context, *pAllocateArray), pHandle);
  });
}

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return cuArray3DCreate_v2(pHandle, nullptr);
  const CUDA_ARRAY3D_DESCRIPTOR wide = cuda::widen(*pAllocateArray);
  return cuArray3DCreate_v2(pHandle, &wide);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return with_array(hArray, [&](const Array& array) {
    if (pArrayDescriptor == nullptr) return no_result();
    *pArrayDescriptor = array.descriptor;
    return Status();
  });
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return with_array(hArray, [&](const Array& array) {
    if (pArrayDescriptor == nullptr) return no_result();
    *pArrayDescriptor = cuda::narrow(array.descriptor);
    return Status();
  });
}

CUresult cuArrayDestroy(CUarray hArray) {
  return with_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    return destroy_array(caller.driver, hArray);
  });
}

// The four questions about arrays whose memory is mapped later, which do not exist here.
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray array, CUdevice) {
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_array(array,
                    [](const Array&) { return invalid_value("the array has memory of its own"); });
}
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray array) {
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_array(array, [](const Array&) { return invalid_value("the array is not sparse"); });
}
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray mipmap, CUdevice) {
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_mipmapped_array(mipmap, [](const MipmappedArray&) {
    return invalid_value("the array has memory of its own");
  });
}
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray mipmap) {
  return with_mipmapped_array(
      mipmap, [](const MipmappedArray&) { return invalid_value("the array is not sparse"); });
}

CUresult cuArrayGetPlane(CUarray*, CUarray hArray, unsigned int) {
  return with_array(hArray, [](const Array&) { return invalid_value("the array has no planes"); });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  return with_context([&](Caller& caller) -> Status {
    if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    return deliver_handle(
        create_mipmapped_array(*caller.context, *pMipmappedArrayDesc, numMipmapLevels), pHandle);
  });
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  return with_mipmapped_array(hMipmappedArray, [&](const MipmappedArray& array) {
    if (pLevelArray == nullptr) return no_result();
    if (level >= array.levels.size()) return invalid_value("no such level");
    *pLevelArray = array.levels[level]->handle;
    return Status();
  });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  return with_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    return destroy_mipmapped_array(caller.driver, hMipmappedArray);
  });
}

// ---- Texture objects ----------------------------------------------------------------------------

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  return with_context([&](Caller& caller) -> Status {
    if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    Result<std::shared_ptr<TextureObject>> object =
        create_texture(*caller.context, *pResDesc, *pTexDesc, pResViewDesc);
    if (!object.ok()) return object.status();
    const CUtexObject handle = caller.driver.texture_objects.add(*object);
    if (handle == 0) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many texture objects");
    *pTexObject = handle;
    return Status();
  });
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return with_context([&](Caller& caller) -> Status {
    destroy_texture(caller.driver, texObject);
    return Status();
  });
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return with_texture(texObject, [&](const TextureObject& object) {
    if (pResDesc == nullptr) return no_result();
    *pResDesc = object.resource;
    return Status();
  });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return with_texture(texObject, [&](const TextureObject& object) {
    if (pTexDesc == nullptr) return no_result();
    *pTexDesc = object.description;
    return Status();
  });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  return with_texture(texObject, [&](const TextureObject& object) {
    if (pResViewDesc == nullptr) return no_result();
    if (!object.has_view) return invalid_value("the texture object has no view");
    *pResViewDesc = object.view;
    return Status();
  });
}

// ---- Surface objects ----------------------------------------------------------------------------

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  return with_context([&](Caller& caller) -> Status {
    if (pSurfObject == nullptr || pResDesc == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    Result<std::shared_ptr<SurfaceObject>> object = create_surface(*caller.context, *pResDesc);
    if (!object.ok()) return object.status();
    const CUsurfObject handle = caller.driver.surface_objects.add(*object);
    if (handle == 0) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many surface objects");
    *pSurfObject = handle;
    return Status();
  });
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return with_context([&](Caller& caller) -> Status {
    destroy_surface(caller.driver, surfObject);
    return Status();
  });
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  return with_context([&](Caller& caller) -> Status {
    std::shared_ptr<SurfaceObject> object = caller.driver.surface_objects.find(surfObject);
    if (object == nullptr) return invalid_value("not a surface object");
    if (pResDesc == nullptr) return no_result();
    *pResDesc = object->resource;
    return Status();
  });
}
