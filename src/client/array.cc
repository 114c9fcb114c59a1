// SPDX-License-Identifier: Apache-2.0
// Arrays, texture objects and surface objects. See array.h.
#include "client/array.h"

#include <vector>

#include "client/session.h"
#include "cuda/arrays.h"

namespace openmps::client {
namespace {

wire::ArrayCreate creation_of(const Context& context, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return {.width = d.Width,
          .height = d.Height,
          .depth = d.Depth,
          .format = static_cast<uint32_t>(d.Format),
          .channels = d.NumChannels,
          .flags = d.Flags,
          .device = context.wire_device};
}

// Make the handle invalid and give the id back, once the worker has been told.
template <typename Command, typename T>
CUresult destroy(Session& session, HandleTable<T>& table, T* object) {
  if (!table.retire(object)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = session.channel.push(Command{object->id});
  table.recycle(object);
  return result;
}

// The worker drops them by itself.
void forget_parts(Session& session, uint64_t whole) {
  session.arrays.for_each([&](Array& array) {
    if (array.whole == whole && session.arrays.retire(&array)) session.arrays.recycle(&array);
  });
}

}  // namespace

void ImageObjects::add(wire::ImageKind kind, uint64_t handle, const ImageObject& image) {
  std::lock_guard guard(lock_);
  images_[{kind, handle}] = image;
}

bool ImageObjects::find(wire::ImageKind kind, uint64_t handle, ImageObject* image) const {
  std::lock_guard guard(lock_);
  const auto found = images_.find({kind, handle});
  if (found == images_.end()) return false;
  *image = found->second;
  return true;
}

bool ImageObjects::take(wire::ImageKind kind, uint64_t handle, ImageObject* image) {
  std::lock_guard guard(lock_);
  const auto found = images_.find({kind, handle});
  if (found == images_.end()) return false;
  *image = found->second;
  images_.erase(found);
  return true;
}

bool ImageObjects::take_any(const Context* context, ImageObject* image) {
  std::lock_guard guard(lock_);
  for (auto it = images_.begin(); it != images_.end(); ++it) {
    if (it->second.context != context) continue;
    *image = it->second;
    images_.erase(it);
    return true;
  }
  return false;
}

CUresult create_array(Session& session, Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                      Array** made) {
  Array* array = session.arrays.allocate();
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::ArrayCreate request = creation_of(context, descriptor);
  request.array = array->id;
  const CUresult result = session.channel.call(request);
  if (result != CUDA_SUCCESS) {
    session.arrays.recycle(array);
    return result;
  }
  array->context = context.owner();
  array->descriptor = descriptor;
  array->texel_bytes = cuda::texel_bytes(descriptor.Format, descriptor.NumChannels);
  session.arrays.publish(array);
  *made = array;
  return CUDA_SUCCESS;
}

CUresult create_mipmapped_array(Session& session, Context& context,
                                const CUDA_ARRAY3D_DESCRIPTOR& descriptor, uint32_t levels,
                                MipmappedArray** made) {
  MipmappedArray* array = session.mipmapped_arrays.allocate();
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::ArrayCreate request = creation_of(context, descriptor);
  request.mipmapped = array->id;
  request.levels = levels;
  const CUresult result = session.channel.call(request);
  if (result != CUDA_SUCCESS) {
    session.mipmapped_arrays.recycle(array);
    return result;
  }
  array->context = context.owner();
  array->descriptor = descriptor;
  session.mipmapped_arrays.publish(array);
  *made = array;
  return CUDA_SUCCESS;
}

CUresult get_part(Session& session, Context& context, const Object& whole, wire::ArrayPart request,
                  Array** made) {
  *made = nullptr;
  session.arrays.for_each([&](Array& array) {
    if (array.whole == whole.handle && array.part == request.index) *made = &array;
  });
  if (*made != nullptr) return CUDA_SUCCESS;
  Array* array = session.arrays.allocate();
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::ArrayPart::Reply reply{};
  request.array = array->id;
  const CUresult result = session.channel.call(request, &reply);
  if (result != CUDA_SUCCESS) {
    session.arrays.recycle(array);
    return result;
  }
  array->context = context.owner();
  array->descriptor = {reply.width,    reply.height,
                       reply.depth,    static_cast<CUarray_format>(reply.format),
                       reply.channels, reply.flags};
  array->texel_bytes = cuda::texel_bytes(array->descriptor.Format, reply.channels);
  array->whole = whole.handle;
  array->part = request.index;
  session.arrays.publish(array);
  *made = array;
  return CUDA_SUCCESS;
}

CUresult destroy_array(Session& session, Array* array) {
  forget_parts(session, array->handle);
  return destroy<wire::ArrayDestroy>(session, session.arrays, array);
}

CUresult destroy_mipmapped_array(Session& session, MipmappedArray* array) {
  forget_parts(session, array->handle);
  return destroy<wire::MipmappedDestroy>(session, session.mipmapped_arrays, array);
}

CUresult destroy_image(Session& session, const ImageObject& image) {
  const CUresult result = session.channel.push(wire::ImageDestroy{image.name->id});
  session.images.drop_name(image.name);
  return result;
}

void destroy_arrays_of(Session& session, const Context& context) {
  ImageObject image;
  while (session.images.take_any(&context, &image)) {
    if (destroy_image(session, image) != CUDA_SUCCESS) return;
  }
  // Not while visiting: destroying an array retires its parts, too.
  std::vector<Array*> arrays;
  session.arrays.for_each([&](Array& array) {
    if (array.context == &context && array.whole == 0) arrays.push_back(&array);
  });
  for (Array* array : arrays) {
    if (destroy_array(session, array) != CUDA_SUCCESS) return;
  }
  session.mipmapped_arrays.for_each([&](MipmappedArray& array) {
    if (array.context == &context) static_cast<void>(destroy_mipmapped_array(session, &array));
  });
}

}  // namespace openmps::client
