// SPDX-License-Identifier: Apache-2.0
// cuTexObject* and cuSurfObject*: implementations behind the generated entry points, on the
// program's threads. What the program gets is the driver's own value, because kernels use it.
#include <optional>

#include "api/client_handlers.h"
#include "client/memory/array.h"
#include "client/session/enter.h"
#include "cuda/arrays.h"
#include "cuda/box.h"

namespace openmps::client {
namespace {

using wire::ImageKind;

bool is_session_memory(Session& session, uint64_t address, uint64_t bytes) {
  return session.memory.contains(address, bytes) || session.pinned.contains(address, bytes) ||
         session.registered.contains(address, bytes, false);
}

// As an H200 tells them apart.
CUresult no_array(bool null) { return null ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE; }

// The resource by ids and addresses that the worker knows.
CUresult read_resource(Session& session, const CUDA_RESOURCE_DESC& resource,
                       wire::ImageCreate* request) {
  request->type = static_cast<uint32_t>(resource.resType);
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const Array* array = session.arrays.find(resource.res.array.hArray);
      if (array == nullptr) return no_array(resource.res.array.hArray == nullptr);
      request->array = array->id;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const MipmappedArray* array =
          session.arrays.mipmapped.find(resource.res.mipmap.hMipmappedArray);
      if (array == nullptr) return no_array(resource.res.mipmap.hMipmappedArray == nullptr);
      request->mipmapped = array->id;
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      request->address = session.registered.device_address(linear.devPtr);
      request->bytes = linear.sizeInBytes;
      request->format = static_cast<uint32_t>(linear.format);
      request->channels = linear.numChannels;
      return is_session_memory(session, request->address, request->bytes)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitched = resource.res.pitch2D;
      const uint64_t texel = cuda::texel_bytes(pitched.format, pitched.numChannels);
      request->address = session.registered.device_address(pitched.devPtr);
      request->format = static_cast<uint32_t>(pitched.format);
      request->channels = pitched.numChannels;
      request->width = pitched.width;
      request->height = pitched.height;
      request->pitch = pitched.pitchInBytes;
      const uint64_t bytes = cuda::span_of_box(cuda::bytes_of_row(pitched.width, texel),
                                               pitched.height, 1, pitched.pitchInBytes, 0);
      if (bytes == 0 || !is_session_memory(session, request->address, bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      return CUDA_SUCCESS;
    }
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult create(Session& session, Context& context, ImageKind kind, ImageObject image,
                unsigned long long* handle) {
  wire::ImageCreate request{};
  OPENMPS_CUDA_CHECK(read_resource(session, image.resource, &request));
  image.name = session.arrays.images.new_name();
  if (image.name == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  image.context = context.owner();
  request.image = image.name->id;
  request.kind = kind;
  request.device = context.wire_device;
  request.description = image.description;
  request.has_view = image.view.has_value() ? 1 : 0;
  request.view = image.view.value_or(CUDA_RESOURCE_VIEW_DESC{});
  wire::ImageCreate::Reply reply{};
  const CUresult result = session.channel.call(request, &reply);
  if (result != CUDA_SUCCESS) {
    session.arrays.images.drop_name(image.name);
    return result;
  }
  session.arrays.images.add(kind, reply.handle, image);
  *handle = reply.handle;
  return CUDA_SUCCESS;
}

// Does not wait for kernels that look at it (seen on an H200); the worker keeps it for them.
CUresult destroy(Session& session, ImageKind kind, uint64_t handle) {
  ImageObject image;
  if (!session.arrays.images.take(kind, handle, &image)) return CUDA_SUCCESS;  // as on an H200
  return session.arrays.destroy(image);
}

// What it was made of.
template <typename Value>
CUresult read(const Session& session, ImageKind kind, uint64_t handle, Value ImageObject::*part,
              Value* value) {
  ImageObject image;
  if (!session.arrays.images.find(kind, handle, &image)) return CUDA_ERROR_INVALID_VALUE;
  *value = image.*part;
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuTexObjectCreate(Session& session, Context& context, CUtexObject* pTexObject,
                           const CUDA_RESOURCE_DESC* pResDesc, const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  ImageObject image;
  image.resource = *pResDesc;
  image.description = *pTexDesc;
  if (pResViewDesc != nullptr) image.view = *pResViewDesc;
  return create(session, context, ImageKind::kTexture, image, pTexObject);
}

CUresult cuTexObjectDestroy(Session& session, Context&, CUtexObject texObject) {
  return destroy(session, ImageKind::kTexture, texObject);
}

CUresult cuTexObjectGetResourceDesc(Session& session, Context&, CUDA_RESOURCE_DESC* pResDesc,
                                    CUtexObject texObject) {
  return read(session, ImageKind::kTexture, texObject, &ImageObject::resource, pResDesc);
}

CUresult cuTexObjectGetTextureDesc(Session& session, Context&, CUDA_TEXTURE_DESC* pTexDesc,
                                   CUtexObject texObject) {
  return read(session, ImageKind::kTexture, texObject, &ImageObject::description, pTexDesc);
}

CUresult cuTexObjectGetResourceViewDesc(Session& session, Context&,
                                        CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
  OPENMPS_CUDA_CHECK(read(session, ImageKind::kTexture, texObject, &ImageObject::view, &view));
  if (!view.has_value()) return CUDA_ERROR_INVALID_VALUE;
  *pResViewDesc = *view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(Session& session, Context& context, CUsurfObject* pSurfObject,
                            const CUDA_RESOURCE_DESC* pResDesc) {
  if (pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) return CUDA_ERROR_INVALID_VALUE;
  ImageObject image;
  image.resource = *pResDesc;
  return create(session, context, ImageKind::kSurface, image, pSurfObject);
}

CUresult cuSurfObjectDestroy(Session& session, Context&, CUsurfObject surfObject) {
  return destroy(session, ImageKind::kSurface, surfObject);
}

CUresult cuSurfObjectGetResourceDesc(Session& session, Context&, CUDA_RESOURCE_DESC* pResDesc,
                                     CUsurfObject surfObject) {
  return read(session, ImageKind::kSurface, surfObject, &ImageObject::resource, pResDesc);
}

}  // namespace impl
}  // namespace openmps::client
