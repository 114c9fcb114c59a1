// SPDX-License-Identifier: Apache-2.0
// Physical memory that a program creates and maps by itself (cuMemCreate), and its export to other
// processes as a descriptor. The driver's descriptors are passed on unchanged: the memory lives as
// long as any process holds one, even after the session that exported it. Session's thread only,
// except the inbox.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "worker/core/object_table.h"
#include "worker/memory/memory.h"

namespace openmps::worker {

// Descriptors that a client has sent, until the command with a descriptor's ticket takes it. The
// main thread puts, the session's thread takes.
class DescriptorInbox {
 public:
  void put(uint32_t ticket, UniqueFd descriptor);
  std::function<void()> while_waiting = [] {};
  // Waits, since descriptor and command come by different ways, and calls while_waiting now and
  // then. Invalid: the descriptor did not come.
  [[nodiscard]] UniqueFd take(uint32_t ticket);
  [[nodiscard]] bool empty() const {
    const MutexLock lock(mutex_);
    return descriptors_.empty();
  }

 private:
  mutable Mutex mutex_{LockRank::kDescriptorInbox};
  CondVar arrived_;
  std::deque<std::pair<uint32_t, UniqueFd>> descriptors_ GUARDED_BY(mutex_);
};

class PhysicalObjects {
  struct Object;

 public:
  PhysicalObjects(SessionCore& core, SessionMemory& memory) : core_(core), memory_(memory) {}

  Status create(const wire::PhysicalCreate& command);
  // Mappings of the memory are kept.
  Status handle(const wire::PhysicalRelease& command);
  Status handle(const wire::PhysicalMap& command, Object& object);
  // Sends the descriptor to the client before the reply.
  Status handle(const wire::PhysicalExport& command, Object& object);
  // Sends a range of mapped device memory as a dma-buf, which other devices' drivers can import.
  // CUDA_ERROR_INVALID_VALUE: it is not mapped; others: the driver's.
  Status handle(const wire::RangeExport& command);
  Status handle(const wire::PhysicalImport& command, ReplyTo<wire::PhysicalImport> reply);
  // Map a file of the program's own memory.
  Status handle(const wire::HostMap& command);
  [[nodiscard]] const auto& objects() const { return objects_; }
  void release_all() { objects_.clear(); }

  DescriptorInbox inbox;
  // Sends a descriptor to the client. Empty: the session can't (tests).
  std::function<void(uint32_t ticket, int descriptor)> send;

 private:
  Result<Keeper::Taken> take_memory(uint32_t ticket);
  struct Object {
    std::shared_ptr<Holding> holding;
  };

  SessionCore& core_;
  SessionMemory& memory_;
  ObjectTable<Object> objects_{"physical memory"};
};

}  // namespace openmps::worker
