// SPDX-License-Identifier: Apache-2.0
// See release_commands.h.
#include "worker/session/release_commands.h"

#include <memory>
#include <utility>

#include "worker/device/driver_check.h"

namespace openmps::worker {

Status ReleaseCommands::handle(const wire::MemoryMap& command) {
  core_.releases.sweep();
  return memory_.map(command);
}

Status ReleaseCommands::handle(const wire::PhysicalCreate& command) {
  core_.releases.sweep();
  return physical_.create(command);
}

// Memory counts as free from the end of the last work that used it.
Status ReleaseCommands::handle(const wire::MemoryInfo& command, ReplyTo<wire::MemoryInfo> reply) {
  core_.releases.sweep();
  return memory_.info(command.device, reply);
}

// With kUnmapAtOnce the client says that the range is idle. Work that still used the range would
// fault and so end all sessions; so would a copy of a device word that is still under way there.
Status ReleaseCommands::handle(const wire::MemoryUnmap& command) {
  if ((command.flags & wire::kUnmapAtOnce) != 0) {
    words_.settle();
    return memory_.unmap(command.address, command.bytes);
  }
  uint64_t ticket = 0;
  OPENMPS_RETURN_IF_ERROR(memory_.begin_unmap(command, &ticket));
  const GivenUp memory{wire::ReturnKind::kDeviceMemory, command.address, command.bytes};
  core_.releases.add_behind_work(memory, [this, command, ticket] {
    words_.settle();
    memory_.finish_unmap(command, ticket);
    core_.view.header().unmapped.store(ticket, std::memory_order_release);
    wake_client(core_.view.header());
  });
  return Status();
}

// The program may register again memory whose unregistration is not due yet.
Status ReleaseCommands::handle(const wire::HostRegister& command) {
  core_.releases.sweep();
  return memory_.register_host(command);
}

Status ReleaseCommands::handle(const wire::HostUnregister& command) {
  uint64_t ticket = 0;
  OPENMPS_RETURN_IF_ERROR(memory_.begin_unregister(command, &ticket));
  const GivenUp memory{wire::ReturnKind::kHostMemory, command.address, command.bytes};
  core_.releases.add_behind_work(
      memory, [this, command, ticket] { memory_.finish_unregister(command, ticket); });
  return Status();
}

Status ReleaseCommands::handle(const wire::HostReserve& command, ReplyTo<wire::HostReserve> reply) {
  core_.releases.sweep();
  uint64_t address = 0;
  OPENMPS_RETURN_IF_ERROR(memory_.reserve_host(command, &address));
  reply.put({address});
  return Status();
}

Status ReleaseCommands::handle(const wire::GreenDestroy& command) {
  if (greens_.greens().find(command.green)->streams != 0) {
    return violation("a green context that still has streams");
  }
  std::shared_ptr<ClientGreen> green = greens_.take(command.green);
  streams_.end_green(*green);
  const GivenUp given_up{wire::ReturnKind::kGreenContext, 0, wire::kGreenContextBytes};
  core_.releases.add_behind_work(given_up,
                                 [this, green = std::move(green)] { streams_.drop_green(*green); });
  return Status();
}

}  // namespace openmps::worker
