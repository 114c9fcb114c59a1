// SPDX-License-Identifier: Apache-2.0
// See groups.h.
#include "control/groups.h"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "control/settings.h"

namespace openmps::control {

bool names_a_group(std::string_view word) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kAll =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-.";
  return word.size() <= kMaxGroupWord && word.find_first_not_of(kAll) == std::string_view::npos &&
         word.find_first_not_of(kDigits) != std::string_view::npos;
}

std::optional<std::string> matching_cgroup(const std::string& pattern, std::string_view path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    std::string cgroup(path.substr(0, end));
    if (fnmatch(pattern.c_str(), cgroup.c_str(), 0) == 0) return cgroup;
    if (end == std::string_view::npos) return std::nullopt;
  }
}

// Lines of "hierarchy:controllers:path".
std::vector<std::string> cgroup_paths(std::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t path = line.find(':', line.find(':') + 1);
    if (line.find(':') != std::string_view::npos && path != std::string_view::npos) {
      paths.emplace_back(line.substr(path + 1));
    }
  }
  return paths;
}

std::optional<std::vector<std::string>> read_cgroups(uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) return std::nullopt;
  return cgroup_paths(text);
}

namespace {

// The group that the rule puts the applicant into; nothing: the rule does not fit. The note says
// why if only the cgroup is the obstacle.
std::optional<std::string> group_by(const GroupRule& rule, const Applicant& applicant,
                                    const std::optional<std::vector<std::string>>& cgroups,
                                    std::string* note) {
  if (!rule.has_members_by_rule()) return std::nullopt;
  if (rule.user && *rule.user != applicant.user) return std::nullopt;
  if (!rule.program.empty() && rule.program != program_name(applicant.command)) {
    return std::nullopt;
  }
  if (rule.cgroup.empty()) return rule.name;
  if (!cgroups) {
    *note = "its cgroup can't be read, so it is not in group " + rule.name;
    return std::nullopt;
  }
  for (const std::string& path : *cgroups) {
    const std::optional<std::string> found = matching_cgroup(rule.cgroup, path);
    if (!found) continue;
    std::string name = rule.each_cgroup ? rule.name + ":" + *found : rule.name;
    if (name.size() < wire::kGroupNameBytes) return name;
    *note = "the path of its cgroup is too long for group " + rule.name;
  }
  return std::nullopt;
}

}  // namespace

Membership membership_of(const std::vector<GroupRule>& rules, const Applicant& applicant,
                         const std::optional<std::vector<std::string>>& cgroups) {
  Membership membership;
  for (const GroupRule& rule : rules) {
    std::optional<std::string> group = group_by(rule, applicant, cgroups, &membership.note);
    if (!group) continue;
    membership.group = std::move(*group);
    return membership;
  }
  if (applicant.word.empty()) return membership;
  if (!names_a_group(applicant.word)) {
    membership.note = "OPENMPS_GROUP is not the name of a group: ignored";
    return membership;
  }
  const GroupRule* rule = rule_of(rules, applicant.word);
  if (rule != nullptr && rule->has_members_by_rule()) {
    membership.note = "OPENMPS_GROUP names " + rule->name + ", whose rule does not fit: ignored";
    return membership;
  }
  membership.group = applicant.word;
  return membership;
}

const GroupRule* rule_of(const std::vector<GroupRule>& rules, std::string_view group) {
  const std::string_view name = group.substr(0, group.find(':'));
  const auto found = std::ranges::find(rules, name, &GroupRule::name);
  return found == rules.end() ? nullptr : &*found;
}

wire::ClientLimits group_limits(const GroupRule& rule, const std::vector<Device>& devices) {
  Settings settings;
  (void)settings.change({}, rule.limits);
  return settings.resolved(devices);
}

std::vector<std::string> changes_of_group(const GroupRule* before, const GroupRule* now) {
  const GroupRule none;
  const std::string name = "group " + (now != nullptr ? now : before)->name;
  std::vector<std::string> lines;
  if (before == nullptr) lines.push_back(name + " is there from now on");
  if (now == nullptr) lines.push_back(name + " is not described any more");
  if (before != nullptr && now != nullptr && !before->has_same_members(*now)) {
    lines.push_back(name + " has other members from now on");
  }
  const GroupRule& was = before != nullptr ? *before : none;
  const GroupRule& is = now != nullptr ? *now : none;
  Settings settings;
  (void)settings.change({}, was.limits);
  for (const std::string& line : settings.change(was.limits, is.limits)) {
    lines.push_back(name + " " + line);
  }
  return lines;
}

}  // namespace openmps::control
