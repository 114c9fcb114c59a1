// SPDX-License-Identifier: Apache-2.0
// A session's host memory: the client's pages that are mapped here, and registered with the driver.
// See memory.h.
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "worker/device/driver_check.h"
#include "worker/memory/memory.h"
#include "worker/memory/range_check.h"

namespace openmps::worker {
namespace {

// How long a session that comes back to a worker waits until that has let go of its registered
// pages, which needs a moment in which nothing runs; and between two tries.
constexpr uint64_t kPagesAgainNs = 2'000'000'000;
constexpr uint64_t kPagesPauseNs = 1'000'000;

}  // namespace

HostPagesList SessionMemory::host_pages(uint64_t address, uint64_t bytes) const {
  HostPagesList list;
  uint64_t at = address;
  auto it = host_pages_.upper_bound(at);
  if (it == host_pages_.begin()) return {};
  for (--it; it != host_pages_.end() && it->first <= at && at < it->second->end(); ++it) {
    list.push_back(it->second);
    at = it->second->end();
    if (at - address >= bytes) return list;
  }
  return {};
}

Status SessionMemory::check_host_range(uint64_t address, uint64_t bytes,
                                       HostPagesList* pages) const {
  if (is_pinned_heap(address)) {
    return check_range(address, bytes, core_.device_end() + wire::kPinnedOffset, core_.window_end(),
                       wire::kHostPageBytes);
  }
  if (bytes != 0 && address + bytes > address) *pages = host_pages(address, bytes);
  if (!pages->empty()) return Status();
  return violation(range_text(address, bytes) + " is neither of the pinned heap nor of HostMap");
}

Status SessionMemory::register_host(const wire::HostRegister& command) {
  const uint64_t end = command.address + command.bytes;
  Range range{.end = end, .kind = Kind::kRegistered};
  OPENMPS_RETURN_IF_ERROR(check_host_range(command.address, command.bytes, &range.pages));
  if (!range.pages.empty() && !is_free(leaving_, command.address, end)) {
    core_.releases.wait();
    core_.releases.sweep();
    if (!is_free(leaving_, command.address, end)) {
      return Status(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the driver still has the pages");
    }
  }
  if (!is_unused(command.address, end)) {
    return violation(range_text(command.address, command.bytes) + " is registered already");
  }
  OPENMPS_RETURN_IF_ERROR(check_count());
  OPENMPS_RETURN_IF_ERROR(core_.use(core_.devices.home()));
  unsigned flags = kHostRegisterFlags;
  const bool read_only = std::any_of(range.pages.begin(), range.pages.end(), [&](const auto& one) {
    return one->is_read_only(command.address, end);
  });
  if (read_only) {
    flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    range.access = CU_MEM_ACCESS_FLAGS_PROT_READ;
  }
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemHostRegister_v2(
                                    reinterpret_cast<void*>(command.address), command.bytes, flags),
                                "cuMemHostRegister"));
  ranges_[command.address] = std::move(range);
  return Status();
}

Status SessionMemory::begin_unregister(const wire::HostUnregister& range, uint64_t* ticket) {
  const auto it = ranges_.find(range.address);
  if (it == ranges_.end() || it->second.kind != Kind::kRegistered ||
      it->second.end != range.address + range.bytes) {
    return violation(range_text(range.address, range.bytes) + " is not registered as such");
  }
  *ticket = it->second.pages.empty() ? ++unregister_tickets_ : 0;
  core_.journal.note_unregistered(unregister_tickets_);
  leaving_[range.address] = std::move(it->second);
  ranges_.erase(it);
  ++removals_;
  return Status();
}

void SessionMemory::finish_unregister(const wire::HostUnregister& range, uint64_t ticket) {
  const Range leaving = std::move(leaving_[range.address]);
  leaving_[range.address] = {.end = leaving.end, .kind = Kind::kRegistered};
  unregister(range.address, leaving, [this, address = range.address, ticket] {
    leaving_.erase(address);
    // The client may use addresses of the pinned heap again.
    if (ticket == 0) return;
    core_.view.header().unregistered.store(ticket, std::memory_order_release);
    wake_client(core_.view.header());
  });
}

