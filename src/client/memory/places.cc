// SPDX-License-Identifier: Apache-2.0
// See places.h.
#include "client/memory/places.h"

#include <algorithm>

#include "client/check.h"
#include "client/objects.h"
#include "cuda/box.h"

namespace openmps::client {

Place Places::place_of_host(uint64_t address) const {
  if (pinned_.in_heap(address)) return Place::kPinned;
  return memory_.in_window(address) ? Place::kDevice : Place::kPageable;
}

Place Places::place_of_any(uint64_t address) const {
  const Place place = place_of_host(address);
  // What is left may be a module's global, which the driver places outside of the window.
  return place == Place::kPageable && memory_.contains(address, 1) ? Place::kDevice : place;
}

CUresult Places::resolve(const cuda::CopySide& named, const cuda::CopyBox& box, Side* side) const {
  switch (named.type) {
    case CU_MEMORYTYPE_HOST: *side = side_of(Named::kHost, named.address); break;
    case CU_MEMORYTYPE_DEVICE: *side = side_of(Named::kDevice, named.address); break;
    case CU_MEMORYTYPE_UNIFIED: *side = side_of(Named::kAny, named.address); break;
    case CU_MEMORYTYPE_ARRAY:
      if (named.array == nullptr || named.level != 0) return CUDA_ERROR_INVALID_VALUE;
      side->array = arrays_.find(named.array);
      if (side->array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      side->place = Place::kArray;
      side->x = named.x;
      side->y = named.y;
      side->z = named.z;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  side->pitch = named.pitch_of(box);
  if (named.x + box.width > side->pitch) return CUDA_ERROR_INVALID_VALUE;
  if (named.rows != 0 && named.rows < box.height) return CUDA_ERROR_INVALID_VALUE;
  side->slice = side->pitch * named.rows_of(box);
  // The place is that of the pointer; the box begins at an offset from it.
  side->address += named.z * side->slice + named.y * side->pitch + named.x;
  return CUDA_SUCCESS;
}

CUresult Places::read(const Context& context, const CUDA_MEMCPY3D& named, Copy* copy) const {
  const cuda::CopyBox whole = cuda::box_of(named);
  copy->box = Box{whole.width, whole.height, whole.depth};
  if (copy->box.empty()) return CUDA_SUCCESS;  // whatever else it says
  const auto most = static_cast<uint64_t>(
      devices_.facts(context.device).attribute[CU_DEVICE_ATTRIBUTE_MAX_PITCH]);
  if (named.dstPitch > most || named.srcPitch > most) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(resolve(cuda::destination_of(named), whole, &copy->destination));
  return resolve(cuda::source_of(named), whole, &copy->source);
}

namespace {

// Within the array, also where it cuts texels, as on an H200. What texels of other formats are is
// the driver's to judge.
bool fits_array(const Side& side, const Box& box) {
  const CUDA_ARRAY3D_DESCRIPTOR& d = side.array->descriptor;
  const uint64_t texel = side.array->texel_bytes;
  const auto fits = [](uint64_t begin, uint64_t length, uint64_t end) {
    return begin <= end && length <= end - begin;
  };
  if (!fits(side.y, box.height, std::max<uint64_t>(d.Height, 1)) ||
      !fits(side.z, box.depth, std::max<uint64_t>(d.Depth, 1))) {
    return false;
  }
  return texel == 0 || fits(side.x, box.width, d.Width * texel);
}

}  // namespace

CUresult Places::check_side(const Side& side, const Box& box, bool written) const {
  bool inside = false;
  if (side.place == Place::kArray) {
    inside = fits_array(side, box);
  } else {
    const uint64_t bytes =
        cuda::span_of_box(box.width, box.height, box.depth, side.pitch, side.slice);
    if (bytes == cuda::kTooManyBytes) return CUDA_ERROR_INVALID_VALUE;
    if (box.height > 1 && side.pitch < box.width) return CUDA_ERROR_INVALID_VALUE;
    switch (side.place) {
      case Place::kDevice: inside = memory_.contains(side.address, bytes, written); break;
      case Place::kPinned:
        inside = pinned_.contains(side.address, bytes) ||
                 registered_.contains(side.address, bytes, written);
        break;
      case Place::kPageable: inside = side.address != 0; break;
      case Place::kArray: break;
    }
  }
  return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Places::check(const Copy& copy) const {
  OPENMPS_CUDA_CHECK(check_side(copy.destination, copy.box, true));
  return check_side(copy.source, copy.box, false);
}

bool Places::contains(uint64_t address, uint64_t bytes, bool written) const {
  return pinned_.in_heap(address) ? pinned_.contains(address, bytes)
                                  : memory_.contains(address, bytes, written) ||
                                        registered_.contains(address, bytes, written);
}

bool Places::ends_before_return(const Stream& stream, uint64_t address) const {
  return (stream.context->flags.load(std::memory_order_relaxed) & CU_CTX_SYNC_MEMOPS) != 0 ||
         memory_.has_sync_memops(address);
}

}  // namespace openmps::client
