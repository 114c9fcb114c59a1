// SPDX-License-Identifier: Apache-2.0
// The address window of a session in this process: its claim, and the mapping of the host part. It
// goes with its last owner: the session, or what the driver still has of the host part when the
// session has ended (returns.h). The server uses the number again once it has been told.
#pragma once

#include <cstdint>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "cuda/status.h"
#include "worker/memory/address_book.h"
#include "worker/process/server_reports.h"

namespace openmps::worker {

class Window {
 public:
  // Both outlive it. It says WindowFree at its end, whether it was opened or not.
  Window(uint32_t number, AddressBook& addresses, ServerReports& server)
      : number_(number), addresses_(addresses), server_(server) {}
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Once. Errors: CUDA_ERROR_OUT_OF_MEMORY: the addresses are somebody else's;
  // CUDA_ERROR_MPS_RPC_FAILURE: the file does not have its size; those of map_shared_at().
  Status open(UniqueFd host_file);
  // The host part; null before it is open.
  [[nodiscard]] void* host_part() const { return host_part_.address(); }

 private:
  const uint32_t number_;
  AddressBook& addresses_;
  ServerReports& server_;
  bool claimed_ = false;
  Mapping host_part_;
};

}  // namespace openmps::worker
