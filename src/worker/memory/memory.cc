// SPDX-License-Identifier: Apache-2.0
// The memory of a session. See memory.h.
#include "worker/memory/memory.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "worker/device/driver_check.h"
#include "worker/memory/range_check.h"

namespace openmps::worker {
namespace {

// Where an extent may begin and end. NVIDIA's driver moves a large reservation up to a multiple of
// 32 MiB (157 GiB on an H200, driver 580), and fills what it leaves up to the next one with memory
// of its own, which outlives the reservation. This is a multiple of that, for larger pages.
constexpr uint64_t kExtentUnit = uint64_t{1} << 30;

// NVIDIA's driver returns a hole in its reserved addresses that a reservation fits in, whatever
// address it is asked for: so many holes are held until none is left. A hole is as long as an
// extent was (112 GB of JAX's, on an H200).
constexpr int kHoleTries = 256;

// How long cuMemGetInfo waits for descriptors that are being closed: 0.5 to 1.3 ms each (an H200,
// driver 580), of which most programs free a few at once. Longer, and it is an estimate.
constexpr uint64_t kInfoWaitMs = 20;

// Why a session can't move.
constexpr std::string_view kNotExported = "its device's memory can't be exported";
constexpr std::string_view kTooMany = "too many allocations";

// Bytes that are reserved for an extent of so many, kMaxExtentBytes at most.
uint64_t extent_bytes(uint64_t bytes) {
  return (bytes + kExtentUnit - 1) / kExtentUnit * kExtentUnit;
}

// Reserve exactly this range. CUDA_ERROR_OUT_OF_MEMORY if the driver gives others only.
Status reserve_at(const DriverTable& driver, uint64_t address, uint64_t bytes) {
  std::vector<CUdeviceptr> others;
  Status status;
  for (int tries = 0; tries < kHoleTries; ++tries) {
    CUdeviceptr got = 0;
    status = check(driver.cuMemAddressReserve(&got, bytes, 0, address, 0),
                   "cuMemAddressReserve of " + range_text(address, bytes));
    if (!status.ok() || got == address) break;
    others.push_back(got);
    status = Status(CUDA_ERROR_OUT_OF_MEMORY, "the driver reserved " + range_text(got, bytes) +
                                                  " instead of " + range_text(address, bytes));
  }
  for (const CUdeviceptr other : others) driver.cuMemAddressFree(other, bytes);
  return status;
}

}  // namespace

SessionMemory::SessionMemory(SessionCore& core, AddressBook& addresses, MemoryCache& kept,
                             Keeper* keeper, std::shared_ptr<HostStore> store,
                             MemoryPressure& pressure)
    : member(core.bell, [this](uint32_t device) { return borrowed(device); }),
      core_(core),
      group_(core.info.group),
      addresses_(addresses),
      kept_(kept),
      keeper_(keeper),
      store_(std::move(store)),
      pressure_(pressure) {
  pressure_.join(&member);
}

Status SessionMemory::open_channel() {
  const uint64_t host = core_.device_end();
  ranges_[host + wire::kRegisteredOffset] = {.end = host + wire::kRegisteredEnd,
                                             .kind = Kind::kChannel};
  return core_.pages.open(core_.view, &core_.channel_delta);
}

// ---- Addresses ---------------------------------------------------------------------------------

// Reserve the whole device part at the first allocation: a client that never allocates pays
// nothing.
Status SessionMemory::reserve_window() {
  if (window_reserved_) return Status();
  OPENMPS_RETURN_IF_ERROR(reserve_at(core_.driver, core_.window_base(), wire::kDeviceBytes));
  window_reserved_ = true;
  return Status();
}

Status SessionMemory::handle(const wire::AddressReserve& command,
                             ReplyTo<wire::AddressReserve> reply) {
  const bool power = command.alignment != 0 && (command.alignment & (command.alignment - 1)) == 0;
  if (command.bytes == 0 || command.bytes % wire::kMemoryGranularity != 0 || !power ||
      command.alignment < wire::kMemoryGranularity) {
    return violation("an extent of " + std::to_string(command.bytes) + " bytes aligned to " +
                     std::to_string(command.alignment));
  }
  // Of a session that is made again: the addresses that it had.
  const auto* const had = core_.journal.recorded<wire::AddressReserve::Reply>();
  const Result<uint64_t> address =
      reserve_extent(command.bytes, command.alignment, had == nullptr ? 0 : had->address);
  if (!address.ok()) return address.status();
  reply.put({*address});
  return Status();
}

Result<uint64_t> SessionMemory::reserve_extent(uint64_t bytes, uint64_t alignment, uint64_t at) {
  if (extents_.size() >= wire::kMaxExtents || bytes > wire::kMaxExtentBytes ||
      extent_bytes_ > wire::kMaxExtentBytes - bytes) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the session has reserved " +
                                                std::to_string(extent_bytes_) + " bytes in " +
                                                std::to_string(extents_.size()) + " extents");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(core_.devices.home()));
  const uint64_t whole = extent_bytes(bytes);
  const auto reserve = [&](uint64_t address) { return reserve_at(core_.driver, address, whole); };
  if (at == 0) {
    const Result<uint64_t> address =
        addresses_.claim_reserved(whole, std::max(alignment, kExtentUnit), reserve);
    if (!address.ok()) return address.status();
    at = *address;
  } else {
    if (!addresses_.claim(at, whole, core_.info.id)) {
      return Status(CUDA_ERROR_OUT_OF_MEMORY,
                    range_text(at, whole) + " belongs to another session");
    }
    if (Status status = reserve(at); !status.ok()) {
      addresses_.release(at);
      return status;
    }
  }
  extents_[at] = at + bytes;
  show_places();
  extent_bytes_ += bytes;
  return at;
}

