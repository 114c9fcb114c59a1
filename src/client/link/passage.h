// SPDX-License-Identifier: Apache-2.0
// Passes descriptors between this process and its session in the worker, over the session's socket
// and through the server. Such calls are rare, so only one is made at a time. Any thread.
#pragma once

#include <cstdint>

#include "base/kept_fd.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "client/link/channel.h"
#include "cuda/abi.h"
#include "wire/commands/memory.h"

namespace openmps::client {

class Passage {
 public:
  // `socket`: the session's connection; not owned.
  Passage(Channel& channel, RememberedFd socket) : channel_(channel), socket_(socket) {}

  // A new descriptor of physical memory. Errors: the driver's, the session's end.
  [[nodiscard]] CUresult export_physical(wire::Id physical, UniqueFd* descriptor);
  // A dma-buf of mapped device memory. Errors: the driver's, the session's end.
  [[nodiscard]] CUresult export_range(uint64_t address, uint64_t bytes, uint32_t flags,
                                      UniqueFd* descriptor);
  // The physical memory of a descriptor under a new id. Errors: the driver's, the session's end;
  // CUDA_ERROR_INVALID_VALUE: no descriptor of memory.
  [[nodiscard]] CUresult import_physical(wire::Id physical, int descriptor,
                                         wire::PhysicalImport::Reply* reply);
  // Maps pages of a file in the worker, at addresses of HostReserve. Errors: the worker's.
  [[nodiscard]] CUresult map_host(uint64_t address, uint64_t bytes, int file, uint64_t offset,
                                  uint32_t flags);
  // Has the session recorded into the connection (cupti/recording.h), of which the worker gets a
  // duplicate. Error: CUDA_ERROR_OPERATING_SYSTEM.
  [[nodiscard]] CUresult record_into(int connection);

 private:
  // A command with a ticket, whose descriptor comes before its reply.
  template <typename Command>
  CUresult call_for(UniqueFd* descriptor, Command command);
  [[nodiscard]] CUresult send(int descriptor, uint32_t* ticket) REQUIRES(lock_);
  [[nodiscard]] CUresult send_as(uint32_t ticket, int descriptor) REQUIRES(lock_);
  [[nodiscard]] CUresult receive(uint32_t ticket, UniqueFd* descriptor) REQUIRES(lock_);

  Channel& channel_;
  const RememberedFd socket_;
  Mutex lock_{LockRank::kClientPassage};
  uint32_t last_ticket_ GUARDED_BY(lock_) = 0;
};

}  // namespace openmps::client
