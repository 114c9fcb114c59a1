// SPDX-License-Identifier: Apache-2.0
// Helpers of the functions in StrictDriver's table. For strict_driver.cc and strict_graphs.cc only.
#pragma once

#include <cstring>
#include <span>

#include "strict_driver.h"

namespace openmps::worker::strict {

using Wide = unsigned __int128;
using Operand = StrictDriver::Operand;
using Node = StrictDriver::Node;

inline StrictDriver& self() { return StrictDriver::current(); }

template <typename Handle>
uint64_t number(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}
template <typename Handle>
Handle handle(uint64_t value) {
  return reinterpret_cast<Handle>(value);
}
inline CUresult call(const char* name) { return self().fake().call(name, ""); }
inline void must_be_live(const char* kind, uint64_t object) {
  static_cast<void>(self().fake().exists(kind, object));
}

// Reads the bytes that a driver would read, so that a sanitizer checks them.
inline void touch(const void* data, size_t bytes) {
  static volatile unsigned char last;
  for (const unsigned char byte : std::span(static_cast<const unsigned char*>(data), bytes)) {
    last = byte;
  }
  static_cast<void>(last);
}
inline void must_be_text(const char* text) { touch(text, strlen(text)); }
inline void touch_extra(void** extra) {
  if (extra != nullptr) touch(extra[1], *static_cast<size_t*>(extra[3]));
}

// ---- Work on memory -----------------------------------------------------------------------------

// The bytes from the first to the last one of a box. On overflow, a size that no session's memory
// has.
inline uint64_t span_of(uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch,
                        uint64_t rows) {
  if (width == 0 || height == 0 || depth == 0) return 0;
  const Wide last_slice = static_cast<Wide>(depth - 1) * pitch * (depth > 1 ? rows : 1);
  const Wide span = last_slice + static_cast<Wide>(height - 1) * pitch + width;
  return span > ~0ull ? ~0ull : static_cast<uint64_t>(span);
}

inline void add_side(CUmemorytype type, CUdeviceptr device, const void* host, CUarray array,
                     size_t pitch, size_t rows, const CUDA_MEMCPY3D& box, bool writes, Node* node) {
  if (type == CU_MEMORYTYPE_ARRAY) return self().must_be_array(array);
  const uint64_t address = type == CU_MEMORYTYPE_HOST ? number(host) : device;
  node->operands.push_back(
      {address, span_of(box.WidthInBytes, box.Height, box.Depth, pitch, rows), writes});
}
inline Node copy_of(const CUDA_MEMCPY3D& box) {
  Node node{.kind = "copy"};
  add_side(box.srcMemoryType, box.srcDevice, box.srcHost, box.srcArray, box.srcPitch, box.srcHeight,
           box, false, &node);
  add_side(box.dstMemoryType, box.dstDevice, box.dstHost, box.dstArray, box.dstPitch, box.dstHeight,
           box, true, &node);
  return node;
}
inline uint64_t rows_span(uint64_t pitch, uint64_t element, uint64_t width, uint64_t rows) {
  const Wide row = static_cast<Wide>(width) * element;
  return row > ~0ull ? ~0ull : span_of(static_cast<uint64_t>(row), rows, 1, pitch, 1);
}
void fill_graphs(DriverTable& t);

}  // namespace openmps::worker::strict
