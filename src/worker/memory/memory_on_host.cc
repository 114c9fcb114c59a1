// SPDX-License-Identifier: Apache-2.0
// Memory of a session that is moved to the host and back (docs/decisions/0052). See memory.h.
#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/shared_memory.h"
#include "worker/device/driver_check.h"
#include "worker/memory/memory.h"
#include "worker/memory/transfer.h"

namespace openmps::worker {
namespace {

// Views lie where extents do.
constexpr uint64_t kViewUnit = wire::kGiB;

// From the moment when a session has let go of memory until all descriptors of it are closed.
constexpr uint64_t kSettleNs = 200'000'000;

}  // namespace

void SessionMemory::note_made(const std::shared_ptr<Holding>& holding, uint32_t flags) {
  holding->flags = flags;
  if (store_ == nullptr) return;
  // As many again may be added before those that have ended are dropped.
  if (made_.size() == made_.capacity()) {
    std::erase_if(made_, [](const auto& made) { return made.expired(); });
    made_.reserve(2 * made_.size() + 8);
  }
  made_.push_back(holding);
}

std::vector<SessionMemory::Movable> SessionMemory::movables(uint32_t device, bool on_host) {
  std::map<const Holding*, Movable> all;
  for (const auto& made : made_) {
    std::shared_ptr<Holding> holding = made.lock();
    if (holding == nullptr || (holding->physical == nullptr) != on_host) continue;
    const Holding* const key = holding.get();
    all[key].holding = std::move(holding);
  }
  for (auto it = ranges_.begin(); it != ranges_.end(); ++it) {
    const auto found = all.find(it->second.holding.get());
    if (found != all.end()) found->second.mappings.push_back(it);
  }
  for (const auto& [address, range] : leaving_) all.erase(range.holding.get());
  std::vector<Movable> list;
  for (auto& [key, movable] : all) {
    if (device_of(*movable.holding) == device) list.push_back(std::move(movable));
  }
  return list;
}

bool SessionMemory::may_move(const Movable& movable) {
  const Physical& physical = *movable.holding->physical;
  return physical.bytes != 0 && !physical.is_shared();
}

void SessionMemory::note_accesses(const Movable& movable) const {
  for (const auto& mapping : movable.mappings) {
    mapping->second.accesses.clear();
    for (const uint32_t device : core_.devices.used()) {
      const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, core_.devices.at(device).handle};
      unsigned long long flags = 0;
      if (core_.driver.cuMemGetAccess(&flags, &location, mapping->first) != CUDA_SUCCESS) flags = 0;
      mapping->second.accesses.push_back(static_cast<CUmemAccess_flags>(flags));
    }
  }
}

Result<uint64_t> SessionMemory::view_of(const std::shared_ptr<Physical>& physical,
                                        std::shared_ptr<void>* view) {
  const uint64_t whole = (physical->bytes + kViewUnit - 1) / kViewUnit * kViewUnit;
  const auto reserve = [&](uint64_t address) {
    CUdeviceptr got = 0;
    OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemAddressReserve(&got, whole, 0, address, 0),
                                  "cuMemAddressReserve of a view"));
    if (got == address) return Status();
    core_.driver.cuMemAddressFree(got, whole);
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the driver reserved other addresses");
  };
  const Result<uint64_t> address = addresses_.claim_reserved(whole, kViewUnit, reserve);
  if (!address.ok()) return address.status();
  const std::shared_ptr<void> reserved(nullptr, [this, at = *address, whole](void*) {
    core_.driver.cuMemAddressFree(at, whole);
    addresses_.release(at);
  });
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuMemMap(*address, physical->bytes, 0, physical->handle, 0),
            "cuMemMap of a view"));
  *view = std::shared_ptr<void>(nullptr, [this, reserved, physical, at = *address](void*) {
    core_.driver.cuMemUnmap(at, physical->bytes);
  });
  const CUmemAccessDesc access{
      {CU_MEM_LOCATION_TYPE_DEVICE, core_.devices.at(physical->device).handle},
      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemSetAccess(*address, physical->bytes, &access, 1),
                                "cuMemSetAccess of a view"));
  return *address;
}

Result<uint64_t> SessionMemory::whole_of(const Movable& movable,
                                         const std::shared_ptr<Physical>& physical,
                                         std::shared_ptr<void>* view) {
  const std::span<const uint32_t> used = core_.devices.used();
  const auto own =
      static_cast<size_t>(std::distance(used.begin(), std::ranges::find(used, physical->device)));
  for (const auto& mapping : movable.mappings) {
    const Range& range = mapping->second;
    if (range.offset == 0 && range.end - mapping->first == physical->bytes &&
        range.accesses.at(own) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return mapping->first;
    }
  }
  return view_of(physical, view);
}

