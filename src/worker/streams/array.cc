// SPDX-License-Identifier: Apache-2.0
// Arrays, texture objects and surface objects of a session. See array.h.
#include "worker/streams/array.h"

#include <algorithm>
#include <new>
#include <vector>

#include "base/rounding.h"
#include "cuda/arrays.h"
#include "cuda/box.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// GPUs lay arrays out in tiles of 64 bytes by 8 rows, and hand out memory in pieces of 64 KiB. The
// driver does not say how much an array takes: this is what it is charged.
constexpr uint64_t kTileBytes = 64;
constexpr uint64_t kTileRows = 8;
constexpr uint64_t kPieceBytes = 64 * 1024;
constexpr uint64_t kLargestTexel = 16;

// Unknown formats count as the largest.
uint64_t texel_bytes(uint32_t format, uint64_t channels) {
  const auto channel = cuda::channel_of(static_cast<CUarray_format>(format));
  return channel ? channel->bytes * channels : kLargestTexel;
}

// At least one piece; ~0: larger than arrays can be.
uint64_t estimated_bytes(const wire::ArrayCreate& c) {
  // Far beyond every extent that a driver accepts, and small enough to multiply.
  constexpr uint64_t kMost = 1ull << 20;
  if (c.width > kMost || c.height > kMost || c.depth > kMost || c.channels > kLargestTexel) {
    return ~0ull;
  }
  const uint64_t row = round_up(c.width * texel_bytes(c.format, c.channels), kTileBytes);
  const uint64_t rows = c.height == 0 ? 1 : round_up(c.height, kTileRows);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(row * rows, std::max<uint64_t>(c.depth, 1), &bytes)) return ~0ull;
  // The levels of a mipmapped array together are at most twice its first one.
  if (c.levels > 1 && __builtin_mul_overflow(bytes, 2ull, &bytes)) return ~0ull;
  return bytes > ~0ull - kPieceBytes ? ~0ull : round_up(std::max<uint64_t>(bytes, 1), kPieceBytes);
}

}  // namespace

