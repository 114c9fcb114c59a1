// SPDX-License-Identifier: Apache-2.0
// See window.h.
#include "worker/process/window.h"

#include <sys/stat.h>

#include <utility>

#include "wire/layout.h"

namespace openmps::worker {

Window::~Window() {
  host_part_.reset();
  if (claimed_) addresses_.release(wire::window_base(number_));
  server_.send(wire::WindowFree{.window = number_});
}

Status Window::open(UniqueFd host_file) {
  const uint64_t base = wire::window_base(number_);
  claimed_ = addresses_.claim(base, wire::kWindowBytes);
  if (!claimed_) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "other sessions' reservations lie in the window");
  }
  struct stat file {};
  if (fstat(host_file.get(), &file) != 0 ||
      static_cast<uint64_t>(file.st_size) != wire::kHostBytes) {
    return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the host file does not have its size");
  }
  const uint64_t host = base + wire::kDeviceBytes;
  Result<Mapping> reserved = reserve_addresses(host, wire::kHostBytes);
  if (!reserved.ok()) return reserved.status();
  Result<Mapping> mapped = map_shared_at(host, host_file.get(), 0, wire::kHostBytes);
  if (!mapped.ok()) return mapped.status();
  reserved.value().leak();  // replaced by the mapping
  host_part_ = std::move(mapped).value();
  keep_from_dumps(host, wire::kHostBytes);
  return Status();
}

}  // namespace openmps::worker
