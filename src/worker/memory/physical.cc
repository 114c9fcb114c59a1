// SPDX-License-Identifier: Apache-2.0
// See physical.h.
#include "worker/memory/physical.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// The longest wait for a descriptor, which is sent before its command: for an overloaded machine.
constexpr uint64_t kArrivalLimitNs = 10'000 * kNsPerMs;
// Between two calls of while_waiting.
constexpr uint64_t kWaitingNs = kNsPerMs;

}  // namespace

// Of a client that sends more descriptors than wire::kMaxPassing the oldest is closed.
void DescriptorInbox::put(uint32_t ticket, UniqueFd descriptor) {
  const MutexLock lock(mutex_);
  if (descriptors_.size() >= wire::kMaxPassing) descriptors_.pop_front();
  descriptors_.emplace_back(ticket, std::move(descriptor));
  arrived_.notify_all();
}

UniqueFd DescriptorInbox::take(uint32_t ticket) {
  const uint64_t limit_ns = now_ns() + kArrivalLimitNs;
  const MutexLock lock(mutex_);
  for (bool in_time = true;; in_time = now_ns() < limit_ns) {
    const auto found = std::ranges::find(descriptors_, ticket,
                                         [](const auto& descriptor) { return descriptor.first; });
    if (found != descriptors_.end()) {
      UniqueFd descriptor = std::move(found->second);
      descriptors_.erase(found);
      return descriptor;
    }
    if (!in_time) return UniqueFd();
    if (arrived_.wait_until(mutex_, now_ns() + kWaitingNs)) continue;
    const MutexUnlock unlocked(mutex_);
    while_waiting();
  }
}

// From the program, or what the server has kept of it.
Result<Keeper::Taken> PhysicalObjects::take_memory(uint32_t ticket) {
  if (core_.journal.is_adopting()) return memory_.take_kept();
  Keeper::Taken taken;
  taken.memory = inbox.take(ticket);
  if (taken.memory.valid()) return taken;
  return Status(CUDA_ERROR_OPERATING_SYSTEM, "the descriptor did not arrive");
}

Status PhysicalObjects::create(const wire::PhysicalCreate& command) {
  auto object = std::make_unique<Object>();
  OPENMPS_RETURN_IF_ERROR(
      memory_.create(command.device, command.bytes, command.flags, &object->holding));
  return objects_.insert(command.physical, std::move(object));
}

Status PhysicalObjects::handle(const wire::PhysicalRelease& command) {
  return objects_.end(command.physical);
}

Status PhysicalObjects::handle(const wire::PhysicalMap& command, Object& object) {
  return memory_.map_held(object.holding, command.address, command.bytes, command.offset);
}

Status PhysicalObjects::handle(const wire::PhysicalExport& command, Object& object) {
  if (send == nullptr) return Status(CUDA_ERROR_NOT_SUPPORTED, "there is no way for descriptors");
  int exported = -1;
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuMemExportToShareableHandle(&exported, object.holding->physical->handle,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "cuMemExportToShareableHandle"));
  memory_.note_exported(*object.holding);
  const UniqueFd descriptor(exported);
  send(command.ticket, descriptor.get());
  return Status();
}

Status PhysicalObjects::handle(const wire::RangeExport& command) {
  if (command.address % wire::kHostPageBytes != 0 || command.bytes % wire::kHostPageBytes != 0 ||
      (command.flags & ~CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE) != 0) {
    return violation("a dma-buf of " + std::to_string(command.bytes) + " bytes with the flags " +
                     std::to_string(command.flags));
  }
  uint32_t device = 0;
  OPENMPS_RETURN_IF_ERROR(memory_.find_mapped(command.address, command.bytes, &device));
  if (send == nullptr || core_.driver.cuMemGetHandleForAddressRange == nullptr) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "there is no way for dma-bufs");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  int exported = -1;
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemGetHandleForAddressRange(
                                    &exported, command.address, command.bytes,
                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, command.flags),
                                "cuMemGetHandleForAddressRange"));
  memory_.lend(command.address, command.bytes);
  const UniqueFd descriptor(exported);
  send(command.ticket, descriptor.get());
  return Status();
}

Status PhysicalObjects::handle(const wire::PhysicalImport& command,
                               ReplyTo<wire::PhysicalImport> reply) {
  Result<Keeper::Taken> taken = take_memory(command.ticket);
  if (!taken.ok()) return taken.status();
  OPENMPS_RETURN_IF_ERROR(core_.use(core_.devices.home()));
  const Result<CUmemGenericAllocationHandle> imported =
      import_memory(core_.driver, taken->memory.get());
  if (!imported.ok()) return imported.status();
  const CUmemGenericAllocationHandle handle = *imported;
  // Find the device that the memory is on; the driver does not say how large the memory is.
  CUmemAllocationProp prop{};
  Status status = check(core_.driver.cuMemGetAllocationPropertiesFromHandle(&prop, handle),
                        "cuMemGetAllocationPropertiesFromHandle");
  const std::span<const uint32_t> used = core_.devices.used();
  const auto found = std::ranges::find_if(
      used, [&](uint32_t device) { return core_.devices.at(device).handle == prop.location.id; });
  if (status.ok() && found == used.end()) {
    status = Status(CUDA_ERROR_INVALID_DEVICE, "imported memory of another device");
  }
  if (!status.ok()) {
    core_.driver.cuMemRelease(handle);
    return status;
  }
  const uint32_t device = *found;
  auto object = std::make_unique<Object>();
  const auto physical = std::make_shared<Physical>(core_.driver, handle, 0, device);
  KeptMemory kept = core_.journal.is_adopting()
                        ? std::move(taken->kept)
                        : memory_.keep_now(physical->bytes, device, taken->memory.get());
  OPENMPS_RETURN_IF_ERROR(memory_.hold(physical, std::move(kept), &object->holding));
  OPENMPS_RETURN_IF_ERROR(objects_.insert(command.physical, std::move(object)));
  reply.put({device});
  return Status();
}

Status PhysicalObjects::handle(const wire::HostMap& command) {
  OPENMPS_RETURN_IF_ERROR(memory_.check_host_map(command));
  Result<Keeper::Taken> taken = take_memory(command.ticket);
  if (!taken.ok()) return taken.status();
  const int file = taken->memory.get();
  if (!core_.journal.is_adopting()) taken->kept = memory_.keep_now(0, 0, file);
  return memory_.map_host(command, file, std::move(taken->kept));
}

}  // namespace openmps::worker
