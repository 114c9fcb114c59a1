// SPDX-License-Identifier: Apache-2.0
// The group of a client: by the rules of the configuration, else by OPENMPS_GROUP of the program
// (docs/decisions/0029). Pure functions, except those that read /proc; used when the daemon admits
// a client.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/device.h"
#include "control/limits.h"
#include "wire/handshake.h"

namespace openmps::control {

// Bytes of the word that names a group.
inline constexpr size_t kMaxGroupWord = 63;

// A group of clients with limits together: a [[groups]] table, or a namespace of a server
// (named_servers.h). Clients of a [[groups]] table's are those that fit all of its conditions;
// without a condition, those that name the group. Into a namespace its socket leads, and its
// cgroup.
struct GroupRule {
  std::string name;
  std::string program = {};        // file name of argv[0]; "": any
  std::string cgroup = {};         // shell pattern of the path of a cgroup; "": any. Of a namespace
                                   // the path itself
  std::optional<uid_t> user = {};  // nothing: any; of a namespace, those whom its server serves
  bool each_cgroup = false;        // each cgroup that fits is a group of its own
  Limits limits = {};
  // Of a namespace: it is being deleted, and nobody is let in.
  bool is_leaving = false;
  // Of a namespace: how many levels below its cgroup still belong to it; nothing: all.
  std::optional<uint32_t> cgroup_depth = {};
  // Of a namespace: the best that its clients may have, and have if they state nothing.
  wire::Quality quality = wire::Quality::kNormal;
  // Of a namespace: the static partition of each device, by its UUID, in which its clients run.
  std::map<std::string, std::string> partitions = {};

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

// The cgroup that a pattern matches for a process in the cgroup `path`: the highest one among
// `path` and its parents, so that a program can't leave a group by making a cgroup below. "*" also
// matches
// "/". Nothing: none matches.
std::optional<std::string> matching_cgroup(const std::string& pattern, std::string_view path);

// The paths in the text of /proc/PID/cgroup, of each hierarchy.
std::vector<std::string> cgroup_paths(std::string_view text);
// The cgroups of a process; nothing: they can't be read.
std::optional<std::vector<std::string>> read_cgroups(uint32_t pid);

struct Applicant {
  uid_t user = 0;
  std::string_view command;  // the client's command line
  std::string_view word;     // OPENMPS_GROUP; "": not set
};
struct Membership {
  std::string group;  // "": in none
  std::string note;   // for the log: why it is in none; else ""
};
// By the first rule that fits, else by the applicant's word, which may not name a group whose
// members a rule chooses. `cgroups`: from read_cgroups().
Membership membership_of(const std::vector<GroupRule>& rules, const Applicant& applicant,
                         const std::optional<std::vector<std::string>>& cgroups);

// The rule that a group of that name comes from; null: none.
const GroupRule* rule_of(const std::vector<GroupRule>& rules, std::string_view group);
// The limits that a rule states, as servers know them.
wire::ClientLimits group_limits(const GroupRule& rule, const std::vector<Device>& devices);
// A line for each difference between two configurations of a group; null: the group has no table.
std::vector<std::string> changes_of_group(const GroupRule* before, const GroupRule* now);

}  // namespace openmps::control
