// SPDX-License-Identifier: Apache-2.0
// __managed__ variables. The driver places them in the worker's process, at an address of its
// choice that device code has built in; here the same address is ordinary memory that follows the
// variable: what the program has written goes to the device before its next work, what the device
// has written comes back when the program synchronises. So both sides may use a variable in turns,
// as on GPUs without concurrent managed access (CUDA C++ Programming Guide, "Unified Memory"), not
// at the same time. Any thread.
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

  // The variable of a module at this address gets its memory here, with its present contents; does
  // nothing if it has it. Errors: CUDA_ERROR_OUT_OF_MEMORY: something of this process lies at the
  // address; those of a copy.
  [[nodiscard]] CUresult add(const Module* module, uint64_t address, uint64_t bytes);
  // The module goes, and its variables' memory with it.
  void remove(const Module* module);
  [[nodiscard]] bool contains(uint64_t address) const;

  // Before work is given to `stream`: what the program has changed goes ahead of it.
  [[nodiscard]] CUresult send(Stream& stream);
  // The program has synchronised: what the device has changed becomes visible. Bytes that the
  // program has changed since the last send() keep their value.
  [[nodiscard]] CUresult fetch();
  // What every synchronisation of the program ends with, and every question whether work is done:
  // fetch(), if the answer is CUDA_SUCCESS. Returns `result`, or why they could not be brought.
  [[nodiscard]] CUresult fetch_after(CUresult result) {
    return result == CUDA_SUCCESS && any() ? fetch() : result;
  }

 private:
  struct Variable {
    const Module* module;
    uint64_t address;
    std::vector<std::byte> known;  // what both sides last agreed on
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
  std::vector<std::byte> fresh_ GUARDED_BY(lock_);  // a piece of a variable, as the device has it
  // For what is read back: it must not wait for work that the program has not waited for.
  uint64_t stream_ GUARDED_BY(lock_) = 0;
};

}  // namespace openmps::client
