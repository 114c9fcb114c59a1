// SPDX-License-Identifier: Apache-2.0
// What a configuration file states (config.h).
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/groups.h"
#include "control/limits.h"
#include "control/named_servers.h"
#include "control/static_partitions.h"

namespace openmps::control {

// What can be switched in MPS's memory accounting and context sharing. Both are always on here:
// these are kept, shown, and change nothing (docs/differences.md).
struct Features {
  bool audit_log = false;
  bool shares_default_socket = true;
};

struct Config {
  Limits defaults;
  std::map<uid_t, Limits> users;
  std::vector<GroupRule> groups;          // in the file's order; names are unique
  std::vector<PartitionRule> partitions;  // in the file's order; ids are unique
  std::map<std::string, NamedServer> servers;
  Features features;
  std::vector<std::string> notes;  // for the log: keys that have no effect
};

// The number of a user of that name, if there is one.
using FindUser = std::function<std::optional<uid_t>(const std::string& name)>;

}  // namespace openmps::control
