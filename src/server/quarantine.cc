// SPDX-License-Identifier: Apache-2.0
// See quarantine.h.
#include "server/quarantine.h"

#include <algorithm>

namespace openmps::server {

Quarantine::Entry& Quarantine::entry(const std::string& program, uint64_t now_ns) {
  std::erase_if(entries_,
                [now_ns](const auto& held) { return held.second.remembered_ns <= now_ns; });
  if (entries_.size() >= kMost && !entries_.contains(program)) {
    entries_.erase(std::ranges::min_element(
        entries_, {}, [](const auto& held) { return held.second.remembered_ns; }));
  }
  Entry& found = entries_[program];
  found.remembered_ns = now_ns + kGuiltyNs;
  return found;
}

void Quarantine::note_guilty(const std::string& program, uint64_t now_ns) {
  entry(program, now_ns).until_ns = now_ns + kGuiltyNs;
}

bool Quarantine::note_suspect(const std::string& program, uint64_t now_ns) {
  Entry& suspect = entry(program, now_ns);
  if (++suspect.suspicions < kSuspicions) return suspect.until_ns > now_ns;
  suspect.until_ns = std::max(suspect.until_ns, now_ns + kSuspectNs);
  return true;
}

bool Quarantine::holds(const std::string& program, uint64_t now_ns) const {
  const auto found = entries_.find(program);
  return found != entries_.end() && found->second.until_ns > now_ns;
}

}  // namespace openmps::server