class Arrays::Storage : public std::enable_shared_from_this<Arrays::Storage> {
 public:
  Storage(SessionCore& core, SessionMemory& memory, uint32_t device, uint64_t bytes)
      : device(device), core_(core), memory_(memory), bytes_(bytes) {}
  ~Storage() {
    try {
      destroy();
    } catch (const std::bad_alloc&) {
      // The array is kept until the worker is replaced: destroying it now could stop all sessions.
      memory_.refund(device, bytes_);
    }
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Before the last holder goes. May find no memory; it is called again then.
  void destroy() {
    if (bytes_ == 0) return;
    const auto refund = [&memory = memory_, device = device, bytes = bytes_] {
      memory.refund(device, bytes);
    };
    if (array == nullptr && mipmapped == nullptr) {
      refund();  // the array was never made
    } else {
      // After a fault a context may refuse to become current; releasing is tried all the same.
      static_cast<void>(core_.use(device).ok());
      core_.releases.add_quiescent(given_up(),
                                   {GatedCall::kArrayDestroy, device, core_.context({device}),
                                    [&driver = core_.driver, array = array, mipmapped = mipmapped] {
                                      return mipmapped != nullptr
                                                 ? driver.cuMipmappedArrayDestroy(mipmapped)
                                                 : driver.cuArrayDestroy(array);
                                    }},
                                   refund);
    }
    bytes_ = 0;
  }

  [[nodiscard]] GivenUp given_up() const { return {wire::ReturnKind::kArray, 0, bytes_}; }

  const uint32_t device;
  CUarray array = nullptr;  // this or `mipmapped`
  CUmipmappedArray mipmapped = nullptr;

 private:
  SessionCore& core_;
  SessionMemory& memory_;
  uint64_t bytes_;  // 0: given back
};

Status Arrays::handle(const wire::ArrayCreate& command) {
  core_.releases.sweep();  // memory that the session has given up and no longer uses is free again
  const bool plain = command.array != 0;
  if (plain == (command.mipmapped != 0)) return violation("an array of both kinds, or of none");
  // Sparse arrays: memory that is mapped later would have to be the session's own.
  constexpr uint32_t kMappedLater = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
  if ((command.flags & kMappedLater) != 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "an array without memory of its own");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  const uint64_t bytes = estimated_bytes(command);
  if (bytes == ~0ull) return Status(CUDA_ERROR_INVALID_VALUE, "the extent of an array");
  OPENMPS_RETURN_IF_ERROR(memory_.charge(command.device, bytes));
  auto storage = std::make_shared<Storage>(core_, memory_, command.device, bytes);
  const CUDA_ARRAY3D_DESCRIPTOR descriptor{
      command.width,    command.height, command.depth, static_cast<CUarray_format>(command.format),
      command.channels, command.flags};
  const auto make = [&] {
    return plain ? core_.driver.cuArray3DCreate_v2(&storage->array, &descriptor)
                 : core_.driver.cuMipmappedArrayCreate(&storage->mipmapped, &descriptor,
                                                       command.levels);
  };
  CUresult result = core_.gate.run_now(GatedCall::kArrayCreate, make);
  const auto more_memory = [&] { return core_.releases.wait() || memory_.give_back_kept(); };
  while (result == CUDA_ERROR_OUT_OF_MEMORY && more_memory()) {
    result = core_.gate.run_now(GatedCall::kArrayCreate, make);
  }
  OPENMPS_RETURN_IF_ERROR(check(result, "the creation of an array"));
  if (!plain) return mipmapped_.insert(command.mipmapped, std::move(storage));
  return arrays_.insert(command.array,
                        std::make_unique<Array>(Array{storage->array, storage, false}));
}

Status Arrays::handle(const wire::ArrayPart& command, const Array* whole, Storage* mipmapped,
                      ReplyTo<wire::ArrayPart> reply) {
  if ((whole == nullptr) == (mipmapped == nullptr)) {
    return violation("a part of two arrays, or none");
  }
  auto made = std::make_unique<Array>();
  made->is_part = true;
  made->storage = whole != nullptr ? whole->storage : mipmapped->shared_from_this();
  OPENMPS_RETURN_IF_ERROR(core_.use(made->storage->device));
  const CUresult result =
      whole != nullptr ? core_.driver.cuArrayGetPlane(&made->handle, whole->handle, command.index)
                       : core_.driver.cuMipmappedArrayGetLevel(&made->handle, mipmapped->mipmapped,
                                                               command.index);
  OPENMPS_RETURN_IF_ERROR(check(result, "the part of an array"));
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuArray3DGetDescriptor_v2(&shape, made->handle),
                                "cuArray3DGetDescriptor"));
  reply.put(wire::ArrayPart::Reply{shape.Width, shape.Height, shape.Depth,
                                   static_cast<uint32_t>(shape.Format), shape.NumChannels,
                                   shape.Flags});
  return arrays_.insert(command.array, std::move(made));
}

// The parts of an array go with it.
void Arrays::drop_parts(const std::shared_ptr<Storage>& storage) {
  std::vector<wire::Id> parts;
  arrays_.for_each_id([&](wire::Id id, const Array& array) {
    if (array.is_part && array.storage == storage) parts.push_back(id);
  });
  for (const wire::Id id : parts) arrays_.take(id).reset();
}

Status Arrays::handle(const wire::ArrayDestroy& command) {
  const std::unique_ptr<Array> array = arrays_.take(command.array);
  if (!array->is_part) drop_parts(array->storage);
  retire(std::move(array->storage));
  return Status();
}

Status Arrays::handle(const wire::MipmappedDestroy& command) {
  std::shared_ptr<Storage> storage = mipmapped_.take(command.array);
  drop_parts(storage);
  retire(std::move(storage));
  return Status();
}

// An object that refers to the array may keep it for longer.
void Arrays::retire(std::shared_ptr<Storage> storage) {
  const GivenUp given_up = storage->given_up();
  core_.releases.add_behind_work(given_up, [kept = std::move(storage)]() mutable {
    if (kept.use_count() == 1) kept->destroy();
    kept.reset();
  });
}

Status Arrays::find(wire::Id id, CUarray* handle, std::shared_ptr<const void>* kept) const {
  Array* array = nullptr;
  OPENMPS_RETURN_IF_ERROR(arrays_.get(id, &array));
  *handle = array->handle;
  *kept = array->storage;
  return Status();
}

// ---- Texture and surface objects ----------------------------------------------------------------