// The next workers keep off these places.
void SessionMemory::show_places() {
  uint32_t places = host_places_;
  for (const auto& [begin, end] : extents_) places |= wire::places_of(begin, end);
  core_.journal.note_places(places);
}

Status SessionMemory::handle(const wire::AddressFree& command) {
  const auto extent = extents_.find(command.address);
  if (extent == extents_.end() || extent->second - extent->first != command.bytes) {
    return violation(range_text(command.address, command.bytes) + " is not an extent");
  }
  if (!is_unused(extent->first, extent->second)) {
    return violation(range_text(command.address, command.bytes) + " has mappings");
  }
  forget_kept(command.address, command.bytes);
  core_.driver.cuMemAddressFree(command.address, extent_bytes(command.bytes));
  addresses_.release(command.address);
  extent_bytes_ -= command.bytes;
  extents_.erase(extent);
  show_places();
  return Status();
}

Status SessionMemory::check_device_range(uint64_t address, uint64_t bytes) const {
  uint64_t begin = core_.window_base();
  uint64_t end = core_.device_end();
  const auto above = extents_.upper_bound(address);
  if (above != extents_.begin() && std::prev(above)->second > address) {
    begin = std::prev(above)->first;
    end = std::prev(above)->second;
  }
  return check_range(address, bytes, begin, end, wire::kMemoryGranularity);
}

// ---- Device memory -----------------------------------------------------------------------------

Status SessionMemory::check_count() const {
  if (ranges_.size() + leaving_.size() < wire::kMaxMappings) return Status();
  return Status(CUDA_ERROR_OUT_OF_MEMORY,
                std::to_string(wire::kMaxMappings) + " mappings and registrations are there");
}

bool SessionMemory::is_free(const Ranges& ranges, uint64_t begin, uint64_t end) {
  const auto next = ranges.lower_bound(begin);
  if (next != ranges.end() && next->first < end) return false;
  return next == ranges.begin() || std::prev(next)->second.end <= begin;
}

void SessionMemory::forget_kept(uint64_t address, uint64_t bytes) {
  kept_.clear(core_.driver, core_.info.id, address, address + bytes);
}

// Kept memory is released if need be: the session's own first, then that of its group.
Status SessionMemory::charge(uint32_t device, uint64_t bytes, SessionGroup* group) {
  if (bytes > wire::kMaxExtentBytes) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, std::to_string(bytes) + " bytes of device memory");
  }
  const uint64_t limit = core_.limits().memory_limit[device];
  const auto fits = [&] {
    const uint64_t granted = granted_[device];
    return limit == 0 || (granted <= limit && bytes <= limit - granted);
  };
  const auto take = [&] {
    if (!fits() || (group != nullptr && !group->take_memory(device, bytes))) return false;
    granted_[device] += bytes;
    return true;
  };
  if (take()) return Status();
  forget_kept(0, ~0ull);
  if (take()) return Status();
  if (group != nullptr && kept_.clear_all(core_.driver, group) && take()) {
    return Status();
  }
  core_.releases.wait();
  if (take()) return Status();
  const bool own = group == nullptr || !fits();
  return Status(CUDA_ERROR_OUT_OF_MEMORY,
                std::to_string(bytes) + " bytes more than the " +
                    std::to_string(own ? granted_[device].load() : group->memory(device)) +
                    " in use exceed the " + (own ? "client" : "group") + "'s limit of " +
                    std::to_string(own ? limit : group->memory_limit(device)));
}

