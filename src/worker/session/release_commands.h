// SPDX-License-Identifier: Apache-2.0
// The commands that release what the session's streams may still use, and the commands that need
// what has been released. A release happens behind the streams' work (DeferredReleases); a command
// that asks for memory first performs the releases that are due. docs/wire-format.md, "Deferred
// releases". Session's thread only.
#pragma once

#include "wire/commands/device.h"
#include "wire/commands/green.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/memory/memory.h"
#include "worker/memory/physical.h"
#include "worker/streams/device_words.h"
#include "worker/streams/green.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

class ReleaseCommands {
 public:
  ReleaseCommands(SessionCore& core, SessionMemory& memory, PhysicalObjects& physical,
                  GreenContexts& greens, Streams& streams, DeviceWords& words)
      : core_(core),
        memory_(memory),
        physical_(physical),
        greens_(greens),
        streams_(streams),
        words_(words) {}

  // These perform the releases that are due before they allocate or count.
  Status handle(const wire::MemoryMap& command);
  Status handle(const wire::PhysicalCreate& command);
  Status handle(const wire::MemoryInfo& command, ReplyTo<wire::MemoryInfo> reply);

  Status handle(const wire::MemoryUnmap& command);
  Status handle(const wire::HostRegister& command);
  Status handle(const wire::HostUnregister& command);
  Status handle(const wire::HostReserve& command, ReplyTo<wire::HostReserve> reply);
  Status handle(const wire::GreenDestroy& command);

 private:
  SessionCore& core_;
  SessionMemory& memory_;
  PhysicalObjects& physical_;
  GreenContexts& greens_;
  Streams& streams_;
  DeviceWords& words_;
};

}  // namespace openmps::worker