Status SessionMemory::reserve_host(const wire::HostReserve& range, uint64_t* address) {
  if (range.bytes == 0 || range.wanted % wire::kHostPageBytes != 0 ||
      range.bytes % wire::kHostPageBytes != 0 || range.bytes > wire::kMaxExtentBytes) {
    return violation(range_text(range.wanted, range.bytes) + " as addresses of host memory");
  }
  if (host_pages_.size() >= wire::kMaxMappings) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "too much of the program's memory is mapped");
  }
  if (const auto* const had = core_.journal.recorded<wire::HostReserve::Reply>()) {
    *address = had->address;
    return reserve_host_again(had->address, range.bytes);
  }
  Result<std::shared_ptr<HostPages>> pages = HostPages::reserve_at(range.wanted, range.bytes);
  if (!pages.ok()) {
    // The last registration there may still wait for a quiescence to end.
    core_.releases.wait();
    core_.releases.sweep();
    pages = HostPages::reserve_at(range.wanted, range.bytes);
  }
  if (!pages.ok()) {
    pages = HostPages::reserve(addresses_, range.wanted, range.bytes);
  }
  if (!pages.ok()) return pages.status();
  *address = (*pages)->begin();
  host_places_ |= wire::places_of((*pages)->begin(), (*pages)->end());
  host_pages_[*address] = std::move(*pages);
  show_places();
  return Status();
}

// The session may have been this worker's before, which has not let go of its pages yet.
Status SessionMemory::reserve_host_again(uint64_t address, uint64_t bytes) {
  const uint64_t limit_ns = core_.clock.now_ns() + kPagesAgainNs;
  const auto reserve = [&] {
    return HostPages::reserve_again(addresses_, core_.info.id, address, bytes);
  };
  Result<std::shared_ptr<HostPages>> pages = reserve();
  while (!pages.ok() && core_.clock.now_ns() < limit_ns) {
    core_.clock.sleep(kPagesPauseNs);
    pages = reserve();
  }
  if (!pages.ok()) return pages.status();
  host_places_ |= wire::places_of((*pages)->begin(), (*pages)->end());
  host_pages_[address] = std::move(*pages);
  show_places();
  return Status();
}

Status SessionMemory::check_host_map(const wire::HostMap& command) const {
  const uint64_t all = command.address | command.bytes | command.offset;
  if (command.bytes == 0 || command.address + command.bytes < command.address ||
      all % wire::kHostPageBytes != 0 || (command.flags & ~wire::kHostReadOnly) != 0 ||
      host_pages(command.address, command.bytes).size() != 1) {
    return violation(range_text(command.address, command.bytes) + " is not of one HostReserve");
  }
  if (is_free(command.address, command.address + command.bytes)) return Status();
  return violation(range_text(command.address, command.bytes) + " is registered");
}

Status SessionMemory::map_host(const wire::HostMap& command, int file, KeptMemory kept) {
  return host_pages(command.address, command.bytes)
      .front()
      ->map(command.address, command.bytes, file, command.offset,
            (command.flags & wire::kHostReadOnly) != 0, std::move(kept));
}

Status SessionMemory::handle(const wire::HostFree& command) {
  if (host_pages_.erase(command.address) != 0) return Status();
  return violation(range_text(command.address, 0) + " is not the beginning of a HostReserve");
}

// Calls `done` once the driver has released the pages.
void SessionMemory::unregister(uint64_t address, const Range& range, std::function<void()> done) {
  static_cast<void>(core_.use(core_.devices.home()).ok());
  const uint64_t bytes = range.end - address;
  core_.releases.add_quiescent(
      {wire::ReturnKind::kHostMemory, address, bytes},
      {GatedCall::kHostUnregister, ContextGate::kAllDevices, core_.context({core_.devices.home()}),
       [&driver = core_.driver, address, bytes, pages = range.pages, leaves = leaves_]() mutable {
         void* start = reinterpret_cast<void*>(address);
         const CUresult result = driver.cuMemHostUnregister(start);
         // The contents of the pinned heap's pages need not be kept, unless the session goes on.
         if (pages.empty() && !leaves) madvise(start, bytes, MADV_REMOVE);
         pages.clear();
         return result;
       }},
      std::move(done));
}

}  // namespace openmps::worker