Result<Charge> SessionMemory::take(uint32_t device, uint64_t bytes) {
  std::shared_ptr<GroupCharge> share;
  if (group_ != nullptr) share = std::make_shared<GroupCharge>(group_, device);
  OPENMPS_RETURN_IF_ERROR(charge(device, bytes));
  if (share != nullptr) share->add(bytes);
  return Charge(granted_[device], on_host_[device], bytes, std::move(share));
}

Status SessionMemory::create(uint32_t device_index, uint64_t bytes, uint32_t flags,
                             std::shared_ptr<Holding>* holding) {
  if (bytes == 0 || bytes % wire::kMemoryGranularity != 0) {
    return violation("physical memory of " + std::to_string(bytes) + " bytes");
  }
  Result<Charge> charge = take(device_index, bytes);
  if (!charge.ok()) return charge.status();
  return create(device_index, bytes, flags, std::move(charge).value(), holding);
}

Status SessionMemory::create_uncounted(uint32_t device, uint64_t bytes,
                                       std::shared_ptr<Holding>* holding) {
  OPENMPS_RETURN_IF_ERROR(
      create(device, bytes, 0, Charge(granted_[device], on_host_[device], 0, nullptr), holding));
  (*holding)->is_counted = false;
  return Status();
}

Status SessionMemory::create(uint32_t device_index, uint64_t bytes, uint32_t flags, Charge charge,
                             std::shared_ptr<Holding>* holding) {
  OPENMPS_RETURN_IF_ERROR(core_.use(device_index));
  if (core_.journal.is_adopting()) {
    KeptMemory kept;
    Result<std::shared_ptr<Physical>> physical = import_kept(bytes, &kept, flags);
    if (!physical.ok()) return physical.status();
    if ((*physical)->device != device_index) {
      return Status(CUDA_ERROR_INVALID_HANDLE, "the server has kept other memory");
    }
    charge.share_with(**physical, group_.get());
    *holding = std::make_shared<Holding>(std::move(*physical), std::move(charge), std::move(kept));
    note_made(*holding, flags);
    return Status();
  }
  Result<CUmemGenericAllocationHandle> handle = make_physical(device_index, bytes, flags);
  if (!handle.ok()) return handle.status();
  const auto physical = std::make_shared<Physical>(core_.driver, *handle, bytes, device_index);
  charge.share_with(*physical, group_.get());
  *holding = std::make_shared<Holding>(physical, std::move(charge), keep(physical));
  note_made(*holding, flags);
  return Status();
}

Result<CUmemGenericAllocationHandle> SessionMemory::make_physical(uint32_t device_index,
                                                                  uint64_t bytes, uint32_t flags) {
  const Device& device = core_.devices.at(device_index);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes =
      device.exports_memory ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.handle};
  prop.allocFlags.gpuDirectRDMACapable = (flags & wire::kPhysicalRdma) != 0 ? 1 : 0;
  prop.allocFlags.compressionType =
      (flags & wire::kPhysicalCompressible) != 0 ? CU_MEM_ALLOCATION_COMP_GENERIC : 0;
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = core_.driver.cuMemCreate(&handle, bytes, &prop, 0);
  const auto make = [&] { return core_.driver.cuMemCreate(&handle, bytes, &prop, 0); };
  if (result == CUDA_ERROR_OUT_OF_MEMORY && give_back_kept()) result = make();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && store_ != nullptr) {
    OPENMPS_RETURN_IF_ERROR(await_memory(device_index, bytes, make));
    return handle;
  }
  OPENMPS_RETURN_IF_ERROR(check(result, "cuMemCreate"));
  return handle;
}

bool SessionMemory::give_back_kept() {
  const bool any = kept_.clear_all(core_.driver);
  return (keeper_ != nullptr && keeper_->wait_forgotten()) || any;
}

