// SPDX-License-Identifier: Apache-2.0
// See block.h.
#include "softgpu/interp/block.h"

#include <cstring>
#include <new>

namespace openmps::softgpu {

namespace {

constexpr std::align_val_t kCacheLine{64};

}  // namespace

void AlignedBytes::Free::operator()(std::byte* bytes) const {
  ::operator delete(bytes, kCacheLine);
}

void AlignedBytes::reserve(size_t bytes) {
  if (size_ >= bytes) return;
  bytes_.reset(static_cast<std::byte*>(::operator new(bytes, kCacheLine)));
  std::memset(bytes_.get(), 0, bytes);
  size_ = bytes;
}

std::string comma_separated(const uint32_t place[3]) {
  return std::to_string(place[0]) + "," + std::to_string(place[1]) + "," + std::to_string(place[2]);
}

const Op* Block::raise(Warp* warp, const Op* op, CUresult code, uint64_t address,
                       const std::string& what, uint32_t lanes) {
  if (faulted) return nullptr;
  faulted = true;
  if (lanes == 0) lanes = warp->active;
  const uint32_t thread =
      warp->index * kWarpSize + (lanes ? static_cast<uint32_t>(__builtin_ctz(lanes)) : 0);
  fault.code = code;
  fault.address = address;
  fault.text = "kernel " + kernel->name + ", block (" + comma_separated(index) + "), thread (" +
               comma_separated(place_of(thread).data()) + "), " +
               (warp->frame->code == kernel ? "" : "function " + warp->frame->code->name + ", ") +
               "PTX line " + std::to_string(op->line) + ": " + what + program->compiled->origin;
  return nullptr;
}

}  // namespace openmps::softgpu
