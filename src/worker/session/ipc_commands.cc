// SPDX-License-Identifier: Apache-2.0
// See ipc_commands.h.
#include "worker/session/ipc_commands.h"

#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

Status no_keys() {
  return Status(CUDA_ERROR_OUT_OF_MEMORY, "the session shares as much as it may");
}

}  // namespace

Status IpcCommands::handle(const wire::MemoryPublish& command, ReplyTo<wire::MemoryPublish> reply) {
  const std::shared_ptr<Holding> holding = memory_.mapped_at(command.address);
  if (holding == nullptr || holding->physical->bytes != command.bytes) {
    return violation("what is to be published is no whole mapping");
  }
  wire::ShareKey key;
  if (const auto* former = core_.journal.recorded<wire::MemoryPublish::Reply>()) {
    key = former->key;
    if (!exchange_.publish_again(core_.info.id, holding->physical, key)) return no_keys();
  } else if (!exchange_.publish(core_.info.id, holding->physical, &key)) {
    return no_keys();
  }
  memory_.share(*holding, key);
  reply.put({key});
  return Status();
}

Status IpcCommands::handle(const wire::MemoryWithdraw& command) {
  if (!exchange_.withdraw(core_.info.id, command.key)) {
    return violation("a command that the session did not publish");
  }
  memory_.withdraw(command.key);
  return Status();
}

Status IpcCommands::handle(const wire::MemoryOpen& command, ReplyTo<wire::MemoryOpen> reply) {
  KeptMemory kept;
  const bool is_adopting = core_.journal.is_adopting();
  std::shared_ptr<Physical> physical = is_adopting ? nullptr : exchange_.memory(command.key);
  if (physical == nullptr) {
    Result<std::shared_ptr<Physical>> imported =
        is_adopting ? memory_.import_kept(command.bytes, &kept)
                    : memory_.import_shared(command.key, command.bytes, &kept);
    if (!imported.ok()) return imported.status();
    physical = std::move(*imported);
    physical->set_shared();
  } else if (physical->bytes != command.bytes) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "the handle names memory of another size");
  } else {
    kept = memory_.keep(physical);
  }
  const uint32_t device = physical->device;
  std::shared_ptr<Holding> holding;
  OPENMPS_RETURN_IF_ERROR(memory_.hold(std::move(physical), std::move(kept), &holding));
  OPENMPS_RETURN_IF_ERROR(memory_.map_held(std::move(holding), command.address, command.bytes, 0));
  Status status =
      memory_.handle(wire::MemoryAccess{command.address, command.bytes, device,
                                        static_cast<uint32_t>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)});
  if (!status.ok()) {
    static_cast<void>(memory_.unmap(command.address, command.bytes).ok());
    return status;
  }
  reply.put({device});
  return Status();
}

Status IpcCommands::handle(const wire::EventPublish&, Event& event,
                           ReplyTo<wire::EventPublish> reply) {
  std::shared_ptr<DriverEvent> shared;
  OPENMPS_RETURN_IF_ERROR(events_.share(event, &shared));
  wire::ShareKey key;
  if (!exchange_.publish(core_.info.id, std::move(shared), &key)) return no_keys();
  reply.put({key});
  return Status();
}

Status IpcCommands::handle(const wire::EventOpen& command) {
  std::shared_ptr<DriverEvent> event = exchange_.event(command.key);
  if (event == nullptr) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "the handle names no shared event");
  }
  return events_.adopt(command.event, command.flags, std::move(event));
}

}  // namespace openmps::worker
