// SPDX-License-Identifier: Apache-2.0
// See sm_set.h.
#include "worker/partitions/sm_set.h"

#include <algorithm>
#include <utility>

namespace openmps::worker {

SmGroups SmLayout::all_groups() const {
  SmGroups all;
  for (size_t group = 0; group < group_sms.size(); ++group) all.set(group);
  return all;
}

uint32_t SmLayout::sms_of(const SmGroups& groups) const {
  uint32_t sms = 0;
  for (size_t group = 0; group < group_sms.size(); ++group) {
    sms += groups.test(group) ? group_sms[group] : 0;
  }
  return sms;
}

SmGroups least_used(std::span<const uint32_t> users, size_t count, const SmGroups& allowed,
                    const SmGroups& preferred) {
  std::vector<size_t> order;
  for (size_t group = 0; group < users.size(); ++group) {
    if (allowed.test(group)) order.push_back(group);
  }
  std::ranges::stable_sort(order, {}, [&](size_t group) {
    return std::pair(users[group], preferred.test(group) ? 0 : 1);
  });
  SmGroups chosen;
  for (const size_t group : std::span(order).first(std::min(count, order.size()))) {
    chosen.set(group);
  }
  return chosen;
}

}  // namespace openmps::worker
