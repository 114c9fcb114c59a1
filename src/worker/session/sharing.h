// SPDX-License-Identifier: Apache-2.0
// Memory and events that one session shares with others (cuIpc*, exported pool pointers). What is
// opened is mapped at the opener's own addresses, so neither side's free or death takes anything
// from the other. Session's thread only.
#pragma once

#include "worker/memory/memory.h"
#include "worker/streams/event.h"

namespace openmps::worker {

class Sharing {
 public:
  Sharing(SessionCore& core, SessionMemory& memory, Events& events)
      : core_(core), memory_(memory), events_(events) {}

  // The whole mapping that begins at range.address.
  Status handle(const wire::MemoryPublish& command, ReplyTo<wire::MemoryPublish> reply);
  Status handle(const wire::MemoryWithdraw& command);
  // CUDA_ERROR_INVALID_HANDLE: the key names nothing, or not memory of this size.
  Status handle(const wire::MemoryOpen& command, ReplyTo<wire::MemoryOpen> reply);
  Status handle(const wire::EventPublish& command, Event& event, ReplyTo<wire::EventPublish> reply);
  Status handle(const wire::EventOpen& command);
  void release_all() { core_.commons.exchange.withdraw_all(core_.info.id); }

 private:
  SessionCore& core_;
  SessionMemory& memory_;
  Events& events_;
};

}  // namespace openmps::worker