Keeper::Export SessionMemory::export_of(const std::shared_ptr<Physical>& physical) const {
  return [weak = std::weak_ptr<Physical>(physical), &driver = core_.driver] {
    const std::shared_ptr<Physical> memory = weak.lock();
    int file = -1;
    if (memory == nullptr ||
        driver.cuMemExportToShareableHandle(
            &file, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS) {
      return UniqueFd();
    }
    return UniqueFd(file);
  };
}

KeptMemory SessionMemory::keep(const std::shared_ptr<Physical>& physical) {
  KeptMemory kept;
  if (keeper_ == nullptr) return kept;
  if (core_.devices.at(physical->device).exports_memory) {
    kept = keeper_->keep(core_.info.id, core_.journal.next_number(), physical->bytes,
                         physical->device, export_of(physical));
  }
  note_kept(kept, physical->device);
  return kept;
}

KeptMemory SessionMemory::keep_now(uint64_t bytes, uint32_t device, int descriptor) {
  if (keeper_ == nullptr) return KeptMemory();
  KeptMemory kept =
      keeper_->keep_now(core_.info.id, core_.journal.next_number(), bytes, device, descriptor);
  note_kept(kept, device);
  return kept;
}

void SessionMemory::note_kept(const KeptMemory& kept, uint32_t device) {
  if (keeper_ == nullptr) return;
  if (kept.number() != 0) {
    core_.journal.note_kept(kept.number());
  } else {
    core_.journal.note_stays(core_.devices.at(device).exports_memory ? kTooMany : kNotExported);
  }
}

Result<Keeper::Taken> SessionMemory::take_kept() {
  Keeper::Taken taken;
  if (keeper_ != nullptr) taken = keeper_->take(core_.info.id, core_.journal.kept());
  if (taken.memory.valid()) return taken;
  return Status(CUDA_ERROR_INVALID_HANDLE,
                "the server has not kept memory " + std::to_string(core_.journal.kept()));
}

Result<std::shared_ptr<Physical>> SessionMemory::import_kept(uint64_t bytes, KeptMemory* kept,
                                                             uint32_t flags) {
  Result<Keeper::Taken> taken = take_kept();
  if (!taken.ok()) return taken.status();
  auto physical = taken->is_contents
                      ? make_with_contents(*taken, bytes, flags)
                      : import_given(taken->memory.get(), taken->bytes, taken->device, bytes);
  if (!physical.ok()) return physical;
  if (taken->is_shared) (*physical)->set_shared();
  *kept = std::move(taken->kept);
  return physical;
}

Result<std::shared_ptr<Physical>> SessionMemory::import_given(int descriptor, uint64_t its_bytes,
                                                              uint32_t device, uint64_t bytes) {
  if (its_bytes != bytes) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "the memory has another size");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  Result<CUmemGenericAllocationHandle> imported = import_memory(core_.driver, descriptor);
  if (!imported.ok()) return imported.status();
  return std::make_shared<Physical>(core_.driver, *imported, bytes, device);
}

void SessionMemory::share(const Holding& holding, const wire::ShareKey& key) {
  holding.physical->set_shared();
  if (keeper_ != nullptr) keeper_->share(holding.kept, key.bytes);
}

void SessionMemory::note_exported(const Holding& holding) {
  holding.physical->set_shared();
  if (keeper_ != nullptr) keeper_->note_exported(holding.kept);
}

void SessionMemory::withdraw(const wire::ShareKey& key) {
  if (keeper_ != nullptr) keeper_->withdraw(core_.info.id, key.bytes);
}

Result<std::shared_ptr<Physical>> SessionMemory::import_shared(const wire::ShareKey& key,
                                                               uint64_t bytes, KeptMemory* kept) {
  Keeper::Found found;
  if (keeper_ != nullptr) found = keeper_->find(key.bytes);
  if (!found.memory.valid()) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "the handle names no shared memory");
  }
  auto physical = import_given(found.memory.get(), found.bytes, found.device, bytes);
  if (!physical.ok()) return physical;
  (*physical)->set_shared();
  *kept = keep_now(bytes, found.device, found.memory.get());
  return physical;
}

Status SessionMemory::hold(std::shared_ptr<Physical> physical, KeptMemory kept,
                           std::shared_ptr<Holding>* holding) {
  const SessionGroup* const group = group_.get();
  std::shared_ptr<GroupCharge> there = physical->charge(group, nullptr);
  if (there != nullptr) {
    OPENMPS_RETURN_IF_ERROR(charge(physical->device, physical->bytes, nullptr));
    const uint32_t device = physical->device;
    Charge counted(granted_[device], on_host_[device], physical->bytes, std::move(there));
    *holding = std::make_shared<Holding>(std::move(physical), std::move(counted), std::move(kept));
    return Status();
  }
  Result<Charge> charge = take(physical->device, physical->bytes);
  if (!charge.ok()) return charge.status();
  // The driver does not say how large imported memory is: the mapped bytes count.
  if (physical->bytes != 0) charge->share_with(*physical, group);
  *holding =
      std::make_shared<Holding>(std::move(physical), std::move(charge).value(), std::move(kept));
  return Status();
}

