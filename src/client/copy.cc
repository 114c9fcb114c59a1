// SPDX-License-Identifier: Apache-2.0
// See copy.h.
#include "client/copy.h"

#include <string.h>

namespace openmps::client {

wire::ArraySide array_side(const Side& side, uint64_t column, uint64_t row, uint64_t slice) {
  if (side.place != Place::kArray) return {0, 0, 0, 0, 0, side.address, side.pitch, side.slice};
  return {side.array->id, 0, side.x + column, side.y + row, side.z + slice, 0, 0, 0};
}

wire::ArrayCopy array_command(const Copy& copy, wire::Id target) {
  const Box& box = copy.box;
  return {target,
          0,
          array_side(copy.destination, 0, 0, 0),
          array_side(copy.source, 0, 0, 0),
          box.width,
          box.height,
          box.depth};
}

wire::Memcpy3D box_command(const Copy& copy, wire::Id target) {
  const auto& [destination, source, box] = copy;
  return {target,
          0,
          destination.address,
          source.address,
          destination.pitch,
          source.pitch,
          destination.slice,
          source.slice,
          box.width,
          box.height,
          box.depth};
}

bool is_contiguous(const Copy& copy) {
  const Box& box = copy.box;
  const auto is_run = [&box](const Side& side) {
    return side.place != Place::kArray && (box.height == 1 || side.pitch == box.width) &&
           (box.depth == 1 || side.slice == box.width * box.height);
  };
  return is_run(copy.destination) && is_run(copy.source);
}

void copy_in_memory(const Copy& copy) {
  const auto& [destination, source, box] = copy;
  for (uint64_t slice = 0; slice < box.depth; ++slice) {
    for (uint64_t row = 0; row < box.height; ++row) {
      memmove(
          reinterpret_cast<void*>(destination.address + slice * destination.slice +
                                  row * destination.pitch),
          reinterpret_cast<const void*>(source.address + slice * source.slice + row * source.pitch),
          box.width);
    }
  }
}

}  // namespace openmps::client
