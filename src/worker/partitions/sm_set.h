// SPDX-License-Identifier: Apache-2.0
// Sets of a device's SMs, as values, and how the driver divides a device into such sets. No driver,
// no locks.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "wire/handshake.h"

namespace openmps::worker {

// The driver hands out SMs in groups of equal size. The SMs that fill no group are a group of their
// own, the last.
inline constexpr size_t kMostSmGroups = wire::kMaxSmGroups;
using SmGroups = std::bitset<kMostSmGroups>;

struct SmSet {
  enum class Kind : uint8_t {
    kGroups,     // the SMs of `groups`
    kFew,        // the few SMs that small work has to itself beside long kernels (decision 31)
    kRemaining,  // all SMs but those few
  };
  Kind kind = Kind::kGroups;
  SmGroups groups;   // kRemaining: the groups that are in it as a whole; kFew: none
  uint32_t sms = 0;  // kGroups: the groups may have more SMs than these, which are not used then
  bool operator==(const SmSet&) const = default;

  // All SMs of `other` are among these.
  [[nodiscard]] bool includes(const SmSet& other) const {
    return kind == Kind::kGroups && other.kind == Kind::kGroups &&
           (other.groups & ~groups).none() && other.sms <= sms;
  }
};

// How a device is divided.
struct SmLayout {
  uint32_t sms = 0;                 // of the device
  uint32_t step = 0;                // SMs of a group; 0: the driver does not divide the device
  std::vector<uint32_t> group_sms;  // SMs of each group; none: the device is not divided yet
  bool has_partial_group = false;   // the last group is what fills no group
  uint32_t few_sms = 0;             // 0: there is no such division, which is not that into groups

  [[nodiscard]] bool is_divided() const { return !group_sms.empty(); }
  [[nodiscard]] SmGroups last_group() const { return SmGroups().set(group_sms.size() - 1); }
  [[nodiscard]] SmGroups all_groups() const {
    return ~SmGroups() >> (kMostSmGroups - group_sms.size());
  }
  [[nodiscard]] uint32_t sms_of(const SmGroups& groups) const {
    uint32_t sms = 0;
    for (size_t i = 0; i < group_sms.size(); ++i) sms += groups.test(i) ? group_sms[i] : 0;
    return sms;
  }
  [[nodiscard]] SmSet set_of(const SmGroups& groups) const {
    return {SmSet::Kind::kGroups, groups, sms_of(groups)};
  }
  // The few SMs are taken to be in the last group.
  [[nodiscard]] SmSet few() const { return {SmSet::Kind::kFew, {}, few_sms}; }
  [[nodiscard]] SmSet remaining() const {
    return {SmSet::Kind::kRemaining, all_groups() & ~last_group(), sms - few_sms};
  }
};

// `count` groups of `allowed`, or all of these if there are fewer: those with the fewest users,
// among equals those of `preferred`, then those of the lowest numbers, so that equal wishes get
// equal sets where no set gets busier by that. `users`: how many each group has.
[[nodiscard]] inline SmGroups least_used(std::span<const uint32_t> users, size_t count,
                                         const SmGroups& allowed, const SmGroups& preferred = {}) {
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