Status SessionMemory::map_held(std::shared_ptr<Holding> holding, uint64_t address, uint64_t bytes,
                               uint64_t offset) {
  const uint32_t device = holding->physical->device;
  OPENMPS_RETURN_IF_ERROR(check_device_range(address, bytes));
  if (!is_unused(address, address + bytes)) {
    return violation(range_text(address, bytes) + " is mapped already");
  }
  forget_kept(address, bytes);
  const uint64_t whole = holding->physical->bytes;
  const uint64_t most = whole == 0 ? wire::kMaxExtentBytes : whole;
  const bool inside = offset <= most && bytes <= most - offset;
  if (offset % wire::kMemoryGranularity != 0 || !inside) {
    return violation(range_text(offset, bytes) + " is no part of physical memory of " +
                     std::to_string(whole) + " bytes");
  }
  OPENMPS_RETURN_IF_ERROR(check_count());
  const uint64_t counted = holding->is_counted ? holding->charge.bytes() : offset + bytes;
  Result<Charge> more = take(device, offset + bytes - std::min(offset + bytes, counted));
  if (!more.ok()) return more.status();
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  if (address < core_.device_end() && address >= core_.window_base()) {
    OPENMPS_RETURN_IF_ERROR(reserve_window());
  }
  OPENMPS_RETURN_IF_ERROR(check(
      core_.driver.cuMemMap(address, bytes, offset, holding->physical->handle, 0), "cuMemMap"));
  holding->charge.add(std::move(more).value());
  ranges_[address] = {.end = address + bytes,
                      .kind = Kind::kDeviceMemory,
                      .device = device,
                      .access = CU_MEM_ACCESS_FLAGS_PROT_NONE,
                      .holding = std::move(holding),
                      .offset = offset};
  return Status();
}

