// SPDX-License-Identifier: Apache-2.0
// Memory for the variables of a session's modules, at addresses of the session's own: it is kept as
// all memory of the session is, so the variables outlive the worker's context (decision 42). The
// code is changed to use them there (image_variables.h). Session's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "worker/core/session_core.h"
#include "worker/images/image_variables.h"
#include "worker/memory/memory.h"

namespace openmps::worker {

class VariableMemory {
 public:
  VariableMemory(SessionCore& core, SessionMemory& memory) : core_(core), memory_(memory) {}

  // Where variables lie: their address, and the number under which the server keeps the memory.
  struct Place {
    uint64_t address = 0;
    uint64_t number = 0;
  };
  // Memory for the variables, with what they contain at first; the caller counts their bytes. While
  // the session is made again: at `*place`, with the contents that are there. Errors:
  // CUDA_ERROR_OUT_OF_MEMORY; the driver's.
  Status take(uint32_t device, const VariableLayout& layout, Place* place);
  // Nothing uses the variables any more.
  void give_back(uint64_t address);
  // All memory of the session goes.
  void release_all() {
    pages_.clear();
    extents_.clear();
    next_ = end_ = 0;
  }

 private:
  // One piece of physical memory: of wire::kMemoryGranularity for the variables of several modules,
  // or larger, for those of one.
  struct Page {
    uint64_t bytes = 0;
    uint64_t used = 0;  // bytes from the start; 0 again when the last module has gone
    uint32_t modules = 0;
    uint32_t device = 0;
    uint64_t number = 0;  // wire::Keep::number
  };
  using Pages = std::map<uint64_t, Page>;  // by address

  Status find_page(uint32_t device, uint64_t bytes, Pages::iterator* page);
  Status adopt_page(uint32_t device, const Place& place, uint64_t bytes, Pages::iterator* page);
  Status map_page(uint32_t device, uint64_t address, uint64_t bytes);
  Status fill(uint32_t device, uint64_t address, const VariableLayout& layout);

  SessionCore& core_;
  SessionMemory& memory_;
  Pages pages_;
  std::set<uint64_t> extents_;  // by address
  uint64_t next_ = 0;           // free addresses of the last extent, up to
  uint64_t end_ = 0;
};

}  // namespace openmps::worker
