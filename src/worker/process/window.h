// SPDX-License-Identifier: Apache-2.0
// The address window of a session in this process: the claim to its addresses, and the mapping of
// its host part. Owned by the session and by DeferredReleases that are still pending when the
// session has ended (the driver may have memory of the host part registered). The server gives the
// window's number to another session once it gets WindowFree.
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
  // `addresses` and `server` outlive the window. The destructor sends WindowFree in any case.
  Window(uint32_t number, AddressBook& addresses, ServerReports& server)
      : number_(number), addresses_(addresses), server_(server) {}
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Called once. Errors: CUDA_ERROR_OUT_OF_MEMORY: other sessions' reservations lie in the window;
  // CUDA_ERROR_MPS_RPC_FAILURE: the file has another size; the errors of map_shared_at().
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