Status SessionMemory::open_access(uint64_t address, const Range& range) {
  CUmemAccessDesc access[wire::kMaxDevices];
  size_t count = 0;
  for (uint32_t device = 0; device < core_.devices.count(); ++device) {
    if (device != range.device && (peers_[range.device] >> device & 1) == 0) continue;
    access[count++] = {{CU_MEM_LOCATION_TYPE_DEVICE, core_.devices.at(device).handle},
                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  return check(core_.driver.cuMemSetAccess(address, range.end - address, access, count),
               "cuMemSetAccess");
}

Status SessionMemory::map(const wire::MemoryMap& range) {
  OPENMPS_RETURN_IF_ERROR(check_device_range(range.address, range.bytes));
  if (!is_free(range.address, range.address + range.bytes)) {
    return violation(range_text(range.address, range.bytes) + " is mapped already");
  }
  if (take_back(range)) return Status();
  if (leaving_.contains(range.address)) {
    return Status(CUDA_ERROR_NOT_READY,
                  range_text(range.address, range.bytes) + " is being unmapped");
  }
  if (!is_free(leaving_, range.address, range.address + range.bytes)) {
    return violation(range_text(range.address, range.bytes) +
                     " is being unmapped as another range");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(range.device));
  OPENMPS_RETURN_IF_ERROR(reserve_window());
  std::shared_ptr<Holding> holding;
  // Copies of other devices may reach memory of cuMemAlloc; a program's own mappings need access
  // for that.
  const uint32_t flags = core_.devices.at(range.device).rdma_memory ? wire::kPhysicalRdma : 0;
  OPENMPS_RETURN_IF_ERROR(create(range.device, range.bytes, flags, &holding));
  OPENMPS_RETURN_IF_ERROR(map_held(std::move(holding), range.address, range.bytes, 0));
  const auto it = ranges_.find(range.address);
  Status status = open_access(it->first, it->second);
  if (status.ok()) {
    it->second.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    it->second.for_copies = true;
  } else {
    release(it);
  }
  return status;
}

// ---- Unmapping ----------------------------------------------------------------------------------

bool SessionMemory::is_own(const Range& range) {
  return !range.lent && range.holding->physical->bytes != 0 && range.holding.use_count() == 1 &&
         range.holding->physical.use_count() == 1 && !range.holding->physical->is_shared() &&
         range.access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

Status SessionMemory::begin_unmap(const wire::MemoryUnmap& range, uint64_t* ticket) {
  OPENMPS_RETURN_IF_ERROR(check_whole(range.address, range.bytes));
  *ticket = ++unmap_tickets_;
  core_.journal.note_unmapped(unmap_tickets_);
  const uint64_t end = range.address + range.bytes;
  for (auto it = ranges_.find(range.address); it != ranges_.end() && it->first < end;) {
    Range& leaving = leaving_[it->first] = std::move(it->second);
    leaving.ticket = *ticket;
    leaving.peers = peers_[leaving.device] | leaving.copiers;
    leaving.lent = (range.flags & wire::kUnmapKeep) == 0 || !is_own(leaving);
    it = ranges_.erase(it);
  }
  ++removals_;
  return Status();
}

void SessionMemory::finish_unmap(const wire::MemoryUnmap& range, uint64_t ticket) {
  const uint64_t end = range.address + range.bytes;
  for (auto it = leaving_.lower_bound(range.address); it != leaving_.end() && it->first < end;) {
    Range& leaving = it->second;
    if (leaving.ticket != ticket) {  // taken back meanwhile, and unmapped again
      ++it;
      continue;
    }
    if (leaving.lent) {
      core_.driver.cuMemUnmap(it->first, leaving.end - it->first);
    } else {
      kept_.keep(core_.driver, core_.info.id, it->first,
                 {leaving.end - it->first, leaving.device, leaving.peers,
                  std::move(leaving.holding), group_.get()},
                 core_.clock.now_ns());
    }
    it = leaving_.erase(it);
  }
}

void SessionMemory::keep_all_now() {
  if (keeper_ != nullptr) keeper_->keep_all_now(core_.info.id);
}

void SessionMemory::leave() {
  leaves_ = true;
  if (keeper_ != nullptr) keeper_->leave(core_.info.id);
}

void SessionMemory::take_over() {
  addresses_.forget(core_.info.id);  // what it had here before, and has no more
  // Memory that was being freed when the former worker was lost.
  if (keeper_ != nullptr) keeper_->drop_given(core_.info.id);
  unmap_tickets_ = core_.journal.unmapped();
  unregister_tickets_ = core_.journal.unregistered();
  core_.view.header().unmapped.store(unmap_tickets_, std::memory_order_release);
  core_.view.header().unregistered.store(unregister_tickets_, std::memory_order_release);
}

bool SessionMemory::take_back(const wire::MemoryMap& range) {
  std::shared_ptr<Holding> holding;
  const uint32_t peers = peers_[range.device];
  const auto it = leaving_.find(range.address);
  if (it != leaving_.end()) {
    const Range& leaving = it->second;
    if (leaving.end != range.address + range.bytes || leaving.device != range.device ||
        leaving.peers != peers || leaving.lent) {
      return false;
    }
    holding = std::move(it->second.holding);
    leaving_.erase(it);
  } else if (!kept_.take(core_.info.id, range.address, {range.bytes, range.device, peers, nullptr},
                         &holding)) {
    return false;
  }
  note_kept(holding->kept, range.device);
  ranges_[range.address] = {.end = range.address + range.bytes,
                            .kind = Kind::kDeviceMemory,
                            .device = range.device,
                            .holding = std::move(holding),
                            .for_copies = true};
  return true;
}

uint64_t SessionMemory::give_back_old() {
  return kept_.clear_old(core_.driver, core_.info.id, core_.clock.now_ns());
}

void SessionMemory::lend(uint64_t address, uint64_t bytes) {
  auto it = ranges_.upper_bound(address);
  if (it != ranges_.begin()) --it;
  for (; it != ranges_.end() && it->first < address + bytes; ++it) {
    it->second.lent = true;
    if (it->second.holding != nullptr) note_exported(*it->second.holding);
  }
}

// ---- Access -------------------------------------------------------------------------------------

Status SessionMemory::handle(const wire::MemoryAccess& command) {
  ++removals_;
  OPENMPS_RETURN_IF_ERROR(check_whole(command.address, command.bytes));
  if (command.access != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
      command.access != CU_MEM_ACCESS_FLAGS_PROT_READ &&
      command.access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return violation("an access of " + std::to_string(command.access));
  }
  const auto access = static_cast<CUmemAccess_flags>(command.access);
  const CUmemAccessDesc desc{{CU_MEM_LOCATION_TYPE_DEVICE, core_.devices.at(command.device).handle},
                             access};
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  OPENMPS_RETURN_IF_ERROR(check(
      core_.driver.cuMemSetAccess(command.address, command.bytes, &desc, 1), "cuMemSetAccess"));
  const uint64_t end = command.address + command.bytes;
  for (auto it = ranges_.find(command.address); it != ranges_.end() && it->first < end; ++it) {
    // A copy may use any device, so all have access.
    const bool own = it->second.device == command.device;
    it->second.access = own ? access : std::max(it->second.access, access);
  }
  return Status();
}

std::shared_ptr<Holding> SessionMemory::mapped_at(uint64_t address) const {
  const auto it = ranges_.find(address);
  return it == ranges_.end() ? nullptr : it->second.holding;
}

Status SessionMemory::find_mapped(uint64_t address, uint64_t bytes, uint32_t* device) const {
  Status nothing(CUDA_ERROR_INVALID_VALUE,
                 range_text(address, bytes) + " is not mapped device memory");
  const uint64_t end = address + bytes;
  auto it = ranges_.upper_bound(address);
  if (end <= address || it == ranges_.begin()) return nothing;
  --it;
  *device = it->second.device;
  for (uint64_t at = address; at < end; ++it) {
    const bool on = it != ranges_.end() && it->first <= at && at < it->second.end &&
                    it->second.kind == Kind::kDeviceMemory && it->second.device == *device;
    if (!on) return nothing;
    at = it->second.end;
  }
  return Status();
}

// Measured between two H200s: 2.3 ms for the first copy of 64 MiB, then 386 GB/s; CUDA's copies
// without peer access reach 38 GB/s.
void SessionMemory::open_to_copies(const WorkRange& range, uint32_t device) {
  if (core_.devices.used().size() == 1) return;
  const uint64_t end = range.address + range.bytes;
  auto it = ranges_.upper_bound(range.address);
  if (it != ranges_.begin()) --it;
  for (; it != ranges_.end() && it->first < end; ++it) {
    Range& part = it->second;
    const uint32_t open = (1u << part.device) | peers_[part.device] | part.copiers;
    if (!part.for_copies || part.end <= range.address || (open >> device & 1) != 0) continue;
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, core_.devices.at(device).handle},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUresult result =
        core_.driver.cuMemSetAccess(it->first, part.end - it->first, &access, 1);
    if (result == CUDA_SUCCESS) part.copiers |= 1u << device;
  }
}

Status SessionMemory::handle(const wire::PeerAccess& command) {
  if (command.device == command.peer) return violation("a device as its own peer");
  const uint32_t bit = 1u << command.device;
  peers_[command.peer] =
      command.enable != 0 ? peers_[command.peer] | bit : peers_[command.peer] & ~bit;
  const CUmemAccessDesc desc{
      {CU_MEM_LOCATION_TYPE_DEVICE, core_.devices.at(command.device).handle},
      command.enable != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
  OPENMPS_RETURN_IF_ERROR(core_.use(command.peer));
  for (auto& [address, range] : ranges_) {
    if (range.kind != Kind::kDeviceMemory || range.device != command.peer) continue;
    range.copiers &= ~bit;
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuMemSetAccess(address, range.end - address, &desc, 1),
              "cuMemSetAccess of a peer"));
  }
  return Status();
}

void SessionMemory::release(Ranges::iterator it) {
  const uint64_t begin = it->first;
  const Range& range = it->second;
  switch (range.kind) {
    case Kind::kDeviceMemory:
      if (range.holding->physical != nullptr) core_.driver.cuMemUnmap(begin, range.end - begin);
      break;
    case Kind::kRegistered: unregister(begin, range, [] {}); break;
    case Kind::kChannel: core_.pages.release_all(); break;
    case Kind::kGlobal: break;
  }
  ++removals_;
  ranges_.erase(it);  // releases the memory, unless another holds it
}

Status SessionMemory::check_whole(uint64_t address, uint64_t bytes) const {
  OPENMPS_RETURN_IF_ERROR(check_device_range(address, bytes));
  const uint64_t end = address + bytes;
  uint64_t at = address;
  for (auto it = ranges_.find(at); it != ranges_.end() && at < end && it->first == at; ++it) {
    at = it->second.end;
  }
  if (at == end) return Status();
  return violation(range_text(address, bytes) + " does not consist of whole mappings");
}

Status SessionMemory::unmap(uint64_t address, uint64_t bytes) {
  // Check everything first, so that a violation changes nothing.
  OPENMPS_RETURN_IF_ERROR(check_whole(address, bytes));
  const uint64_t end = address + bytes;
  for (uint64_t at = address; at < end;) {
    const auto it = ranges_.find(at);
    at = it->second.end;
    OPENMPS_RETURN_IF_ERROR(core_.use(it->second.device));
    release(it);
  }
  return Status();
}

// ---- What the session has
// ------------------------------------------------------------------------

Status SessionMemory::info(uint32_t device, ReplyTo<wire::MemoryInfo> reply) {
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  // While the server closes descriptors nobody knows which of them are closed already.
  if (keeper_ != nullptr) keeper_->wait_forgotten(kInfoWaitMs);
  size_t free = 0;
  size_t total = 0;
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo"));
  // Kept memory counts as free: it is released when memory is short. So does what the server has
  // not closed by now.
  const uint64_t on_way = keeper_ == nullptr ? 0 : keeper_->on_way(device);
  // What others borrow and do not use now moves to the host when it is wanted.
  const uint64_t lent = store_ == nullptr ? 0 : pressure_.borrowed(&member, device, true);
  wire::MemoryInfo::Reply answer{
      std::min<uint64_t>(free + kept_.bytes(device) + on_way + lent, total), total};
  const auto limit_to = [&answer](uint64_t limit, uint64_t used, uint64_t kept_of_it) {
    if (limit == 0) return;
    answer.total = std::min(answer.total, limit);
    answer.free = std::min(answer.free, limit - std::min(limit, used - std::min(used, kept_of_it)));
  };
  limit_to(core_.limits().memory_limit[device], granted_[device],
           kept_.bytes(device, core_.info.id));
  if (const SessionGroup* const group = group_.get(); group != nullptr) {
    limit_to(group->memory_limit(device), group->memory(device), kept_.bytes(device, *group));
  }
  reply.put(answer);
  return Status();
}

void SessionMemory::add_global(uint64_t address, uint64_t bytes, Lane lane) {
  if (bytes == 0) return;
  const bool added = ranges_.insert({address, Range{.end = address + bytes, .lane = lane}}).second;
  if (added && lane == Lane::kCold) ++cold_globals_;
}

void SessionMemory::remove_global(uint64_t address) {
  const auto found = ranges_.find(address);
  if (found != ranges_.end() && found->second.lane == Lane::kCold) --cold_globals_;
  ranges_.erase(address);
  ++removals_;
}

Lane SessionMemory::lane_of(uint64_t address) const {
  if (cold_globals_ == 0) return Lane::kMain;
  const auto above = ranges_.upper_bound(address);
  if (above == ranges_.begin()) return Lane::kMain;
  const Range& range = std::prev(above)->second;
  return address < range.end ? range.lane : Lane::kMain;
}

bool SessionMemory::owns(uint64_t address, uint64_t bytes, bool writable) const {
  if (bytes == 0) return true;
  const uint64_t end = address + bytes;
  if (end < address) return false;
  const CUmemAccess_flags least =
      writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return false;
  // A command may name adjacent mappings as one range.
  for (--it; it != ranges_.end() && it->first <= address; ++it) {
    if (it->second.access < least && it->second.end > address) return false;
    if (it->second.end >= end) return true;
    if (it->second.end > address) address = it->second.end;
  }
  return false;
}

bool SessionMemory::contains(uint64_t address, uint64_t bytes, bool writable) const {
  return owns(address, bytes, writable) && core_.pages.use(address, bytes).ok();
}

bool SessionMemory::may_write(uint64_t address, uint64_t bytes) const {
  if (contains(address, bytes, true)) return true;
  const auto above = leaving_.upper_bound(address);
  if (above == leaving_.begin()) return false;
  const Range& leaving = std::prev(above)->second;
  return address + bytes <= leaving.end && leaving.access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

Status SessionMemory::check_operand(const WorkRange& range, const char* role) const {
  OPENMPS_RETURN_IF_ERROR(check_owned(range, role));
  return core_.pages.use(range.address, range.bytes);
}

Status SessionMemory::check_owned(const WorkRange& range, const char* role) const {
  if (owns(range.address, range.bytes, range.writable)) return Status();
  return violation(std::string("the ") + role + " " + range_text(range.address, range.bytes) +
                   " is not the session's");
}

void SessionMemory::allow_writes(uint64_t address) {
  if (contains(address, 1, true) || !contains(address, 1)) return;
  const auto it = std::prev(ranges_.upper_bound(address));
  if (open_access(it->first, it->second).ok()) {
    it->second.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
}

void SessionMemory::release_all() {
  if (keeper_ != nullptr) keeper_->drop_given(core_.info.id);
  forget_kept(0, ~0ull);
  while (!ranges_.empty()) {
    const auto it = ranges_.begin();
    // After a fault a context may refuse to become current; the release is tried nevertheless.
    static_cast<void>(core_.use(it->second.device).ok());
    release(it);
  }
  if (leaves_) {
    for (const auto& [begin, pages] : host_pages_) pages->leave(core_.info.id);
  }
  host_pages_.clear();
  for (const auto& [begin, end] : extents_) {
    core_.driver.cuMemAddressFree(begin, extent_bytes(end - begin));
    if (leaves_) {
      addresses_.leave(begin, core_.info.id);
    } else {
      addresses_.release(begin);
    }
  }
  extents_.clear();
  extent_bytes_ = 0;
  if (window_reserved_) {
    core_.driver.cuMemAddressFree(core_.window_base(), wire::kDeviceBytes);
    window_reserved_ = false;
  }
}

}  // namespace openmps::worker
