// SPDX-License-Identifier: Apache-2.0
// The way of descriptors between this process and its session in the worker, over the session's
// socket and through the server. Rare calls, so one at a time. Any thread.
#pragma once

#include <cstdint>
#include <mutex>

#include "base/unique_fd.h"
#include "client/link/channel.h"
#include "cuda/abi.h"
#include "wire/commands/memory.h"

namespace openmps::client {

class Passage {
 public:
  // `socket`: the session's connection; not owned.
  Passage(Channel& channel, int socket) : channel_(channel), socket_(socket) {}

  // A new descriptor of physical memory. Errors: the driver's, the session's end.
  [[nodiscard]] CUresult export_physical(wire::Id physical, UniqueFd* descriptor);
  // A dma-buf of mapped device memory. Errors: the same.
  [[nodiscard]] CUresult export_range(uint64_t address, uint64_t bytes, uint32_t flags,
                                      UniqueFd* descriptor);
  // The physical memory of a descriptor under a new id. Errors: the same;
  // CUDA_ERROR_INVALID_VALUE: no descriptor.
  [[nodiscard]] CUresult import_physical(wire::Id physical, int descriptor,
                                         wire::PhysicalImport::Reply* reply);

 private:
  [[nodiscard]] CUresult receive(uint32_t ticket, UniqueFd* descriptor);

  Channel& channel_;
  const int socket_;
  std::mutex lock_;
  uint32_t last_ticket_ = 0;
};

}  // namespace openmps::client
