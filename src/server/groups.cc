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

const Group* Groups::find(uint32_t number) const {
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
  if (group == nullptr || group->members != 0 || group->is_permanent) return;
  if (group->limits == group->configured) all_.erase(number);
}

// The operator's priority of a group overrides the quality that the program states.
void give_limits(const Group& group, const wire::Grant& own, wire::Grant* grant) {
  const uint32_t priority = group.limits.client_priority;
  const bool has_own = priority == wire::kNoPriority;
  grant->limits.client_priority = has_own ? own.limits.client_priority : priority;
  grant->quality = has_own ? own.quality : wire::Quality::kUnset;
  grant->limits.work_time_s =
      wire::combined_limit(own.limits.work_time_s, group.limits.work_time_s);
}

}  // namespace openmps::server
