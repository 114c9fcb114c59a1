// SPDX-License-Identifier: Apache-2.0
// See memory_cache.h.
#include "worker/memory/memory_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/mutex.h"

namespace openmps::worker {

MemoryCache::ByAddress::iterator MemoryCache::remove(Part& part, ByAddress::iterator kept) {
  part.bytes -= kept->second.mapping.bytes;
  bytes_[kept->second.mapping.device].fetch_sub(kept->second.mapping.bytes);
  return part.kept.erase(kept);
}

// The physical memory is released with its last holder.
MemoryCache::ByAddress::iterator MemoryCache::unmap(const DriverTable& driver, Part& part,
                                                    ByAddress::iterator kept) {
  driver.cuMemUnmap(kept->first, kept->second.mapping.bytes);
  return remove(part, kept);
}

void MemoryCache::keep(const DriverTable& driver, uint32_t session, uint64_t address,
                       Mapping mapping, uint64_t now) {
  const MutexLock lock(mutex_);
  Part& part = parts_[session];
  part.bytes += mapping.bytes;
  bytes_[mapping.device].fetch_add(mapping.bytes);
  part.kept[address] = {now, std::move(mapping)};
  while (part.bytes > kMostKeptBytes) {
    unmap(driver, part,
          std::min_element(part.kept.begin(), part.kept.end(), [](const auto& a, const auto& b) {
            return a.second.since < b.second.since;
          }));
  }
}

bool MemoryCache::take(uint32_t session, uint64_t address, const Mapping& wanted,
                       std::shared_ptr<Holding>* holding) {
  const MutexLock lock(mutex_);
  Part& part = parts_[session];
  const auto found = part.kept.find(address);
  if (found == part.kept.end()) return false;
  Mapping& kept = found->second.mapping;
  if (kept.bytes != wanted.bytes || kept.device != wanted.device || kept.peers != wanted.peers) {
    return false;
  }
  *holding = std::move(kept.holding);
  remove(part, found);
  return true;
}

void MemoryCache::clear(const DriverTable& driver, uint32_t session, uint64_t begin, uint64_t end) {
  const MutexLock lock(mutex_);
  const auto found = parts_.find(session);
  if (found == parts_.end()) return;
  Part& part = found->second;
  auto it = part.kept.upper_bound(begin);
  if (it != part.kept.begin()) {
    const auto before = std::prev(it);
    if (before->first + before->second.mapping.bytes > begin) it = before;
  }
  while (it != part.kept.end() && it->first < end) it = unmap(driver, part, it);
  if (part.kept.empty()) parts_.erase(found);
}

uint64_t MemoryCache::clear_old(const DriverTable& driver, uint32_t session, uint64_t now) {
  const MutexLock lock(mutex_);
  const auto found = parts_.find(session);
  if (found == parts_.end()) return 0;
  Part& part = found->second;
  uint64_t next = 0;
  for (auto it = part.kept.begin(); it != part.kept.end();) {
    const uint64_t end = it->second.since + kKeptNs;
    if (end <= now) {
      it = unmap(driver, part, it);
      continue;
    }
    if (next == 0 || end < next) next = end;
    ++it;
  }
  if (part.kept.empty()) parts_.erase(found);
  return next;
}

// A session never changes its group, so all its mappings count against one.
bool MemoryCache::is_of(const Part& part, const SessionGroup* group) {
  return !part.kept.empty() && part.kept.begin()->second.mapping.group == group;
}

bool MemoryCache::clear_all(const DriverTable& driver, const SessionGroup* group) {
  const MutexLock lock(mutex_);
  bool any = false;
  for (auto& [session, part] : parts_) {
    if (group != nullptr && !is_of(part, group)) continue;
    for (auto it = part.kept.begin(); it != part.kept.end();) {
      it = unmap(driver, part, it);
      any = true;
    }
  }
  std::erase_if(parts_, [](const auto& entry) { return entry.second.kept.empty(); });
  return any;
}

uint64_t MemoryCache::bytes_of(const Part& part, uint32_t device) {
  uint64_t bytes = 0;
  for (const auto& [address, kept] : part.kept) {
    if (kept.mapping.device == device) bytes += kept.mapping.bytes;
  }
  return bytes;
}

uint64_t MemoryCache::bytes(uint32_t device, uint32_t session) {
  const MutexLock lock(mutex_);
  const auto found = parts_.find(session);
  return found == parts_.end() ? 0 : bytes_of(found->second, device);
}

uint64_t MemoryCache::bytes(uint32_t device, const SessionGroup& group) {
  const MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [session, part] : parts_) {
    if (is_of(part, &group)) bytes += bytes_of(part, device);
  }
  return bytes;
}

}  // namespace openmps::worker