Status SessionMemory::move_to_host(uint32_t device,
                                   const std::function<bool(uint64_t under_way)>& wants_more,
                                   Moved* moved) {
  if (store_ == nullptr) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "memory is not moved to the host (OPENMPS_SUSPEND)");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  forget_kept(0, ~0ull);
  uint64_t under_way = 0;
  Transfer transfer(core_, device, Transfer::Direction::kToHost, gives_up);
  for (const Movable& movable : movables(device, false)) {
    const std::shared_ptr<Physical>& physical = movable.holding->physical;
    const uint64_t bytes = physical->bytes;
    if (!may_move(movable)) {
      moved->stays += bytes;
      continue;
    }
    if (gives_up() || !wants_more(under_way)) break;
    Result<HostStore::Part> part = store_->take(bytes, gives_up);
    if (!part.ok()) {
      OPENMPS_RETURN_IF_ERROR(transfer.finish());
      return part.status();
    }
    note_accesses(movable);
    std::shared_ptr<void> view;
    const Result<uint64_t> address = whole_of(movable, physical, &view);
    if (!address.ok()) return address.status();
    under_way += bytes;
    const auto contents = std::make_shared<HostStore::Part>(std::move(*part));
    OPENMPS_RETURN_IF_ERROR(transfer.add(*address, *contents, [=, this, &under_way]() mutable {
      view.reset();
      let_go(movable, std::move(*contents));
      moved->moved += bytes;
      under_way -= bytes;
      pressure_.note_change();
      return Status();
    }));
  }
  return transfer.finish();
}

void SessionMemory::let_go(const Movable& movable, HostStore::Part contents) {
  Holding& holding = *movable.holding;
  const uint32_t device = holding.physical->device;
  // From here on the next worker finds the contents there.
  if (keeper_ != nullptr) keeper_->set_contents(holding.kept, store_->file(), contents.offset());
  // After a fault the driver may refuse; the memory is not used any more then.
  unmap_again(movable);
  holding.physical.reset();
  holding.contents = std::move(contents);
  holding.device = device;
  ++away_;
  holding.charge.set_on_host(true);
}

uint64_t SessionMemory::on_host(uint32_t device) {
  uint64_t bytes = 0;
  for (const Movable& movable : movables(device, true)) bytes += movable.holding->contents.bytes();
  return bytes;
}

uint32_t SessionMemory::device_of(const Holding& holding) {
  return holding.physical == nullptr ? holding.device : holding.physical->device;
}

Status SessionMemory::map_again(const Movable& movable, const Physical& physical) {
  for (const auto& mapping : movable.mappings) {
    const uint64_t bytes = mapping->second.end - mapping->first;
    OPENMPS_RETURN_IF_ERROR(check(
        core_.driver.cuMemMap(mapping->first, bytes, mapping->second.offset, physical.handle, 0),
        "cuMemMap of memory that comes back"));
    std::vector<CUmemAccessDesc> access;
    for (size_t i = 0; i < mapping->second.accesses.size(); ++i) {
      const CUmemAccess_flags flags = mapping->second.accesses[i];
      if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) continue;
      const Device& device = core_.devices.at(core_.devices.used()[i]);
      access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, device.handle}, flags});
    }
    if (access.empty()) continue;
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuMemSetAccess(mapping->first, bytes, access.data(), access.size()),
              "cuMemSetAccess of memory that comes back"));
  }
  return Status();
}

void SessionMemory::unmap_again(const Movable& movable) {
  for (const auto& mapping : movable.mappings) {
    core_.driver.cuMemUnmap(mapping->first, mapping->second.end - mapping->first);
  }
}

void SessionMemory::take_again(const Movable& movable, std::shared_ptr<Physical> physical) {
  Holding& holding = *movable.holding;
  holding.charge.share_with(*physical, group_.get());
  if (keeper_ != nullptr) {
    keeper_->set_memory(holding.kept, physical->bytes, export_of(physical));
  }
  holding.charge.set_on_host(false);
  holding.physical = std::move(physical);
  holding.contents = HostStore::Part();
  --away_;
}

Status SessionMemory::move_back(const NeedsLess& needs_less) {
  comes_back_ = true;
  const Status status = move_back_now(needs_less);
  comes_back_ = false;
  return status;
}

Status SessionMemory::move_back_now(const NeedsLess& needs_less) {
  for (const uint32_t device : core_.devices.used()) {
    std::vector<Movable> begun;
    Status status;
    {
      Transfer transfer(core_, device, Transfer::Direction::kToDevice, gives_up);
      for (const Movable& movable : movables(device, true)) {
        const uint64_t bytes = movable.holding->contents.bytes();
        status = begin_move_back(movable, transfer, &begun);
        if (status.ok()) needs_less(device, bytes);
        if (!status.ok()) break;
      }
      if (status.ok()) status = transfer.finish();
    }
    if (status.ok()) continue;
    // Of these the contents are still on the host.
    for (const Movable& movable : begun) {
      if (movable.holding->physical == nullptr) unmap_again(movable);
    }
    return status;
  }
  return Status();
}

