// SPDX-License-Identifier: Apache-2.0
// __managed__ variables. The driver places a variable in the worker's process, at an address that
// it chooses and that device code contains. In the program's process that address is ordinary
// memory with a copy of the variable: what the program has written is copied to the device before
// the program's next work, and what the device has written is copied back when the program
// synchronises. So host and device may use a variable in turns, as on GPUs without concurrent
// managed access (CUDA C++ Programming Guide, "Unified Memory"), but not at the same time. Any
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "base/shared_memory.h"
#include "client/context/contexts.h"
#include "client/context/stream.h"
#include "client/context/transfer.h"
#include "client/objects.h"
#include "cuda/abi.h"

namespace openmps::client {

class ManagedVariables {
 public:
  ManagedVariables(const Contexts& contexts, Streams& streams, Transfers& transfers)
      : contexts_(contexts), streams_(streams), transfers_(transfers) {}

  // False in nearly every program, at the cost of one load.
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }

  // Maps memory for a module's variable at this address and copies the present contents to it; does
  // nothing for a variable that has its memory. Errors: CUDA_ERROR_OUT_OF_MEMORY: this process uses
  // the address otherwise; the errors of a copy.
  [[nodiscard]] CUresult add(const Module* module, uint64_t address, uint64_t bytes);
  // The module is unloaded: unmaps the memory of its variables.
  void remove(const Module* module);
  [[nodiscard]] bool contains(uint64_t address) const;

  // Called before work is given to `stream`: copies what the program has changed, ahead of the
  // work.
  [[nodiscard]] CUresult send(Stream& stream);
  // Called when the program has synchronised: copies what the device has changed back. Bytes that
  // the program has changed since the last send() keep their value.
  [[nodiscard]] CUresult fetch();
  // Every synchronisation, and every query whether work is done, ends with this: fetch() if
  // `result` is CUDA_SUCCESS. Returns `result`, or the error of fetch().
  [[nodiscard]] CUresult fetch_after(CUresult result) {
    return result == CUDA_SUCCESS && any() ? fetch() : result;
  }

 private:
  struct Variable {
    const Module* module;
    uint64_t address;
    std::vector<std::byte> known;  // the contents after the last copy in either direction
    std::vector<Mapping> pages;
    [[nodiscard]] std::byte* here() const { return reinterpret_cast<std::byte*>(address); }
  };

  CUresult give_pages(Variable* variable) REQUIRES(lock_);
  CUresult fetch_locked(Stream& stream, Variable& variable) REQUIRES(lock_);
  CUresult own_stream(Stream** stream) REQUIRES(lock_);

  const Contexts& contexts_;
  Streams& streams_;
  Transfers& transfers_;

  std::atomic<bool> any_{false};
  mutable Mutex lock_{LockRank::kClientManagedVariables};
  std::vector<Variable> variables_ GUARDED_BY(lock_);
  std::vector<std::byte> fresh_ GUARDED_BY(lock_);  // a part of a variable, as the device has it
  // For what is read back: it must not wait for work that the program has not waited for.
  uint64_t stream_ GUARDED_BY(lock_) = 0;
};

}  // namespace openmps::client
