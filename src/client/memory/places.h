// SPDX-License-Identifier: Apache-2.0
// What addresses that a program names mean: which memory they are of, and whether all of a piece of
// work stays inside of it. Any thread.
#pragma once

#include <cstdint>

#include "client/devices.h"
#include "client/memory/array.h"
#include "client/memory/copy.h"
#include "client/memory/host_register.h"
#include "client/memory/memory.h"
#include "client/memory/pinned.h"
#include "cuda/abi.h"
#include "cuda/copies.h"

namespace openmps::client {

class Places {
 public:
  Places(const Devices& devices, const DeviceMemory& memory, const PinnedHeap& pinned,
         HostRegistrations& registered, const Arrays& arrays)
      : devices_(devices),
        memory_(memory),
        pinned_(pinned),
        registered_(registered),
        arrays_(arrays) {}

  // What a call says of a pointer: device, host, or neither.
  enum class Named { kDevice, kHost, kAny };
  // A device pointer outside of all live allocations is kDevice, too: check() refuses it.
  // Registered memory is pinned memory, under the GPU's address for it.
  [[nodiscard]] Side side_of(Named named, uint64_t address) const;
  // The copy that a CUDA_MEMCPY3D names. Errors: CUDA_ERROR_INVALID_VALUE,
  // CUDA_ERROR_INVALID_HANDLE.
  [[nodiscard]] CUresult read(const Context& context, const CUDA_MEMCPY3D& named, Copy* copy) const;
  // All of it is there. Errors: CUDA_ERROR_INVALID_VALUE.
  [[nodiscard]] CUresult check(const Copy& copy) const;
  // The program's, and can be written if it is to be.
  [[nodiscard]] bool contains(uint64_t address, uint64_t bytes, bool written) const;
  // Host memory that the GPU reaches by this address.
  [[nodiscard]] bool is_pinned(uint64_t address) const {
    return pinned_.in_heap(address) || registered_.contains(address, 1, false);
  }
  // The program asked that synchronous operations on the memory, or in the stream's context, end
  // before they return, those between device memory among them (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
  // CU_CTX_SYNC_MEMOPS): what reads it next may not know the stream, GPUDirect RDMA for one.
  [[nodiscard]] bool ends_before_return(const Stream& stream, uint64_t address) const;

 private:
  [[nodiscard]] Place place_of_host(uint64_t address) const;
  [[nodiscard]] Place place_of_any(uint64_t address) const;
  CUresult resolve(const cuda::CopySide& named, const cuda::CopyBox& box, Side* side) const;
  CUresult check_side(const Side& side, const Box& box, bool written) const;

  const Devices& devices_;
  const DeviceMemory& memory_;
  const PinnedHeap& pinned_;
  HostRegistrations& registered_;
  const Arrays& arrays_;
};

inline Side Places::side_of(Named named, uint64_t address) const {
  if (uint64_t device = 0; registered_.find_ready(address, &device)) {
    return {.address = device, .place = Place::kPinned};
  }
  if (named == Named::kDevice) {
    return {.address = address,
            .place = pinned_.in_heap(address) ? Place::kPinned : Place::kDevice};
  }
  return {.address = address,
          .place = named == Named::kHost ? place_of_host(address) : place_of_any(address)};
}

}  // namespace openmps::client
