// SPDX-License-Identifier: Apache-2.0
// CUDA arrays, texture objects and surface objects as the program knows them: their descriptions,
// so that questions and checks need no round trip. Their memory is the driver's, in the worker. Any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "client/handle_table.h"
#include "client/link/channel.h"
#include "client/memory/memory.h"
#include "cuda/abi.h"
#include "wire/commands/array.h"

namespace openmps::client {

struct Context;

struct Array : Object {
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  uint64_t texel_bytes = 0;  // 0: a format whose texels are not of one size
  // Of a level or plane: the handle of what it is part of, and which part.
  uint64_t whole = 0;
  uint32_t part = 0;
};

struct MipmappedArray : Object {
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
};

// A texture or surface object; which of the two is in its key.
struct ImageObject {
  Object* name = nullptr;  // holds its wire id
  Context* context = nullptr;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC description{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
};

// By the driver's handle, which is what the program and its kernels hold.
class ImageObjects {
 public:
  // nullptr: the limit of objects is reached.
  Object* new_name() { return names_.allocate(); }
  void drop_name(Object* name) { names_.recycle(name); }
  void add(wire::ImageKind kind, uint64_t handle, const ImageObject& image);
  [[nodiscard]] bool find(wire::ImageKind kind, uint64_t handle, ImageObject* image) const;
  [[nodiscard]] bool take(wire::ImageKind kind, uint64_t handle, ImageObject* image);
  // One of the context's; false: there is none left.
  [[nodiscard]] bool take_any(const Context* context, ImageObject* image);

 private:
  mutable Mutex lock_{LockRank::kClientImages};
  std::map<std::pair<wire::ImageKind, uint64_t>, ImageObject> images_ GUARDED_BY(lock_);
  HandleTable<Object> names_{HandleKind::kImage, wire::kMaxImageObjects};
};

class Arrays : public HandleTable<Array> {
 public:
  Arrays(Channel& channel, DeviceMemory& memory)
      : HandleTable<Array>(HandleKind::kArray), channel_(channel), memory_(memory) {}

  HandleTable<MipmappedArray> mipmapped{HandleKind::kMipmappedArray};
  ImageObjects images;

  // Errors: CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED.
  [[nodiscard]] CUresult create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                Array** array);
  [[nodiscard]] CUresult create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                uint32_t levels, MipmappedArray** array);
  // The level or plane of `whole` that is asked for; repeated calls give one handle.
  // CUDA_ERROR_INVALID_VALUE: there is none.
  [[nodiscard]] CUresult get_part(Context& context, const Object& whole, wire::ArrayPart request,
                                  Array** array);
  // Nothing of the session uses it any more.
  [[nodiscard]] CUresult destroy(Array* array);
  [[nodiscard]] CUresult destroy(MipmappedArray* array);
  [[nodiscard]] CUresult destroy(const ImageObject& image);
  // What a context still has when it ends.
  void destroy_of(const Context& context);

 private:
  void forget_parts(uint64_t whole);
  template <typename Command, typename T>
  CUresult end(HandleTable<T>& table, T* object);

  Channel& channel_;
  DeviceMemory& memory_;
};

}  // namespace openmps::client
