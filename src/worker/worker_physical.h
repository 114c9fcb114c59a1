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
#include "worker/object_table.h"
#include "worker/worker_memory.h"

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
 public:
  PhysicalObjects(SessionCore& core, SessionMemory& memory) : core_(core), memory_(memory) {}

  Status create(const wire::PhysicalCreate& command);
  // What is mapped stays.
  Status release(wire::Id id);
  Status map(const wire::PhysicalMap& command);
  // The descriptor goes to the client before the reply.
  Status export_descriptor(const wire::PhysicalTicket& command);
  // Likewise of a range of mapped device memory, as a dma-buf that other devices' drivers take.
  // CUDA_ERROR_INVALID_VALUE: it is not mapped; what the driver says.
  Status export_range(const wire::RangeExport& command);
  Status import_descriptor(const wire::PhysicalTicket& command, ReplyWriter& reply);
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
