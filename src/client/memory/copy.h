// SPDX-License-Identifier: Apache-2.0
// A copy as a value: a box of bytes between device, pinned and pageable memory and arrays, and the
// commands that say it. Any thread.
#pragma once

#include <cstdint>

#include "client/memory/array.h"
#include "cuda/abi.h"
#include "wire/commands/array.h"
#include "wire/commands/stream.h"

namespace openmps::client {

enum class Place { kDevice, kPinned, kPageable, kArray };

// One side of a copy: where byte (0, 0, 0) of the box is, and the steps to the next row and slice.
// In an array that is `x` bytes, `y` rows and `z` slices from its start.
struct Side {
  uint64_t address = 0;
  Place place = Place::kDevice;
  uint64_t pitch = 0;  // bytes; used if the box has more than one row
  uint64_t slice = 0;  // bytes; used if it has more than one slice
  const Array* array = nullptr;
  uint64_t x = 0;
  uint64_t y = 0;
  uint64_t z = 0;
};

struct Box {
  uint64_t width = 0;  // bytes
  uint64_t height = 1;
  uint64_t depth = 1;

  [[nodiscard]] bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

struct Copy {
  Side destination;
  Side source;
  Box box;
};

[[nodiscard]] inline bool on_device(const Side& side) {
  return side.place == Place::kDevice || side.place == Place::kArray;
}
[[nodiscard]] inline bool is_of_array(const Copy& copy) {
  return copy.destination.place == Place::kArray || copy.source.place == Place::kArray;
}
[[nodiscard]] inline bool is_pageable(const Copy& copy) {
  return copy.destination.place == Place::kPageable || copy.source.place == Place::kPageable;
}
// Each side is one run of bytes.
[[nodiscard]] bool is_contiguous(const Copy& copy);
// The part of it that begins at this place of the box.
[[nodiscard]] Copy part_of(const Copy& copy, uint64_t column, uint64_t row, uint64_t slice,
                           const Box& box);

// ---- Its commands, of a stream or a node; `flags` as wire::Memcpy has them ----
[[nodiscard]] wire::ArrayCopy array_command(const Copy& copy, wire::Id target, uint32_t flags = 0);
[[nodiscard]] wire::Memcpy3D box_command(const Copy& copy, wire::Id target, uint32_t flags = 0);
// `send(command)` with the smallest that does.
template <typename Send>
[[nodiscard]] CUresult with_command(const Copy& copy, wire::Id target, uint32_t flags,
                                    Send&& send) {
  if (is_of_array(copy)) return send(array_command(copy, target, flags));
  if (copy.box.height > 1 || copy.box.depth > 1) return send(box_command(copy, target, flags));
  return send(
      wire::Memcpy{target, flags, copy.destination.address, copy.source.address, copy.box.width});
}

// Copies on this thread, now; all of it is memory of this process.
void copy_in_memory(const Copy& copy);

}  // namespace openmps::client