Status Arrays::read_resource(const wire::ImageCreate& command, const Array* array,
                             Storage* mipmapped, CUDA_RESOURCE_DESC* resource,
                             std::shared_ptr<Storage>* storage) const {
  resource->resType = static_cast<CUresourcetype>(command.type);
  switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      if (array == nullptr) return violation("a resource without its array");
      resource->res.array.hArray = array->handle;
      *storage = array->storage;
      return Status();
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      if (mipmapped == nullptr) return violation("a resource without its mipmapped array");
      resource->res.mipmap.hMipmappedArray = mipmapped->mipmapped;
      *storage = mipmapped->shared_from_this();
      return Status();
    case CU_RESOURCE_TYPE_LINEAR: {
      OPENMPS_RETURN_IF_ERROR(memory_.check_operand({command.address, command.bytes}, "texture"));
      auto& linear = resource->res.linear;
      linear.devPtr = core_.device_address(command.address);
      linear.format = static_cast<CUarray_format>(command.format);
      linear.numChannels = command.channels;
      linear.sizeInBytes = command.bytes;
      return Status();
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      // The driver should refuse texels without channels, but is not relied on for that.
      const uint64_t texel = std::max<uint64_t>(texel_bytes(command.format, command.channels), 1);
      const uint64_t row = cuda::bytes_of_row(command.width, texel);
      // An H200 accepts a pitch that is less than a row: all that it reads must be inside.
      OPENMPS_RETURN_IF_ERROR(memory_.check_operand(
          {command.address,
           cuda::span_of_box(row, command.height, 1, std::max(command.pitch, row), 0)},
          "texture"));
      auto& pitched = resource->res.pitch2D;
      pitched.devPtr = core_.device_address(command.address);
      pitched.format = static_cast<CUarray_format>(command.format);
      pitched.numChannels = command.channels;
      pitched.width = command.width;
      pitched.height = command.height;
      pitched.pitchInBytes = command.pitch;
      return Status();
    }
    default: return violation("a resource of type " + std::to_string(command.type));
  }
}

Status Arrays::handle(const wire::ImageCreate& command, const Array* array, Storage* mipmapped,
                      ReplyTo<wire::ImageCreate> reply) {
  // The GPU would read zeros from such memory (measured on an H200).
  if (core_.cold_homes != 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED,
                  "a texture or surface object beside a module with variables in the cold lane");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  CUDA_RESOURCE_DESC resource{};
  auto image = std::make_unique<Image>();
  image->device = command.device;
  OPENMPS_RETURN_IF_ERROR(read_resource(command, array, mipmapped, &resource, &image->storage));
  if (command.kind == wire::ImageKind::kTexture) {
    CUtexObject texture = 0;
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuTexObjectCreate(&texture, &resource, &command.description,
                                             command.has_view != 0 ? &command.view : nullptr),
              "cuTexObjectCreate"));
    image->handle = texture;
  } else {
    CUsurfObject surface = 0;
    image->kind = wire::ImageKind::kSurface;
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuSurfObjectCreate(&surface, &resource), "cuSurfObjectCreate"));
    image->handle = surface;
  }
  reply.put(wire::ImageCreate::Reply{image->handle});
  ++core_.image_objects;
  return images_.insert(command.image, std::move(image));
}

void Arrays::release(const Image& image) {
  static_cast<void>(core_.use(image.device).ok());
  if (image.kind == wire::ImageKind::kTexture) {
    core_.driver.cuTexObjectDestroy(image.handle);
  } else {
    core_.driver.cuSurfObjectDestroy(image.handle);
  }
}

Status Arrays::handle(const wire::ImageDestroy& command) {
  const std::shared_ptr<Image> image = images_.take(command.image);
  --core_.image_objects;
  core_.releases.add_behind_work({wire::ReturnKind::kImage}, [this, image] { release(*image); });
  return Status();
}

// Objects before the arrays that they refer to.
void Arrays::release_all() {
  while (const std::unique_ptr<Image> image = images_.take_any()) release(*image);
  arrays_.for_each([](const Array& array) { array.storage->destroy(); });
  arrays_.clear();
  mipmapped_.for_each([](Storage& storage) { storage.destroy(); });
  mipmapped_.clear();
}

}  // namespace openmps::worker
