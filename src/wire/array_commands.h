// SPDX-License-Identifier: Apache-2.0
// The commands of CUDA arrays, texture objects and surface objects. Arrays are named by ids, as
// everything is; what a texture or surface object is called inside a kernel is the driver's value,
// which the reply brings back. Normative together with commands.h (docs/wire-format.md).
#pragma once

#include <cstdint>
#include <type_traits>

#include "wire/commands.h"

namespace openmps::wire {

// An array, or a mipmapped array of `levels` levels at most: two kinds of objects.
struct ArrayCreate {
  Id array;
  uint32_t levels;  // 0: an array
  uint64_t width;   // texels
  uint64_t height;
  uint64_t depth;
  uint32_t format;  // CUarray_format
  uint32_t channels;
  uint32_t flags;  // CUDA_ARRAY3D_*
  uint32_t device;
};

// A level of a mipmapped array, or a plane of an array, as an array with an id of its own. It ends
// with what it is part of, or by kArrayDestroy, which leaves the whole alone.
struct ArrayPart {
  Id array;
  Id whole;
  uint32_t index;
  uint32_t kind;  // ArrayPartKind
};
enum class ArrayPartKind : uint32_t { kLevel = 0, kPlane = 1 };
struct ArrayPartReply {
  uint64_t width;
  uint64_t height;
  uint64_t depth;
  uint32_t format;
  uint32_t channels;
  uint32_t flags;
  uint32_t reserved;
};

// One side of a copy: an array, or linear memory as in Memcpy3D.
struct ArraySide {
  Id array;  // 0: linear memory
  uint32_t reserved;
  uint64_t x;  // of an array: where the box begins, in bytes, rows and slices
  uint64_t y;
  uint64_t z;
  uint64_t address;  // of linear memory
  uint64_t pitch;
  uint64_t slice;  // a multiple of the pitch
};
struct ArrayCopy {
  Id stream;
  uint32_t flags;  // kOrderAllStreams
  ArraySide destination;
  ArraySide source;
  uint64_t width;  // bytes
  uint64_t height;
  uint64_t depth;
};

enum class ImageKind : uint32_t { kTexture = 0, kSurface = 1 };
struct ImageCreate {
  Id image;       // textures and surfaces share their ids
  uint32_t kind;  // ImageKind
  uint32_t device;
  uint32_t type;  // CUresourcetype
  Id array;       // of either kind of array
  uint32_t format;
  uint32_t channels;
  uint32_t has_view;
  uint64_t address;  // of linear and pitched memory
  uint64_t bytes;    // of linear memory
  uint64_t width;
  uint64_t height;
  uint64_t pitch;
  CUDA_TEXTURE_DESC description;  // of a texture
  CUDA_RESOURCE_VIEW_DESC view;
};
struct ImageReply {
  uint64_t handle;  // what kernels are given
};

static_assert(sizeof(ArrayCreate) == 48 && sizeof(ArraySide) == 56 && sizeof(ArrayCopy) == 144);
static_assert(std::is_trivially_copyable_v<ImageCreate>);

}  // namespace openmps::wire
