// SPDX-License-Identifier: Apache-2.0
// See groups.h.
#include "server/groups.h"

#include <algorithm>

namespace openmps::server {

Group& Groups::get(std::string_view name) {
  if (Group* there = find(name); there != nullptr) return *there;
  if (all_.size() >= kMost) {
    const auto unused =
        std::ranges::find_if(all_, [](const auto& entry) { return entry.second.members == 0; });
    if (unused != all_.end()) all_.erase(unused);
  }
  do {
    ++last_;
  } while (last_ == 0 || all_.contains(last_));
  Group& made = all_[last_];
  made.number = last_;
  made.name = name;
  return made;
}

Group* Groups::find(uint32_t number) {
  const auto found = all_.find(number);
  return found == all_.end() ? nullptr : &found->second;
}

Group* Groups::find(std::string_view name) {
  const auto found =
      std::ranges::find_if(all_, [name](const auto& entry) { return entry.second.name == name; });
  return found == all_.end() ? nullptr : &found->second;
}

void Groups::leave(uint32_t number) {
  Group* group = find(number);
  if (group == nullptr) return;
  --group->members;
  forget_unused(number);
}

bool Groups::is_of(const Group& group, std::string_view rule) {
  const std::string_view name = group.name;
  return name.starts_with(rule) && (name.size() == rule.size() || name[rule.size()] == ':');
}

void Groups::forget_unused(uint32_t number) {
  const Group* group = find(number);
  if (group == nullptr || group->members != 0 || group->stays) return;
  if (group->limits == group->configured) all_.erase(number);
}

void configure(const wire::GroupLimits& now, Group* group) {
  const auto take = [](const auto& next, auto& before, auto& in_force) {
    if (next == before) return;
    before = in_force = next;
  };
  wire::GroupLimits& before = group->configured;
  wire::GroupLimits& in_force = group->limits;
  take(now.active_thread_percentage, before.active_thread_percentage,
       in_force.active_thread_percentage);
  take(now.client_priority, before.client_priority, in_force.client_priority);
  for (uint32_t i = 0; i < wire::kMaxDevices; ++i) {
    take(now.sms[i], before.sms[i], in_force.sms[i]);
    take(now.memory_limit[i], before.memory_limit[i], in_force.memory_limit[i]);
  }
}

// Who says this of all of them knows better than the program.
void give_priority(const Group& group, const wire::Grant& own, wire::Grant* grant) {
  const bool has_own = group.limits.client_priority == ~0u;
  grant->client_priority = has_own ? own.client_priority : group.limits.client_priority;
  grant->quality = has_own ? own.quality : wire::Quality::kUnset;
}

}  // namespace openmps::server
