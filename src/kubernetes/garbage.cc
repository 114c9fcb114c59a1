// SPDX-License-Identifier: Apache-2.0
// See garbage.h.
#include "kubernetes/garbage.h"

#include <algorithm>

namespace openmps::kubernetes {

void Garbage::use(const std::string& name, uint64_t now) { known_[name] = {now, false}; }

void Garbage::set(const std::vector<std::string>& names, uint64_t now) {
  std::erase_if(known_, [&names](const auto& entry) {
    return std::ranges::find(names, entry.first) == names.end();
  });
  for (const std::string& name : names) known_.try_emplace(name, Known{now, false});
}

void Garbage::list(const std::set<std::string>& names, uint64_t now) {
  for (auto& [name, known] : known_) {
    if (names.contains(name)) known = {std::max(known.last_ns, now), true};
  }
}

std::vector<std::string> Garbage::find(uint64_t now) const {
  std::vector<std::string> found;
  for (const auto& [name, known] : known_) {
    const uint64_t grace = known.is_listed ? listed_ns_ : never_listed_ns_;
    if (now >= known.last_ns + grace) found.push_back(name);
  }
  return found;
}

}  // namespace openmps::kubernetes
