// SPDX-License-Identifier: Apache-2.0
// What processes share. See ipc.h.
#include "softgpu/device/memory/ipc.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/shared_memory.h"
#include "softgpu/device/contexts/context.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/memory/pool.h"

namespace openmps::softgpu {
namespace {

constexpr uint32_t kTicketMagic = 0x54474653;  // "SFGT"

Status out_of_memory() {
  return Status(CUDA_ERROR_OUT_OF_MEMORY, "no memory or no descriptors left to share");
}

Ticket ticket_of(TicketKind kind, const SharedFile& file) {
  Ticket ticket;
  ticket.magic = kTicketMagic;
  ticket.kind = kind;
  ticket.owner = getpid();
  ticket.descriptor = file.file.get();
  ticket.key = file.key;
  return ticket;
}

void* map_shared(int descriptor, uint64_t bytes) {
  void* at =
      mmap(nullptr, round_to_pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) return nullptr;
  keep_from_dumps(reinterpret_cast<uint64_t>(at), round_to_pages(bytes));
  return at;
}

}  // namespace

Result<UniqueFd> Ipc::open_file(const Ticket& ticket, TicketKind kind, uint64_t bytes) {
  if (ticket.magic != kTicketMagic || ticket.kind != kind || bytes == 0) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "not a handle of this kind");
  }
  if (ticket.owner == getpid()) {
    return Status(CUDA_ERROR_INVALID_CONTEXT, "the handle is this process's own");
  }
  return open_shared_file(ticket.owner, ticket.descriptor, ticket.key, bytes);
}

// ---- Memory -----------------------------------------------------------------------------------

Result<Ticket> Ipc::export_memory(uint64_t address) {
  MappedRange range;
  if (!driver_->address_space.find_mapped(address, &range) || range.kind != RangeKind::kDevice ||
      range.pool != nullptr) {
    return Status(CUDA_ERROR_INVALID_VALUE, "not memory of cuMemAlloc");
  }
  const std::shared_ptr<const SharedFile> file = driver_->memory.share(range.begin);
  if (file == nullptr) return out_of_memory();
  Ticket ticket = ticket_of(TicketKind::kMemory, *file);
  ticket.bytes = range.bytes;
  ticket.device = driver_->devices[range.device].machine_ordinal;
  return ticket;
}

Result<uint64_t> Ipc::map_file(Context& context, const Ticket& ticket, const UniqueFd& file,
                               CUmemoryPool pool) {
  const auto device =
      std::find_if(driver_->devices.begin(), driver_->devices.end(),
                   [&](const Device& d) { return d.machine_ordinal == ticket.device; });
  if (device == driver_->devices.end()) {
    return Status(CUDA_ERROR_INVALID_DEVICE, "the memory's device is not visible here");
  }
  void* at = map_shared(file.get(), ticket.bytes);
  if (at == nullptr) return out_of_memory();
  return driver_->memory.adopt_shared(context, *device, reinterpret_cast<uint64_t>(at),
                                      ticket.bytes, pool);
}

Result<uint64_t> Ipc::open_memory(Context& context, const Ticket& ticket) {
  Result<UniqueFd> file = open_file(ticket, TicketKind::kMemory, ticket.bytes);
  if (!file.ok()) return file.status();
  const MutexLock lock(mutex_);
  Opened& opened = opened_[ticket.key];
  MappedRange range;
  // It is gone when its context was destroyed in the meantime.
  if (opened.opens > 0 && driver_->address_space.find_mapped(opened.address, &range) &&
      range.id == opened.range) {
    ++opened.opens;
    return opened.address;
  }
  Result<uint64_t> address = map_file(context, ticket, *file, nullptr);
  if (!address.ok()) {
    opened_.erase(ticket.key);
    return address;
  }
  driver_->address_space.find_mapped(*address, &range);
  opened = {*address, range.id, 1};
  return address;
}

Status Ipc::close_memory(uint64_t address) {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(opened_.begin(), opened_.end(), [&](const auto& entry) {
    return entry.second.address == address;
  });
  if (found == opened_.end()) {
    return Status(CUDA_ERROR_INVALID_VALUE, "nothing was opened at the address");
  }
  if (--found->second.opens > 0) return Status();
  opened_.erase(found);
  return driver_->memory.release_shared(address);
}

// ---- Pointers into pools ----------------------------------------------------------------------

Result<Ticket> Ipc::export_pooled(uint64_t address) {
  MappedRange range;
  const bool ours = driver_->address_space.find_mapped(address, &range) &&
                    range.kind == RangeKind::kDevice && range.begin == address;
  const std::shared_ptr<MemoryPool> pool = ours ? driver_->memory_pools.find(range.pool) : nullptr;
  if (pool == nullptr || pool->file == nullptr) {
    return Status(CUDA_ERROR_INVALID_VALUE, "not memory of a pool that can be exported");
  }
  const std::shared_ptr<const SharedFile> file = driver_->memory.share(address);
  if (file == nullptr) return out_of_memory();
  Ticket ticket = ticket_of(TicketKind::kPooled, *file);
  ticket.bytes = range.bytes;
  ticket.device = driver_->devices[range.device].machine_ordinal;
  ticket.pool = pool->key;
  return ticket;
}

Result<uint64_t> Ipc::import_pooled(Context& context, const MemoryPool& pool,
                                    const Ticket& ticket) {
  if (!pool.imported || ticket.pool != pool.key) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the pointer is not one of the pool's");
  }
  Result<UniqueFd> file = open_file(ticket, TicketKind::kPooled, ticket.bytes);
  if (!file.ok()) return file.status();
  return map_file(context, ticket, *file, pool.handle);
}

// ---- Events -----------------------------------------------------------------------------------

SharedEvent::~SharedEvent() {
  MappedRange range;
  driver->address_space.remove(reinterpret_cast<uint64_t>(counters), &range);
  munmap(counters, round_to_pages(sizeof(Counters)));
}

Result<std::shared_ptr<SharedEvent>> Ipc::map_event(int descriptor) {
  void* at = map_shared(descriptor, sizeof(SharedEvent::Counters));
  if (at == nullptr) return out_of_memory();
  MappedRange range;
  range.begin = reinterpret_cast<uint64_t>(at);
  range.bytes = sizeof(SharedEvent::Counters);
  range.end = range.begin + range.bytes;
  range.kind = RangeKind::kInternal;
  auto event = std::make_shared<SharedEvent>();
  event->driver = driver_;
  event->counters = static_cast<SharedEvent::Counters*>(at);
  OPENMPS_RETURN_IF_ERROR(driver_->address_space.insert(range));
  return event;
}

Result<std::shared_ptr<SharedEvent>> Ipc::make_event() {
  std::shared_ptr<const SharedFile> file = make_shared_file(sizeof(SharedEvent::Counters));
  if (file == nullptr) return out_of_memory();
  Result<std::shared_ptr<SharedEvent>> event = map_event(file->file.get());
  if (event.ok()) (*event)->file = std::move(file);
  return event;
}

Result<Ticket> Ipc::export_event(const SharedEvent* event) {
  if (event == nullptr || event->file == nullptr) {
    return Status(CUDA_ERROR_INVALID_VALUE, "the event was not made for other processes");
  }
  return ticket_of(TicketKind::kEvent, *event->file);
}

Result<std::shared_ptr<SharedEvent>> Ipc::open_event(const Ticket& ticket) {
  Result<UniqueFd> file = open_file(ticket, TicketKind::kEvent, sizeof(SharedEvent::Counters));
  if (!file.ok()) return file.status();
  return map_event(file->get());
}

}  // namespace openmps::softgpu
