// SPDX-License-Identifier: Apache-2.0
// The commands by which sessions exchange memory and events under keys (cuIpc*, exported pool
// pointers). The session that opens memory maps it at addresses of its own and becomes an owner of
// it, so it outlives the session that published it. Session's thread only.
#pragma once

#include "worker/ipc/exchange.h"
#include "worker/memory/memory.h"
#include "worker/streams/event.h"

namespace openmps::worker {

class IpcCommands {
 public:
  IpcCommands(SessionCore& core, Exchange& exchange, SessionMemory& memory, Events& events)
      : core_(core), exchange_(exchange), memory_(memory), events_(events) {}

  // The whole mapping that begins at range.address.
  Status handle(const wire::MemoryPublish& command, ReplyTo<wire::MemoryPublish> reply);
  Status handle(const wire::MemoryWithdraw& command);
  // CUDA_ERROR_INVALID_HANDLE: the key names nothing, or not memory of this size.
  Status handle(const wire::MemoryOpen& command, ReplyTo<wire::MemoryOpen> reply);
  Status handle(const wire::EventPublish& command, Event& event, ReplyTo<wire::EventPublish> reply);
  Status handle(const wire::EventOpen& command);
  void release_all() { exchange_.withdraw_all(core_.info.id); }

 private:
  SessionCore& core_;
  Exchange& exchange_;
  SessionMemory& memory_;
  Events& events_;
};

}  // namespace openmps::worker
