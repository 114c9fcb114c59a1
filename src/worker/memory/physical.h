// SPDX-License-Identifier: Apache-2.0
// Physical memory that a program creates and maps by itself (cuMemCreate), and the way of device
// memory between processes as a descriptor. The driver's descriptors are handed out as they are:
// the memory lives as long as any process holds one, whatever becomes of the session that exported
// it. Session's thread only, but for the inbox.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "base/unique_fd.h"
#include "worker/core/object_table.h"
#include "worker/memory/memory.h"

namespace openmps::worker {

// Descriptors that a client has sent, until the command of the same ticket takes them. The main
// thread puts, the session's thread takes.
class DescriptorInbox {
 public:
  void put(uint32_t ticket, UniqueFd descriptor);
  // Waits, for the descriptor and the command come by different ways. Invalid: it did not come.
  [[nodiscard]] UniqueFd take(uint32_t ticket);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::pair<uint32_t, UniqueFd>> descriptors_;
};

class PhysicalObjects {
  struct Object;

 public:
  PhysicalObjects(SessionCore& core, SessionMemory& memory) : core_(core), memory_(memory) {}

  Status create(const wire::PhysicalCreate& command);
  // What is mapped stays.
  Status handle(const wire::PhysicalRelease& command);
  Status handle(const wire::PhysicalMap& command, Object& object);
  // The descriptor goes to the client before the reply.
  Status handle(const wire::PhysicalExport& command, Object& object);
  // Likewise of a range of mapped device memory, as a dma-buf that other devices' drivers take.
  // CUDA_ERROR_INVALID_VALUE: it is not mapped; what the driver says.
  Status handle(const wire::RangeExport& command);
  Status handle(const wire::PhysicalImport& command, ReplyTo<wire::PhysicalImport> reply);
  // A file of the program's own memory.
  Status handle(const wire::HostMap& command);
  [[nodiscard]] const auto& objects() const { return objects_; }
  void release_all() { objects_.clear(); }

  DescriptorInbox inbox;
  // Send a descriptor to the client. Empty: this session has no way to (tests).
  std::function<void(uint32_t ticket, int descriptor)> send;

 private:
  struct Object {
    std::shared_ptr<Holding> holding;
  };

  SessionCore& core_;
  SessionMemory& memory_;
  ObjectTable<Object> objects_{"physical memory"};
};

}  // namespace openmps::worker
