// SPDX-License-Identifier: Apache-2.0
// See giving_up.h.
#include "worker/session/giving_up.h"

#include <memory>
#include <utility>

#include "worker/device/driver_check.h"

namespace openmps::worker {

Status GivingUp::handle(const wire::MemoryMap& command) {
  retirement_.sweep();
  return memory_.map(command);
}

Status GivingUp::handle(const wire::PhysicalCreate& command) {
  retirement_.sweep();
  return physical_.create(command);
}

// Memory whose last user has ended is free, also if nobody has looked since.
Status GivingUp::handle(const wire::MemoryInfo& command, ReplyTo<wire::MemoryInfo> reply) {
  retirement_.sweep();
  return memory_.info(command.device, reply);
}

// The client says that the range is idle. Work that still used it would fault, for everybody; so
// would a copy that has been asked for beside it.
Status GivingUp::handle(const wire::MemoryUnmap& command) {
  if ((command.flags & wire::kUnmapAtOnce) != 0) {
    words_.settle();
    return memory_.unmap(command.address, command.bytes);
  }
  uint64_t ticket = 0;
  OPENMPS_RETURN_IF_ERROR(memory_.begin_unmap(command, &ticket));
  const GivenUp memory{wire::ReturnKind::kDeviceMemory, command.address, command.bytes};
  retirement_.add(memory, [this, command, ticket] {
    words_.settle();
    memory_.finish_unmap(command, ticket);
    core_.view.header().unmapped.store(ticket, std::memory_order_release);
    wake_client(core_.view.header());
  });
  return Status();
}

// The program may register again what it has just unregistered.
Status GivingUp::handle(const wire::HostRegister& command) {
  retirement_.sweep();
  return memory_.register_host(command);
}

Status GivingUp::handle(const wire::HostUnregister& command) {
  uint64_t ticket = 0;
  OPENMPS_RETURN_IF_ERROR(memory_.begin_unregister(command, &ticket));
  const GivenUp memory{wire::ReturnKind::kHostMemory, command.address, command.bytes};
  retirement_.add(memory, [this, command, ticket] { memory_.finish_unregister(command, ticket); });
  return Status();
}

Status GivingUp::handle(const wire::HostReserve& command, ReplyTo<wire::HostReserve> reply) {
  retirement_.sweep();
  uint64_t address = 0;
  OPENMPS_RETURN_IF_ERROR(memory_.reserve_host(command, &address));
  reply.put({address});
  return Status();
}

Status GivingUp::handle(const wire::GreenDestroy& command) {
  if (greens_.greens().find(command.green)->streams != 0) {
    return violation("a green context that still has streams");
  }
  std::shared_ptr<ClientGreen> green = greens_.take(command.green);
  streams_.end_green(*green);
  const GivenUp given_up{wire::ReturnKind::kGreenContext, 0, wire::kGreenContextBytes};
  retirement_.add(given_up, [this, green = std::move(green)] { streams_.drop_green(*green); });
  return Status();
}

}  // namespace openmps::worker
