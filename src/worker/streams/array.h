// SPDX-License-Identifier: Apache-2.0
// Arrays, texture objects and surface objects of a session. Arrays count against the session's
// limit of device memory. An array exists until the last object that refers to it has gone, so that
// no kernel reads memory that has been given to another session. Session's thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "wire/commands/array.h"
#include "worker/core/object_table.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/memory/memory.h"

namespace openmps::worker {

class Arrays {
  // The driver's allocation, shared by the array, its parts and the objects that refer to it.
  class Storage;
  struct Array;

 public:
  Arrays(SessionCore& core, SessionMemory& memory) : core_(core), memory_(memory) {}

  // CUDA_ERROR_OUT_OF_MEMORY beyond the client's limit; what the driver says of the description.
  Status handle(const wire::ArrayCreate& command);
  Status handle(const wire::ArrayPart& command, const Array* whole, Storage* mipmapped,
                ReplyTo<wire::ArrayPart> reply);
  // Kernels in flight may still read the array: the driver's object is given back when they have
  // ended.
  Status handle(const wire::ArrayDestroy& command);
  Status handle(const wire::MipmappedDestroy& command);

  // The driver's array, and the object that owns it. A violation: there is none.
  Status find(wire::Id id, CUarray* handle, std::shared_ptr<const void>* kept) const;

  Status handle(const wire::ImageCreate& command, const Array* array, Storage* mipmapped,
                ReplyTo<wire::ImageCreate> reply);
  // The driver's object is given back when kernels in flight have ended.
  Status handle(const wire::ImageDestroy& command);

  [[nodiscard]] const auto& arrays() const { return arrays_; }
  [[nodiscard]] const auto& mipmapped() const { return mipmapped_; }
  [[nodiscard]] const auto& images() const { return images_; }
  void release_all();

 private:
  struct Array {
    CUarray handle = nullptr;
    std::shared_ptr<Storage> storage;
    bool is_part = false;
  };
  struct Image {
    wire::ImageKind kind = wire::ImageKind::kTexture;
    uint64_t handle = 0;
    uint32_t device = 0;
    std::shared_ptr<Storage> storage;  // null: linear memory
  };

  Status read_resource(const wire::ImageCreate& command, const Array* array, Storage* mipmapped,
                       CUDA_RESOURCE_DESC* resource, std::shared_ptr<Storage>* storage) const;
  void drop_parts(const std::shared_ptr<Storage>& storage);
  void retire(std::shared_ptr<Storage> storage);
  void release(const Image& image);

  SessionCore& core_;
  SessionMemory& memory_;
  ObjectTable<Array> arrays_{"array"};
  ObjectTable<Storage, std::shared_ptr<Storage>> mipmapped_{"mipmapped array"};
  ObjectTable<Image> images_{"texture or surface object", wire::kMaxImageObjects};
};

}  // namespace openmps::worker
