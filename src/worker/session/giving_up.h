// SPDX-License-Identifier: Apache-2.0
// The commands by which a session gives up what its streams may still use, and those that count on
// what has gone: it is given back behind the streams (Retirement), and whoever asks for memory
// first lets go whatever can go. docs/wire-format.md, "Giving up". Session's thread only.
#pragma once

#include "wire/commands/device.h"
#include "wire/commands/green.h"
#include "worker/core/reply_writer.h"
#include "worker/core/session_core.h"
#include "worker/memory/memory.h"
#include "worker/memory/physical.h"
#include "worker/streams/device_words.h"
#include "worker/streams/green.h"
#include "worker/streams/retirement.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

class GivingUp {
 public:
  GivingUp(SessionCore& core, SessionMemory& memory, PhysicalObjects& physical,
           GreenContexts& greens, Streams& streams, Retirement& retirement, DeviceWords& words)
      : core_(core),
        memory_(memory),
        physical_(physical),
        greens_(greens),
        streams_(streams),
        retirement_(retirement),
        words_(words) {}

  // What the session has given up and no longer uses is there for it again.
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
  Retirement& retirement_;
  DeviceWords& words_;
};

}  // namespace openmps::worker