Status SessionMemory::begin_move_back(const Movable& movable, Transfer& transfer,
                                      std::vector<Movable>* begun) {
  const HostStore::Part& contents = movable.holding->contents;
  const uint32_t device = movable.holding->device;
  const Result<CUmemGenericAllocationHandle> made =
      make_physical(device, contents.bytes(), movable.holding->flags);
  if (!made.ok()) return made.status();
  const auto physical = std::make_shared<Physical>(core_.driver, *made, contents.bytes(), device);
  begun->push_back(movable);
  OPENMPS_RETURN_IF_ERROR(map_again(movable, *physical));
  std::shared_ptr<void> view;
  const Result<uint64_t> address = whole_of(movable, physical, &view);
  if (!address.ok()) return address.status();
  return transfer.add(*address, contents, [=, this]() mutable {
    view.reset();
    take_again(movable, physical);
    return Status();
  });
}

Result<std::shared_ptr<Physical>> SessionMemory::make_with_contents(Keeper::Taken& taken,
                                                                    uint64_t bytes,
                                                                    uint32_t flags) {
  if (taken.bytes != bytes) {
    return Status(CUDA_ERROR_INVALID_HANDLE, "the memory has another size");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(taken.device));
  Result<Mapping> contents =
      map_shared(taken.memory.get(), taken.offset, bytes, MapAccess::kReadOnly);
  if (!contents.ok()) return contents.status();
  const Result<CUmemGenericAllocationHandle> made = make_physical(taken.device, bytes, flags);
  if (!made.ok()) return made.status();
  auto physical = std::make_shared<Physical>(core_.driver, *made, bytes, taken.device);
  std::shared_ptr<void> view;
  const Result<uint64_t> address = view_of(physical, &view);
  if (!address.ok()) return address.status();
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemcpyHtoD_v2(*address, contents->address(), bytes),
                                "cuMemcpyHtoD of what another worker has left"));
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize"));
  if (keeper_ != nullptr) keeper_->set_memory(taken.kept, bytes, export_of(physical));
  return physical;
}

// What is stated for the group counts for all of it; else what is stated for the client.
SessionMemory::Held SessionMemory::held(uint32_t device) const {
  const auto rest = [](uint64_t all, uint64_t part) { return all - std::min(all, part); };
  if (group_ != nullptr && group_->guaranteed(device) != 0) {
    return {.bytes = rest(group_->memory(device), group_->on_host(device)),
            .guaranteed = group_->guaranteed(device),
            .on_pressure = group_->on_pressure()};
  }
  const wire::ClientLimits limits = core_.limits();
  return {.bytes = rest(granted_[device], on_host_[device]),
          .guaranteed = limits.guaranteed_memory[device],
          .on_pressure = limits.on_pressure};
}

uint64_t SessionMemory::borrowed(uint32_t device) const {
  const Held all = held(device);
  if (all.guaranteed == 0 || all.bytes <= all.guaranteed) return 0;
  const uint64_t granted = granted_[device];
  const uint64_t own = granted - std::min<uint64_t>(granted, on_host_[device]);
  return std::min(own, all.bytes - all.guaranteed);
}

// What becomes of busy sessions that borrow, if this one needs so much more.
MemoryPressure::Busy SessionMemory::busy_of(uint32_t device, uint64_t bytes) const {
  const Held all = held(device);
  // An allocation has been counted before.
  const uint64_t wanted = comes_back_ ? all.bytes + bytes : all.bytes;
  if (all.on_pressure == wire::OnPressure::kTerminate && wanted <= all.guaranteed) {
    return MemoryPressure::Busy::kEnded;
  }
  return comes_back_ || all.on_pressure == wire::OnPressure::kWait ? MemoryPressure::Busy::kTurns
                                                                   : MemoryPressure::Busy::kLeft;
}

Status SessionMemory::await_memory(uint32_t device, uint64_t bytes, FunctionRef<CUresult()> make) {
  const uint64_t began = core_.clock.now_ns();
  uint64_t hope_ns = 0;
  // A session that comes back has stated its need.
  const MemoryPressure::Need need(pressure_, &member, device, comes_back_ ? 0 : bytes);
  for (;;) {
    const uint64_t seen = pressure_.changes();
    static_cast<void>(give_back_kept());
    const CUresult result = make();
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return check(result, "cuMemCreate");
    const MemoryPressure::Busy busy = busy_of(device, bytes);
    const bool is_asked = pressure_.ask(need, busy);
    const uint64_t waited = core_.clock.now_ns() - began;
    const bool may_come = waited < kShortestAllocationNs || busy != MemoryPressure::Busy::kLeft;
    if (is_asked || (may_come && pressure_.borrowed(&member, device, false) != 0)) {
      hope_ns = core_.clock.now_ns();
    }
    // What somebody has let go is free a little later.
    const bool is_hopeless = hope_ns == 0 || core_.clock.now_ns() - hope_ns > kSettleNs;
    if (!comes_back_ && (is_hopeless || waited > kLongestAllocationNs)) {
      return Status(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate of " + std::to_string(bytes) + " bytes");
    }
    if (gives_up()) return Status(CUDA_ERROR_NOT_READY, "the session ends, or moves");
    pressure_.wait(seen);
  }
}

uint64_t SessionMemory::give_back_store() {
  if (store_ == nullptr) return 0;
  return store_->give_back_old(core_.releases, core_.context({core_.devices.home()}),
                               core_.clock.now_ns());
}

}  // namespace openmps::worker
