// SPDX-License-Identifier: Apache-2.0
// Copies of boxes of bytes between device, pinned and pageable memory: what every cuMemcpy* call
// is reduced to. Device and pinned memory are one command; pageable memory travels through staging
// pieces, gathered and scattered on the calling thread and, for large copies, the copy helpers.
#pragma once

#include <cstdint>

#include "cuda/abi.h"
#include "wire/commands.h"

namespace openmps::client {

struct Array;
struct Context;
struct Session;
struct Stream;

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

// What a pointer means as an argument that the call names device, host, or neither.
// A device pointer that lies in no live allocation stays kDevice: transfer() refuses it.
[[nodiscard]] Place place_of_device(const Session& session, uint64_t address);
[[nodiscard]] Place place_of_host(const Session& session, uint64_t address);
[[nodiscard]] Place place_of_any(const Session& session, uint64_t address);
enum class Named { kDevice, kHost, kAny };
// The side at this address; registered memory is pinned memory under another one.
[[nodiscard]] Side side_of(const Session& session, Named named, uint64_t address);

// The program asked that synchronous operations on the memory, or in the stream's context, end
// before they return, those between device memory among them (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
// CU_CTX_SYNC_MEMOPS): what reads it next may not know the stream, GPUDirect RDMA for one.
[[nodiscard]] bool ends_before_return(const Session& session, const Stream& stream,
                                      uint64_t address);

// What transfer() checks of a copy, by itself. Errors: CUDA_ERROR_INVALID_VALUE.
[[nodiscard]] CUresult check_copy(const Session& session, const Copy& copy);
// The copy that a CUDA_MEMCPY3D names. Errors: CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE.
[[nodiscard]] CUresult read_copy_3d(const Session& session, const Context& context,
                                    const CUDA_MEMCPY3D& named, Copy* copy);
[[nodiscard]] inline bool is_of_array(const Copy& copy) {
  return copy.destination.place == Place::kArray || copy.source.place == Place::kArray;
}
[[nodiscard]] inline bool is_pageable(const Copy& copy) {
  return copy.destination.place == Place::kPageable || copy.source.place == Place::kPageable;
}
// Its commands, of a stream or a node.
[[nodiscard]] wire::ArrayCopy array_command(const Copy& copy, wire::Id target);
[[nodiscard]] wire::Memcpy3D box_command(const Copy& copy, wire::Id target);
// Copies on this thread, now; all of it is memory of this process.
void copy_in_memory(const Copy& copy);

// Copies in stream order. `wait`: the call's name has no Async: then it returns when CUDA
// says so (pageable to device: once staged; device to device: at once; all others: when done).
// Between host memory it is done when this returns, whatever the call's name.
// Errors: CUDA_ERROR_INVALID_VALUE: a side lies outside of its allocation;
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: `wait` in a capture; the session's end.
[[nodiscard]] CUresult transfer(Session& session, Stream& stream, const Copy& copy, bool wait);

}  // namespace openmps::client
