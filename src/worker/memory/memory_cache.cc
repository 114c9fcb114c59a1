// SPDX-License-Identifier: Apache-2.0
// See memory_cache.h.
#include "worker/memory/memory_cache.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"

namespace openmps::worker {

MemoryCache::Entries MemoryCache::of(uint32_t session) {
  return {kept_.lower_bound({session, 0}), kept_.upper_bound({session, ~0ull})};
}

MemoryCache::All::iterator MemoryCache::remove(All::iterator kept) {
  const Mapping& mapping = kept->second.mapping;
  bytes_[mapping.device].fetch_sub(mapping.bytes);
  return kept_.erase(kept);
}

// The physical memory is released with its last holder.
template <typename F>
bool MemoryCache::unmap_if(const DriverTable& driver, Entries entries, F&& goes) {
  bool any = false;
  for (auto it = entries.begin(); it != entries.end();) {
    if (!goes(*it)) {
      ++it;
      continue;
    }
    driver.cuMemUnmap(it->first.second, it->second.mapping.bytes);
    it = remove(it);
    any = true;
  }
  return any;
}

void MemoryCache::keep(const DriverTable& driver, uint32_t session, uint64_t address,
                       Mapping mapping, uint64_t now) {
  const MutexLock lock(mutex_);
  bytes_[mapping.device].fetch_add(mapping.bytes);
  kept_[{session, address}] = {now, std::move(mapping)};
  uint64_t bytes = 0;
  for (const auto& [place, kept] : of(session)) bytes += kept.mapping.bytes;
  while (bytes > kMostKeptBytes) {
    const Entries own = of(session);
    const auto oldest = std::min_element(own.first, own.last, [](const auto& a, const auto& b) {
      return a.second.since < b.second.since;
    });
    bytes -= oldest->second.mapping.bytes;
    unmap_if(driver, {oldest, std::next(oldest)}, [](const auto&) { return true; });
  }
}

bool MemoryCache::take(uint32_t session, uint64_t address, const Mapping& wanted,
                       std::shared_ptr<Holding>* holding) {
  const MutexLock lock(mutex_);
  const auto found = kept_.find({session, address});
  if (found == kept_.end()) return false;
  Mapping& kept = found->second.mapping;
  if (kept.bytes != wanted.bytes || kept.device != wanted.device || kept.peers != wanted.peers) {
    return false;
  }
  *holding = std::move(kept.holding);
  remove(found);
  return true;
}

void MemoryCache::clear(const DriverTable& driver, uint32_t session, uint64_t begin, uint64_t end) {
  const MutexLock lock(mutex_);
  unmap_if(driver, of(session), [begin, end](const auto& entry) {
    const uint64_t address = entry.first.second;
    return address < end && address + entry.second.mapping.bytes > begin;
  });
}

uint64_t MemoryCache::clear_old(const DriverTable& driver, uint32_t session, uint64_t now) {
  const MutexLock lock(mutex_);
  uint64_t next = 0;
  unmap_if(driver, of(session), [now, &next](const auto& entry) {
    const uint64_t end = entry.second.since + kKeptNs;
    if (end > now) next = next == 0 ? end : std::min(next, end);
    return end <= now;
  });
  return next;
}

bool MemoryCache::clear_all(const DriverTable& driver, const SessionGroup* group) {
  const MutexLock lock(mutex_);
  return unmap_if(driver, {kept_.begin(), kept_.end()}, [group](const auto& entry) {
    return group == nullptr || entry.second.mapping.group == group;
  });
}

uint64_t MemoryCache::bytes(uint32_t device, uint32_t session) {
  const MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [place, kept] : of(session)) {
    if (kept.mapping.device == device) bytes += kept.mapping.bytes;
  }
  return bytes;
}

uint64_t MemoryCache::bytes(uint32_t device, const SessionGroup& group) {
  const MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [place, kept] : kept_) {
    if (kept.mapping.device == device && kept.mapping.group == &group) bytes += kept.mapping.bytes;
  }
  return bytes;
}

}  // namespace openmps::worker
