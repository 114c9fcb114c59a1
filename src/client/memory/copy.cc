// SPDX-License-Identifier: Apache-2.0
// See copy.h.
#include "client/memory/copy.h"

#include <cstring>

namespace openmps::client {

namespace {

wire::ArraySide array_side(const Side& side) {
  if (side.place != Place::kArray) return {0, 0, 0, 0, 0, side.address, side.pitch, side.slice};
  return {side.array->id, 0, side.x, side.y, side.z, 0, 0, 0};
}

void move(Side* side, uint64_t column, uint64_t row, uint64_t slice) {
  if (side->place != Place::kArray) {
    side->address += slice * side->slice + row * side->pitch + column;
    return;
  }
  side->x += column;
  side->y += row;
  side->z += slice;
}

}  // namespace

Copy part_of(const Copy& copy, uint64_t column, uint64_t row, uint64_t slice, const Box& box) {
  Copy part = copy;
  move(&part.destination, column, row, slice);
  move(&part.source, column, row, slice);
  part.box = box;
  return part;
}

wire::ArrayCopy array_command(const Copy& copy, wire::Id target, uint32_t flags) {
  const auto& [destination, source, box] = copy;
  return {target,     flags,    array_side(destination), array_side(source), box.width,
          box.height, box.depth};
}

wire::Memcpy3D box_command(const Copy& copy, wire::Id target, uint32_t flags) {
  const auto& [destination, source, box] = copy;
  return {target,
          flags,
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
