// SPDX-License-Identifier: Apache-2.0
// Addresses that are not simply in the range found last: other ranges, the windows of shared, local
// and parameter memory, and the faults. Called by the memory handlers, on the interpreter's thread.
#include "softgpu/interp/address.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "softgpu/interp/cluster.h"

namespace openmps::softgpu {

bool find_range(Warp* warp, uint64_t begin, uint64_t end, bool write, uint32_t slot) {
  if (begin >= end) return false;
  CachedRange* recent = warp->ranges->recent;
  uint32_t at = 0;
  while (at < kCachedRanges && !(begin >= recent[at].begin && begin < recent[at].end)) ++at;
  if (at == kCachedRanges) {
    AddressRange found;
    if (begin >> kWindowShift || !warp->block->memory ||
        !warp->block->memory->find(begin, &found)) {
      return false;
    }
    at = kCachedRanges - 1;
    recent[at] = {found.begin, found.end, found.writable ? found.end : 0};
  }
  std::rotate(recent, recent + at, recent + at + 1);
  warp->ranges->slots[slot] = recent[0];
  return end <= (write ? recent[0].writable_end : recent[0].end);
}

namespace {

std::string hex(uint64_t value) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

void raise_misaligned(Warp* warp, const Op* op, uint32_t lane, uint64_t address, uint64_t bytes) {
  warp->block->raise(
      warp, op, CUDA_ERROR_MISALIGNED_ADDRESS, address,
      "misaligned address " + hex(address) + " for " + std::to_string(bytes) + " bytes",
      1u << lane);
}

// Host memory behind `bytes` at a generic address of `lane`; null: not addressable.
std::byte* host_pointer(Warp* warp, uint32_t lane, uint64_t address, uint64_t bytes, bool write) {
  const uint64_t at = address & kWindowMask;
  switch (address & ~kWindowMask) {
    case 0:
      return find_range(warp, address, address + bytes, write, 0)
                 ? reinterpret_cast<std::byte*>(address)
                 : nullptr;
    case kSharedWindow:
      return at + bytes <= warp->shared_bytes ? warp->shared + at
                                              : cluster_pointer(warp, at, bytes);
    case kLocalWindow:
      return at + bytes <= warp->local_bytes ? warp->local + lane * warp->local_bytes + at
                                             : nullptr;
    case kParamWindow:
      return !write && at + bytes <= warp->param_bytes ? const_cast<std::byte*>(warp->params) + at
                                                       : nullptr;
    default: return nullptr;
  }
}

}  // namespace

std::byte* memory_for(Warp* warp, const Op* op, uint32_t lane, uint64_t address, uint64_t bytes,
                      uint64_t alignment, bool write) {
  if (address % alignment != 0) {
    raise_misaligned(warp, op, lane, address, alignment);
    return nullptr;
  }
  std::byte* pointer = host_pointer(warp, lane, address, bytes, write);
  if (!pointer) {
    warp->block->raise(warp, op, CUDA_ERROR_ILLEGAL_ADDRESS, address,
                       std::string("illegal ") + (write ? "write to " : "read from ") +
                           hex(address) + ", " + std::to_string(bytes) + " bytes",
                       1u << lane);
  }
  return pointer;
}

std::byte* shared_for(Warp* warp, const Op* op, uint32_t lane, uint64_t address, uint64_t bytes,
                      uint64_t alignment) {
  if ((address & ~kWindowMask) == kSharedWindow) {
    return memory_for(warp, op, lane, address, bytes, alignment, true);
  }
  warp->block->raise(warp, op, CUDA_ERROR_INVALID_ADDRESS_SPACE, address,
                     hex(address) + " is not in shared memory", 1u << lane);
  return nullptr;
}

bool resolve(Warp* warp, const Op* op, const uint64_t* addresses, uint64_t bytes, bool write) {
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    warp->pointers[lane] =
        memory_for(warp, op, lane, addresses[lane] + op->imm, bytes, bytes, write);
    if (!warp->pointers[lane]) return false;
  }
  return true;
}

const Op* fault_misaligned(Warp* warp, const Op* op, const uint64_t* addresses, uint64_t bytes) {
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    const uint64_t address = addresses[lane] + op->imm;
    if (address % bytes == 0) continue;
    raise_misaligned(warp, op, lane, address, bytes);
    return nullptr;
  }
  return nullptr;
}

const Op* fault_shared(Warp* warp, const Op* op, uint64_t bytes) {
  const auto* addresses = reinterpret_cast<const uint32_t*>(warp->regs + op->a);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    const uint32_t at = addresses[lane] + static_cast<uint32_t>(op->imm);
    const bool outside = at + bytes > warp->shared_bytes;
    if (!outside && at % bytes == 0) continue;
    return warp->block->raise(
        warp, op, outside ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_MISALIGNED_ADDRESS, at,
        (outside ? "shared address out of range: " : "misaligned shared address ") + hex(at) +
            ", " + std::to_string(bytes) + " bytes",
        1u << lane);
  }
  return nullptr;
}

const Op* fault_local(Warp* warp, const Op* op, uint64_t bytes) {
  const auto* addresses = reinterpret_cast<const uint64_t*>(warp->regs + op->a);
  for (uint32_t left = warp->active; left; left &= left - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(left));
    const uint64_t at = addresses[lane] + op->imm;
    const bool outside = at >= warp->local_bytes || at + bytes > warp->local_bytes;
    if (!outside && at % bytes == 0) continue;
    return warp->block->raise(
        warp, op, outside ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_MISALIGNED_ADDRESS, at,
        (outside ? "local address out of range: " : "misaligned local address ") + hex(at) + ", " +
            std::to_string(bytes) + " bytes",
        1u << lane);
  }
  return nullptr;
}

bool read_generic(Warp* warp, uint32_t lane, uint64_t address, void* to, size_t bytes) {
  const std::byte* from = host_pointer(warp, lane, address, bytes, false);
  if (!from) return false;
  std::memcpy(to, from, bytes);
  return true;
}

bool write_generic(Warp* warp, uint32_t lane, uint64_t address, const void* from, size_t bytes) {
  std::byte* to = host_pointer(warp, lane, address, bytes, true);
  if (!to) return false;
  std::memcpy(to, from, bytes);
  return true;
}

// Longest string taken from a kernel: a page would do, formats are written by people.
bool read_string(Warp* warp, uint32_t lane, uint64_t address, std::string* out) {
  constexpr size_t kMaxString = 64 * 1024;
  while (out->size() < kMaxString) {
    char c;
    if (!read_generic(warp, lane, address++, &c, 1)) return false;
    if (c == '\0') return true;
    out->push_back(c);
  }
  return true;
}

}  // namespace openmps::softgpu
