// SPDX-License-Identifier: Apache-2.0
// Which group a client is in: the rules of the configuration, and the client's own word
// (docs/decisions/0029). Pure functions, but for reading /proc; used by the daemon as it admits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/device.h"
#include "control/limits.h"
#include "wire/handshake.h"

namespace openmps::control {

// Of the word that names a group.
inline constexpr size_t kMaxGroupWord = 63;

// A [[groups]] table. Who fits all that it states is in the group; one that states none of it is of
// those who name it.
struct GroupRule {
  std::string name;
  std::string program = {};        // file name of argv[0]; "": any
  std::string cgroup = {};         // shell pattern of the path of a cgroup; "": any
  std::optional<uid_t> user = {};  // nothing: any
  bool each_cgroup = false;        // each cgroup that fits is a group of its own
  Limits limits = {};

  [[nodiscard]] bool has_members_by_rule() const {
    return !program.empty() || !cgroup.empty() || user.has_value();
  }
  [[nodiscard]] bool has_same_members(const GroupRule& other) const {
    return program == other.program && cgroup == other.cgroup && user == other.user &&
           each_cgroup == other.each_cgroup;
  }
};

// Letters, digits, '_', '-' and '.', at most kMaxGroupWord, and not digits alone: commands take a
// number for a PID.
bool names_a_group(std::string_view word);

// The cgroup that a pattern means, of a process in `path`: the highest one that fits, that or one
// above it, so that nobody gets out of a group by making cgroups below. "*" goes beyond a "/".
// Nothing: none fits.
std::optional<std::string> matching_cgroup(const std::string& pattern, std::string_view path);

// The paths in the text of /proc/PID/cgroup, of each hierarchy.
std::vector<std::string> cgroup_paths(std::string_view text);
// Of that process; nothing: it can't be read.
std::optional<std::vector<std::string>> read_cgroups(uint32_t pid);

struct Applicant {
  uid_t user = 0;
  std::string_view command;  // its command line
  std::string_view word;     // OPENMPS_GROUP; "": it says nothing
};
struct Membership {
  std::string group;  // "": in none
  std::string note;   // for the log, if something keeps it out; else ""
};
// By the first rule that fits, else by its own word. Nobody names himself into a group whose
// members a rule chooses. `cgroups`: as read_cgroups() has them.
Membership membership_of(const std::vector<GroupRule>& rules, const Applicant& applicant,
                         const std::optional<std::vector<std::string>>& cgroups);

// The rule that a group of that name comes from; null: none.
const GroupRule* rule_of(const std::vector<GroupRule>& rules, std::string_view group);
// The limits that a rule states, as servers know them.
wire::ClientLimits group_limits(const GroupRule& rule, const std::vector<Device>& devices);
// A line for each difference between what two configurations say of a group; null: nothing.
std::vector<std::string> changes_of_group(const GroupRule* before, const GroupRule* now);

}  // namespace openmps::control
