// SPDX-License-Identifier: Apache-2.0
// Arrays, texture objects and surface objects. See array.h.
#include "client/memory/array.h"

#include <vector>

#include "base/mutex.h"
#include "client/check.h"
#include "client/objects.h"
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

}  // namespace

void ImageObjects::add(wire::ImageKind kind, uint64_t handle, const ImageObject& image) {
  const MutexLock guard(lock_);
  images_[{kind, handle}] = image;
}

bool ImageObjects::find(wire::ImageKind kind, uint64_t handle, ImageObject* image) const {
  const MutexLock guard(lock_);
  const auto found = images_.find({kind, handle});
  if (found == images_.end()) return false;
  *image = found->second;
  return true;
}

bool ImageObjects::take(wire::ImageKind kind, uint64_t handle, ImageObject* image) {
  const MutexLock guard(lock_);
  const auto found = images_.extract({kind, handle});
  if (found.empty()) return false;
  *image = found.mapped();
  return true;
}

bool ImageObjects::take_any(const Context* context, ImageObject* image) {
  const MutexLock guard(lock_);
  for (auto it = images_.begin(); it != images_.end(); ++it) {
    if (it->second.context != context) continue;
    *image = it->second;
    images_.erase(it);
    return true;
  }
  return false;
}

// Make the handle invalid and give the id back, once the worker has been told.
template <typename Command, typename T>
CUresult Arrays::end(HandleTable<T>& table, T* object) {
  if (!table.retire(object)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = channel_.push(Command{object->id});
  table.recycle(object);
  return result;
}

// The worker drops them by itself.
void Arrays::forget_parts(uint64_t whole) {
  for_each([&](Array& array) {
    if (array.whole == whole && retire(&array)) recycle(&array);
  });
}

CUresult Arrays::create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Array** made) {
  return make(made, [&](Array& array) {
    array.context = context.owner();
    array.descriptor = descriptor;
    array.texel_bytes = cuda::texel_bytes(descriptor.Format, descriptor.NumChannels);
    wire::ArrayCreate request = creation_of(context, descriptor);
    request.array = array.id;
    return memory_.retry_after_reclaim([&] { return channel_.call(request); });
  });
}

CUresult Arrays::create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                        uint32_t levels, MipmappedArray** made) {
  return mipmapped.make(made, [&](MipmappedArray& array) {
    array.context = context.owner();
    array.descriptor = descriptor;
    wire::ArrayCreate request = creation_of(context, descriptor);
    request.mipmapped = array.id;
    request.levels = levels;
    return memory_.retry_after_reclaim([&] { return channel_.call(request); });
  });
}

CUresult Arrays::get_part(Context& context, const Object& whole, wire::ArrayPart request,
                          Array** made) {
  *made = nullptr;
  for_each([&](Array& array) {
    if (array.whole == whole.handle && array.part == request.index) *made = &array;
  });
  if (*made != nullptr) return CUDA_SUCCESS;
  return make(made, [&](Array& array) {
    wire::ArrayPart::Reply reply{};
    request.array = array.id;
    OPENMPS_CUDA_CHECK(channel_.call(request, &reply));
    array.context = context.owner();
    array.descriptor = {reply.width,    reply.height,
                        reply.depth,    static_cast<CUarray_format>(reply.format),
                        reply.channels, reply.flags};
    array.texel_bytes = cuda::texel_bytes(array.descriptor.Format, reply.channels);
    array.whole = whole.handle;
    array.part = request.index;
    return CUDA_SUCCESS;
  });
}

CUresult Arrays::destroy(Array* array) {
  forget_parts(array->handle);
  return end<wire::ArrayDestroy>(*this, array);
}

CUresult Arrays::destroy(MipmappedArray* array) {
  forget_parts(array->handle);
  return end<wire::MipmappedDestroy>(mipmapped, array);
}

CUresult Arrays::destroy(const ImageObject& image) {
  const CUresult result = channel_.push(wire::ImageDestroy{image.name->id});
  images.drop_name(image.name);
  return result;
}

void Arrays::destroy_of(const Context& context) {
  ImageObject image;
  while (images.take_any(&context, &image)) {
    if (destroy(image) != CUDA_SUCCESS) return;
  }
  // Collected first: destroying an array also retires its parts, which changes the table.
  std::vector<Array*> arrays;
  for_each([&](Array& array) {
    if (array.context == &context && array.whole == 0) arrays.push_back(&array);
  });
  for (Array* array : arrays) {
    if (destroy(array) != CUDA_SUCCESS) return;
  }
  mipmapped.for_each([&](MipmappedArray& array) {
    if (array.context == &context) static_cast<void>(destroy(&array));
  });
}

}  // namespace openmps::client
