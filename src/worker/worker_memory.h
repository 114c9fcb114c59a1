// SPDX-License-Identifier: Apache-2.0
// The memory of a session: physical device memory mapped into its window, host memory registered
// with the driver, and the globals of its modules. Grants count against the client's limit, and
// what is granted is what commands may name. Session's thread only.
//
// Physical memory is created so that it can be exported: the server will keep a descriptor of every
// object, which is what lets memory outlive a faulted worker (DESIGN section 5).
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "worker/reply_writer.h"
#include "worker/session_core.h"

namespace openmps::worker {

class SessionMemory {
 public:
  explicit SessionMemory(SessionCore& core) : core_(core) {}

  // Register the part of the channel that the GPU reads and writes; sets core.channel_delta.
  Status register_channel();
  // Physical memory appears in the window. CUDA_ERROR_OUT_OF_MEMORY beyond the client's limit, as
  // CUDA_MPS_PINNED_DEVICE_MEM_LIMIT behaves.
  Status map(const wire::MemoryRange& range);
  // Whole mappings only. The caller has seen to it that nothing of the session uses them.
  Status unmap(const wire::MemoryRange& range);
  Status register_host(const wire::MemoryRange& range);
  Status unregister_host(const wire::MemoryRange& range);
  // cuMemGetInfo as the client's limit makes it.
  Status info(const wire::DeviceOnly& command, ReplyWriter& reply);

  // A module's global may be named by copies while the module is loaded.
  void add_global(uint64_t address, uint64_t bytes);
  void remove_global(uint64_t address) { ranges_.erase(address); }

  // Every byte of [address, address + bytes) belongs to the session.
  [[nodiscard]] bool contains(uint64_t address, uint64_t bytes) const;
  // The same as a Status, for the operand of a command. `role`: "source".
  [[nodiscard]] Status check_operand(uint64_t address, uint64_t bytes, const char* role) const;

  // Give everything back; the session's work has drained. Errors are not reported: after a fault
  // the driver refuses, and there is nothing left to do about it.
  void release_all();

  [[nodiscard]] uint64_t granted(uint32_t device) const { return granted_[device]; }

 private:
  enum class Kind { kDeviceMemory, kRegistered, kGlobal };
  struct Range {
    uint64_t end = 0;
    Kind kind = Kind::kGlobal;
    uint32_t device = 0;
    CUmemGenericAllocationHandle physical = 0;
  };
  using Ranges = std::map<uint64_t, Range>;

  Status reserve_window();
  Status create_and_map(const wire::MemoryRange& range, CUmemGenericAllocationHandle* physical);
  [[nodiscard]] bool is_free(uint64_t begin, uint64_t end) const;
  void release(Ranges::iterator it);

  SessionCore& core_;
  Ranges ranges_;  // disjoint, by start address
  std::array<uint64_t, wire::kMaxDevices> granted_{};
  bool window_reserved_ = false;
};

}  // namespace openmps::worker
