// SPDX-License-Identifier: Apache-2.0
// See variable_memory.h.
#include "worker/code/variable_memory.h"

#include <algorithm>
#include <utility>

#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// Addresses are reserved for so many bytes of variables at once, in addresses the smallest piece
// that costs nothing more (memory.cc, kExtentUnit).
constexpr uint64_t kReservedBytes = wire::kGiB;

uint64_t rounded(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Status VariableMemory::take(uint32_t device, const VariableLayout& layout, Place* place) {
  const uint64_t bytes = rounded(std::max<uint64_t>(layout.bytes, 1), kVariableAlignment);
  const bool is_adopting = core_.journal.is_adopting();
  Pages::iterator page;
  if (is_adopting) {
    OPENMPS_RETURN_IF_ERROR(adopt_page(device, *place, bytes, &page));
  } else {
    OPENMPS_RETURN_IF_ERROR(find_page(device, bytes, &page));
    *place = {.address = page->first + page->second.used, .number = page->second.number};
  }
  page->second.used = std::max(page->second.used, place->address + bytes - page->first);
  ++page->second.modules;
  if (is_adopting) return Status();
  Status status = fill(device, place->address, layout);
  if (!status.ok()) give_back(place->address);
  return status;
}

Status VariableMemory::find_page(uint32_t device, uint64_t bytes, Pages::iterator* page) {
  for (auto it = pages_.begin(); it != pages_.end(); ++it) {
    const Page& there = it->second;
    const bool is_for_one = there.bytes > wire::kMemoryGranularity;
    if (there.device != device || there.bytes - there.used < bytes ||
        (is_for_one && there.modules != 0)) {
      continue;
    }
    *page = it;
    return Status();
  }
  if (bytes > wire::kMaxExtentBytes) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many variables");
  const uint64_t whole = rounded(bytes, wire::kMemoryGranularity);
  if (end_ - next_ < whole) {
    const uint64_t reserved = std::max(whole, kReservedBytes);
    const Result<uint64_t> begin = memory_.reserve_extent(reserved, wire::kMemoryGranularity, 0);
    if (!begin.ok()) return begin.status();
    next_ = *begin;
    end_ = *begin + reserved;
    extents_.insert(*begin);
  }
  OPENMPS_RETURN_IF_ERROR(map_page(device, next_, whole));
  *page = pages_.find(next_);
  (*page)->second.number = core_.journal.kept();
  next_ += whole;
  return Status();
}

// A page that is there already has been made again for another module. Pages lie in extents that
// begin at multiples of kReservedBytes.
Status VariableMemory::adopt_page(uint32_t device, const Place& place, uint64_t bytes,
                                  Pages::iterator* page) {
  const uint64_t begin = place.address / wire::kMemoryGranularity * wire::kMemoryGranularity;
  *page = pages_.find(begin);
  if (*page != pages_.end()) return Status();
  const uint64_t whole = rounded(place.address + bytes - begin, wire::kMemoryGranularity);
  const uint64_t extent = begin / kReservedBytes * kReservedBytes;
  const auto after = extents_.upper_bound(begin);
  const bool is_reserved = after != extents_.begin() && *std::prev(after) == extent;
  if (!is_reserved) {
    const uint64_t reserved =
        std::max(rounded(begin + whole - extent, kReservedBytes), kReservedBytes);
    const Result<uint64_t> made =
        memory_.reserve_extent(reserved, wire::kMemoryGranularity, extent);
    if (!made.ok()) return made.status();
    extents_.insert(extent);
  }
  const uint64_t image = core_.journal.kept();
  core_.journal.note_kept(place.number);
  const Status status = map_page(device, begin, whole);
  core_.journal.note_kept(image);
  OPENMPS_RETURN_IF_ERROR(status);
  *page = pages_.find(begin);
  (*page)->second.number = place.number;
  return Status();
}

Status VariableMemory::map_page(uint32_t device, uint64_t address, uint64_t bytes) {
  std::shared_ptr<Holding> holding;
  OPENMPS_RETURN_IF_ERROR(memory_.create_uncounted(device, bytes, &holding));
  OPENMPS_RETURN_IF_ERROR(memory_.map_held(std::move(holding), address, bytes, 0));
  wire::MemoryAccess access;
  access.address = address;
  access.bytes = bytes;
  access.device = device;
  access.access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (Status status = memory_.handle(access); !status.ok()) {
    static_cast<void>(memory_.unmap(address, bytes).ok());
    return status;
  }
  pages_[address] = {.bytes = bytes, .device = device};
  return Status();
}

// In the legacy stream: no stream of the context waits for that, and the host waits below.
Status VariableMemory::fill(uint32_t device, uint64_t address, const VariableLayout& layout) {
  if (layout.bytes == 0) return Status();
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuMemsetD8_v2(address, 0, layout.bytes), "cuMemsetD8 of variables"));
  for (const VariableLayout::Contents& piece : layout.contents) {
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuMemcpyHtoD_v2(address + piece.offset, piece.bytes.data(),
                                           piece.bytes.size()),
              "cuMemcpyHtoD of variables"));
  }
  return check(core_.driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize of variables");
}

// Pages stay until the session ends: programs that load and unload code do so again.
void VariableMemory::give_back(uint64_t address) {
  const auto behind = pages_.upper_bound(address);
  if (behind == pages_.begin()) return;
  Page& page = std::prev(behind)->second;
  if (page.modules != 0 && --page.modules == 0) page.used = 0;
}

}  // namespace openmps::worker
