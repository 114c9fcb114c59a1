// SPDX-License-Identifier: Apache-2.0
// See host_register.h.
#include "client/memory/host_register.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>

#include "api/client_hooks.h"
#include "base/mutex.h"
#include "base/thread_end.h"
#include "client/check.h"
#include "client/debug.h"
#include "client/memory/page_exchange.h"
#include "client/memory/private_pages.h"
#include "wire/layout.h"

namespace openmps::client {
namespace {

constexpr uint64_t kPage = wire::kHostPageBytes;
// Looks at what lies there, when it has changed between the look and the exchange.
constexpr int kTries = 3;

constexpr uint64_t page_of(uint64_t address) { return address / kPage * kPage; }
constexpr uint64_t pages_end(uint64_t address) { return page_of(address + kPage - 1); }

CUresult refuse(CUresult result, const char* why) {
  debug_line("cuMemHostRegister: %s", why);
  explain_failure(why);
  return result;
}

CUresult refusal(const ExchangeResult& exchanged) {
  return refuse(exchanged.outcome == Exchanged::kNotAllowed ? CUDA_ERROR_NOT_SUPPORTED
                                                            : CUDA_ERROR_OUT_OF_MEMORY,
                exchanged.why);
}

bool begins_with(const std::string& text, const char* beginning) {
  return text.rfind(beginning, 0) == 0;
}

// Private pages that are more than memory with contents, or that no other pages may lie among.
const char* why_not_private(const Region& region) {
  if (begins_with(region.name, "[v")) return "the kernel's own pages can't be registered";
  if (begins_with(region.name, "/anon_hugepage")) {
    return "private huge pages (MAP_HUGETLB) can't be registered; shared ones can";
  }
  if (begins_with(region.name, "anon_inode:") ||
      (begins_with(region.name, "/dev/") && !begins_with(region.name, "/dev/zero") &&
       !begins_with(region.name, "/dev/shm/"))) {
    return "a device's private pages can't be registered";
  }
  return nullptr;
}

// A stack grows by the mapping that its lowest page lies in: that one keeps a page.
void keep_stack_growing(uint64_t first) {
  const std::vector<Region> found = regions_of(first, first + kPage);
  if (found.empty() || found.front().name != "[stack]" || found.front().begin != first) return;
  static_cast<void>(*reinterpret_cast<volatile char*>(first - 1));
}

}  // namespace

// ---- Registering --------------------------------------------------------------------------------

HostRegistrations::Span HostRegistrations::own_pages_locked(uint64_t address,
                                                            uint64_t bytes) const {
  Span own{page_of(address), pages_end(address + bytes)};
  ranges_.for_each([&](const Entry& other) {
    if (other.base == address) return;
    const uint64_t begin = page_of(other.base);
    const uint64_t end = pages_end(other.base + other.bytes);
    if (begin <= own.begin && end > own.begin) own.begin = std::min(end, own.end);
    if (begin < own.end && end >= own.end) own.end = std::max(begin, own.begin);
  });
  return own;
}

// The program's addresses, if all that the worker has none of yet are free there; else others for
// all of its pages. What may become another registration's, too, is apart from the rest.
CUresult HostRegistrations::reserve_locked(uint64_t address, uint64_t bytes,
                                           RegisteredHost* memory) {
  const Span all{page_of(address), pages_end(address + bytes)};
  const Span own = own_pages_locked(address, bytes);
  const auto reserve = [&](uint64_t begin, uint64_t end) {
    wire::HostReserve::Reply reply{};
    OPENMPS_CUDA_CHECK(channel_.call(wire::HostReserve{begin, end - begin}, &reply));
    memory->pages.push_back(
        std::make_shared<WorkerPages>(WorkerPages{begin, end, reply.address, false}));
    return CUDA_SUCCESS;
  };
  uint64_t at = own.begin;
  for (const uint64_t edge : {pages_end(address), page_of(address + bytes), own.end}) {
    const uint64_t end = std::min(edge, own.end);
    if (end <= at) continue;
    OPENMPS_CUDA_CHECK(reserve(at, end));
    at = end;
  }
  ranges_.for_each([&](const Entry& other) {
    for (const auto& pages : other.value.pages) {
      if (other.base == address || pages->begin >= all.end || pages->end <= all.begin) continue;
      if (std::find(memory->pages.begin(), memory->pages.end(), pages) == memory->pages.end()) {
        memory->pages.push_back(pages);
      }
    }
  });
  memory->device = address;
  const bool same = std::all_of(memory->pages.begin(), memory->pages.end(),
                                [](const auto& pages) { return pages->worker == pages->begin; });
  if (same) return CUDA_SUCCESS;
  if (memory->pages.size() != 1 || own.begin != all.begin || own.end != all.end) {
    free_locked(*memory);
    OPENMPS_CUDA_CHECK(reserve(all.begin, all.end));
  }
  memory->device = memory->pages.front()->worker + (address - all.begin);
  return CUDA_SUCCESS;
}

// Pages that no other registration has. If the session has ended, so has what the worker had.
void HostRegistrations::free_locked(RegisteredHost& memory) {
  for (const auto& pages : memory.pages) {
    if (pages.use_count() == 1) {
      static_cast<void>(channel_.push(wire::HostFree{pages->worker}));
    }
  }
  memory.pages.clear();
}

CUresult HostRegistrations::add(Context* context, uint64_t address, uint64_t bytes,
                                uint32_t flags) {
  const uint64_t first = page_of(address);
  const uint64_t end = pages_end(address + bytes);
  if (address + bytes < address || end <= first) return CUDA_ERROR_INVALID_VALUE;
  const CancellationHeld held;
  const MutexLock guard(lock_);
  RegisteredHost memory{.flags = flags, .context = context};
  if (ranges_.overlaps(address, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  const std::vector<Region> regions = regions_of(first, end);
  if (regions.empty()) return CUDA_ERROR_INVALID_VALUE;
  const int least = PROT_READ | ((flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 ? 0 : PROT_WRITE);
  bool waits = false;
  for (const Region& region : regions) {
    if ((region.kind.protection & least) != least) return CUDA_ERROR_INVALID_VALUE;
    if (region.kind.shared) continue;
    if (const char* why = why_not_private(region)) return refuse(CUDA_ERROR_NOT_SUPPORTED, why);
    waits = true;
  }
  if (waits) {
    static std::atomic<bool> allowed{false};
    if (!allowed.load(std::memory_order_relaxed)) {
      const ExchangeResult tried = try_exchange();
      if (tried.outcome != Exchanged::kAll) return refusal(tried);
      allowed.store(true, std::memory_order_relaxed);
    }
  }
  if (const CUresult result = reserve_locked(address, bytes, &memory); result != CUDA_SUCCESS) {
    free_locked(memory);
    return result;
  }
  memory.buffer_id = next_buffer_id_++;
  ranges_.insert(address, bytes, memory);
  Entry& entry = *ranges_.find(address);
  if (memory.device != address) elsewhere_.insert(memory.device, bytes, {address, {}});
  count_.fetch_add(1, std::memory_order_release);
  waiting_.fetch_add(1, std::memory_order_release);
  if (waits) return CUDA_SUCCESS;
  const CUresult result = make_ready_locked(entry);
  if (result != CUDA_SUCCESS) remove_locked(entry);
  return result;
}

// ---- Making it ready ----------------------------------------------------------------------------

// Of the pages that the worker has not mapped yet. CUDA_ERROR_INVALID_VALUE: not all of them are
// there any more.
CUresult HostRegistrations::find_parts_locked(const RegisteredHost& memory,
                                              std::vector<Part>* parts) const {
  const bool write = (memory.flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0;
  const int least = write ? PROT_READ | PROT_WRITE : PROT_READ;
  for (const auto& pages : memory.pages) {
    if (pages->mapped) continue;
    const std::vector<Region> regions = regions_of(pages->begin, pages->end);
    if (regions.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (const Region& region : regions) {
      if ((region.kind.protection & least) != least) return CUDA_ERROR_INVALID_VALUE;
      const uint64_t begin = std::max(region.begin, pages->begin);
      Part part{{begin, std::min(region.end, pages->end), region.kind,
                 region.offset + (begin - region.begin)},
                pages->worker + (begin - pages->begin)};
      if (region.kind.shared) OPENMPS_CUDA_CHECK(find_file_locked(region, write, &part));
      parts->push_back(std::move(part));
    }
  }
  std::sort(parts->begin(), parts->end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  return make_files(*parts);
}

CUresult HostRegistrations::find_file_locked(const Region& region, bool write, Part* part) const {
  part->file_offset = part->offset;
  const auto above = exchanged_.upper_bound(part->begin);
  if (above != exchanged_.begin() && part->begin < std::prev(above)->second.end &&
      std::prev(above)->second.kind.is_of_file_of(region.kind)) {
    part->file = std::prev(above)->second.file;
    return CUDA_SUCCESS;
  }
  const char* why = "";
  UniqueFd file = file_of(region, write, &why);
  if (!file.valid()) return refuse(CUDA_ERROR_NOT_SUPPORTED, why);
  part->file = std::make_shared<const KeptFd>(std::move(file));
  return CUDA_SUCCESS;
}

bool HostRegistrations::Part::goes_on_in(const Part& next) const {
  return next.is_private() && next.begin == end && next.kind == kind &&
         (kind.inode == 0 || next.offset == offset + (end - begin));
}

// The parts from `first` on that are one: up to the index after the last.
template <typename Parts>
static size_t end_of_row(const Parts& parts, size_t first) {
  size_t last = first;
  while (last + 1 < parts.size() && parts[last].goes_on_in(parts[last + 1])) ++last;
  return last + 1;
}

CUresult HostRegistrations::make_files(std::vector<Part>& parts) {
  for (size_t i = 0, end = 0; i < parts.size(); i = end) {
    end = i + 1;
    if (!parts[i].is_private()) continue;
    end = end_of_row(parts, i);
    const uint64_t begin = parts[i].begin;
    const uint64_t bytes = parts[end - 1].end - begin;
    // Pages of a file behind its end can't be read. Linux 5.14.
    if (parts[i].kind.inode != 0 &&
        madvise(reinterpret_cast<void*>(begin), bytes, MADV_POPULATE_READ) != 0 &&
        errno == EFAULT) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    UniqueFd made;
    const uint64_t offset = begin % kHugePageBytes;
    const char* why = "";
    if (make_shared_pages(offset, bytes, &made, &why) != CUDA_SUCCESS) {
      return refuse(CUDA_ERROR_OUT_OF_MEMORY, why);
    }
    const auto file = std::make_shared<const KeptFd>(std::move(made));
    for (size_t k = i; k < end; ++k) {
      parts[k].file = file;
      parts[k].file_offset = offset + (parts[k].begin - begin);
    }
  }
  return CUDA_SUCCESS;
}

// The worker maps the pages and registers them. This process has touched them before, so they are
// its own cgroup's.
CUresult HostRegistrations::share_locked(const Entry& entry, const std::vector<Part>& parts) {
  const RegisteredHost& memory = entry.value;
  const bool read_only = (memory.flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  for (const Part& part : parts) {
    const uint64_t bytes = part.end - part.begin;
    // Beyond the end of the file there is nothing. Linux 5.14; an older one leaves it to the
    // worker.
    if (!part.is_private() &&
        madvise(reinterpret_cast<void*>(part.begin), bytes,
                read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE) != 0 &&
        errno == EFAULT) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    OPENMPS_CUDA_CHECK(passage_.map_host(part.worker, bytes, part.file->get(), part.file_offset,
                                         read_only ? wire::kHostReadOnly : 0));
  }
  return channel_.call(wire::HostRegister{memory.device, entry.bytes});
}

CUresult HostRegistrations::exchange_locked(const std::vector<Part>& parts) {
  for (size_t i = 0, end = 0; i < parts.size(); i = end) {
    end = i + 1;
    const Part& part = parts[i];
    if (!part.is_private()) continue;
    end = end_of_row(parts, i);
    const ExchangeResult result =
        put_shared_pages({part.begin, parts[end - 1].end, part.kind, part.offset}, part.file->get(),
                         part.file_offset);
    if (result.bytes != 0) {
      const std::vector<Region> now = regions_of(part.begin, part.begin + kPage);
      const MappingKind kind = now.empty() ? MappingKind() : now.front().kind;
      exchanged_[part.begin] = {{part.begin, part.begin + result.bytes, kind, part.file_offset},
                                part.file};
    }
    if (result.outcome == Exchanged::kChanged) return CUDA_ERROR_INVALID_VALUE;
    if (result.outcome != Exchanged::kAll) return refusal(result);
  }
  return CUDA_SUCCESS;
}

// Maps the pages in this process also at the GPU's addresses.
CUresult HostRegistrations::make_alias_locked(const Entry& entry, const std::vector<Part>& parts) {
  const RegisteredHost& memory = entry.value;
  if (memory.device == entry.base) return CUDA_SUCCESS;
  const WorkerPages& pages = *memory.pages.front();
  Result<Mapping> alias = reserve_addresses(pages.worker, pages.end - pages.begin);
  if (!alias.ok()) return alias.status().code();
  const int protection =
      (memory.flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0 ? PROT_READ : PROT_READ | PROT_WRITE;
  for (const Part& part : parts) {
    if (mmap(reinterpret_cast<void*>(part.worker), part.end - part.begin, protection,
             MAP_SHARED | MAP_FIXED, part.file->get(),
             static_cast<off_t>(part.file_offset)) == MAP_FAILED) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  madvise(alias->address(), alias->bytes(), MADV_DONTFORK);
  elsewhere_.find(memory.device)->value.alias = std::move(alias).value();
  return CUDA_SUCCESS;
}

// CUDA_ERROR_INVALID_VALUE: the program has unmapped some of it.
CUresult HostRegistrations::make_ready_locked(Entry& entry) {
  const CancellationHeld held;
  RegisteredHost& memory = entry.value;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  for (int tries = 0; tries < kTries && result == CUDA_ERROR_INVALID_VALUE; ++tries) {
    result = try_ready_locked(entry);
  }
  if (result == CUDA_SUCCESS) memory.state = RegisteredHost::State::kReady;
  if (result == CUDA_ERROR_INVALID_VALUE) memory.state = RegisteredHost::State::kGone;
  if (memory.state != RegisteredHost::State::kWaiting) {
    waiting_.fetch_sub(1, std::memory_order_release);
  }
  return result;
}

CUresult HostRegistrations::try_ready_locked(const Entry& entry) {
  const RegisteredHost& memory = entry.value;
  keep_stack_growing(page_of(entry.base));
  std::vector<Part> parts;
  OPENMPS_CUDA_CHECK(find_parts_locked(memory, &parts));
  CUresult result = make_alias_locked(entry, parts);
  if (result == CUDA_SUCCESS) result = exchange_locked(parts);
  // Last: it is not undone at once.
  if (result == CUDA_SUCCESS) result = share_locked(entry, parts);
  if (result == CUDA_SUCCESS) {
    for (const auto& pages : memory.pages) pages->mapped = true;
    return result;
  }
  // As it was: what has been exchanged by now is made private again.
  if (auto* elsewhere = elsewhere_.find(memory.device)) elsewhere->value.alias = Mapping();
  for (const Part& part : parts) {
    if (part.is_private()) make_private_locked(part.begin, part.end);
  }
  return result;
}

// A registration whose pages have been unmapped is skipped: the program can't use it.
CUresult HostRegistrations::make_waiting_ready() {
  const MutexLock guard(lock_);
  CUresult result = CUDA_SUCCESS;
  ranges_.for_each([&](Entry& entry) {
    lock_.assert_held();
    if (result != CUDA_SUCCESS || entry.value.state != RegisteredHost::State::kWaiting) return;
    const CUresult one = make_ready_locked(entry);
    if (one != CUDA_ERROR_INVALID_VALUE) result = one;
  });
  return result;
}

// ---- Unregistering ------------------------------------------------------------------------------

void HostRegistrations::make_private_locked(uint64_t begin, uint64_t end) {
  auto it = exchanged_.upper_bound(begin);
  if (it != exchanged_.begin()) --it;
  while (it != exchanged_.end() && it->first < end) {
    const FilePages pages = it->second;
    const uint64_t from = std::max(begin, pages.begin);
    const uint64_t to = std::min(end, pages.end);
    if (from >= to) {
      ++it;
      continue;
    }
    const char* why = "";
    const MappedRange was{from, to, pages.kind, pages.offset + (from - pages.begin)};
    if (!put_private_pages(was, &why)) {
      debug_line("cuMemHostUnregister: %s", why);
      ++it;  // the pages remain shared: only this process has them, and a forked child gets copies
      continue;
    }
    it = exchanged_.erase(it);
    const auto keep = [&](uint64_t left, uint64_t right) REQUIRES(lock_) {
      if (left >= right) return;
      FilePages rest = pages;
      rest.begin = left;
      rest.end = right;
      rest.offset += left - pages.begin;
      exchanged_.insert_or_assign(left, std::move(rest));
    };
    keep(pages.begin, from);
    keep(to, pages.end);
  }
}

void HostRegistrations::remove_locked(const Entry& registered) {
  Entry entry = registered;
  RegisteredHost& memory = entry.value;
  const Span own = own_pages_locked(entry.base, entry.bytes);
  ranges_.erase(entry.base);
  elsewhere_.erase(memory.device);
  count_.fetch_sub(1, std::memory_order_release);
  if (memory.state == RegisteredHost::State::kWaiting) {
    waiting_.fetch_sub(1, std::memory_order_release);
  }
  if (memory.state == RegisteredHost::State::kReady) {
    static_cast<void>(channel_.push(wire::HostUnregister{memory.device, entry.bytes}));
  }
  free_locked(memory);
  make_private_locked(own.begin, own.end);
}

CUresult HostRegistrations::remove(uint64_t address) {
  const CancellationHeld held;
  const MutexLock guard(lock_);
  const Entry* entry = ranges_.find(address);
  if (entry == nullptr || entry->base != address) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  remove_locked(*entry);
  return CUDA_SUCCESS;
}

void HostRegistrations::remove_all(const Context* context) {
  const CancellationHeld held;
  const MutexLock guard(lock_);
  std::vector<Entry> entries;
  ranges_.for_each([&](const Entry& entry) {
    if (entry.value.context == context) entries.push_back(entry);
  });
  for (const Entry& entry : entries) remove_locked(entry);
}

// ---- Looking up ---------------------------------------------------------------------------------

HostRegistrations::Entry* HostRegistrations::find_ready_locked(uint64_t address) {
  Entry* entry = ranges_.find(address);
  if (entry == nullptr) {
    const auto* elsewhere = elsewhere_.find(address);
    if (elsewhere != nullptr) entry = ranges_.find(elsewhere->value.program);
  }
  if (entry == nullptr) return nullptr;
  // Where that fails it is memory like any other.
  if (entry->value.state == RegisteredHost::State::kWaiting) {
    static_cast<void>(make_ready_locked(*entry));
  }
  return entry->value.state == RegisteredHost::State::kReady ? entry : nullptr;
}

bool HostRegistrations::find_ready(uint64_t address, uint64_t* device) {
  if (count_.load(std::memory_order_acquire) == 0) return false;
  const MutexLock guard(lock_);
  const Entry* entry = find_ready_locked(address);
  if (entry == nullptr) return false;
  const bool by_program = address - entry->base < entry->bytes;
  *device = by_program ? entry->value.device + (address - entry->base) : address;
  return true;
}

bool HostRegistrations::contains(uint64_t device, uint64_t bytes, bool written) {
  if (count_.load(std::memory_order_acquire) == 0) return false;
  const MutexLock guard(lock_);
  const Entry* entry = find_ready_locked(device);
  if (entry == nullptr) return false;
  const uint64_t offset = device - entry->value.device;
  const bool inside = offset < entry->bytes && bytes <= entry->bytes - offset;
  return inside && !(written && (entry->value.flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0);
}

bool HostRegistrations::find(uint64_t address, Entry* entry) const {
  if (count_.load(std::memory_order_acquire) == 0) return false;
  const MutexLock guard(lock_);
  const Entry* found = ranges_.find(address);
  if (found == nullptr) return false;
  *entry = *found;
  entry->value.pages.clear();  // whose last owner gives them back
  return true;
}

bool HostRegistrations::set_sync_memops(uint64_t address, bool on) {
  const MutexLock guard(lock_);
  Entry* found = ranges_.find(address);
  if (found == nullptr) return false;
  found->value.sync_memops = on;
  return true;
}

uint64_t HostRegistrations::device_address(uint64_t address) const {
  Entry entry;
  if (!find(address, &entry)) return address;
  return entry.value.device + (address - entry.base);
}

void HostRegistrations::after_fork_in_child() {
  for (const auto& [begin, pages] : exchanged_) {
    copy_on_write(pages, pages.file->get());
  }
  lock_.unlock();
}

}  // namespace openmps::client
