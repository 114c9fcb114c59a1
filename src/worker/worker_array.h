// SPDX-License-Identifier: Apache-2.0
// Arrays, texture objects and surface objects of a session. Arrays count against its limit of
// device memory; an array lives until the last object that shows it has gone, so that a kernel
// never reads memory that has become somebody else's. Session's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "wire/array_commands.h"
#include "worker/object_table.h"
#include "worker/reply_writer.h"
#include "worker/retirement.h"
#include "worker/session_core.h"
#include "worker/worker_memory.h"
#include "worker/worker_stream.h"

namespace openmps::worker {

class Arrays {
 public:
  Arrays(SessionCore& core, Streams& streams, SessionMemory& memory, Retirement& retirement)
      : core_(core), streams_(streams), memory_(memory), retirement_(retirement) {}

  // CUDA_ERROR_OUT_OF_MEMORY beyond the client's limit; what the driver says of the description.
  Status create(const wire::ArrayCreate& command);
  Status part(const wire::ArrayPart& command, ReplyWriter& reply);
  // Kernels in flight may still look at what goes: the driver's object is given back once they have
  // ended.
  Status destroy(wire::Id array);
  Status destroy_mipmapped(wire::Id array);

  // Linear operands outside of the session's memory are violations; whether a box fits its array is
  // the driver's to judge.
  Status copy(const wire::ArrayCopy& command);
  // The same copy for a graph's node, which keeps its arrays. Whether linear operands are the
  // session's is left to the caller.
  using Kept = std::array<std::shared_ptr<const void>, 2>;
  Status describe(const wire::ArrayCopy& command, CUDA_MEMCPY3D* box, Kept* kept) const;

  Status create_image(const wire::ImageCreate& command, ReplyWriter& reply);
  // Likewise.
  Status destroy_image(wire::Id image);

  void release_all();

 private:
  // What the driver allocated: shared by the array, its parts and the objects that show it.
  class Storage;
  struct Array {
    CUarray handle = nullptr;
    uint32_t device = 0;
    std::shared_ptr<Storage> storage;
    bool is_part = false;
  };
  struct Mipmapped {
    CUmipmappedArray handle = nullptr;
    uint32_t device = 0;
    std::shared_ptr<Storage> storage;
  };
  struct Image {
    wire::ImageKind kind = wire::ImageKind::kTexture;
    uint64_t handle = 0;
    uint32_t device = 0;
    std::shared_ptr<Storage> storage;  // null: linear memory
  };

  Status read_resource(const wire::ImageCreate& command, CUDA_RESOURCE_DESC* resource,
                       std::shared_ptr<Storage>* storage) const;
  Status check_linear(const wire::ArraySide& side, const wire::ArrayCopy& copy,
                      const Stream& stream, const char* role, bool writable);
  void drop_parts(const std::shared_ptr<Storage>& storage);
  void retire(std::shared_ptr<Storage> storage);
  void release(const Image& image);

  SessionCore& core_;
  Streams& streams_;
  SessionMemory& memory_;
  Retirement& retirement_;
  ObjectTable<Array> arrays_{"array"};
  ObjectTable<Mipmapped> mipmapped_{"mipmapped array"};
  ObjectTable<Image> images_{"texture or surface object", wire::kMaxImageObjects};
};

}  // namespace openmps::worker
