// SPDX-License-Identifier: Apache-2.0
// The configuration file of the daemon (--config): the limits of all users' clients and of each
// user's, groups of clients with limits together, and static partitions. TOML;
// docs/man/openmps-control.1.in describes it. Read at the start and by `reload`, fuzzed by
// tests/fuzz/config_fuzz.cc.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/groups.h"
#include "control/limits.h"
#include "control/static_partitions.h"
#include "cuda/status.h"

namespace openmps::control {

struct Config {
  Limits defaults;
  std::map<uid_t, Limits> users;
  std::vector<GroupRule> groups;          // in the file's order; names are unique
  std::vector<PartitionRule> partitions;  // in the file's order; names are unique
};

// The number of a user of that name, if there is one.
using FindUser = std::function<std::optional<uid_t>(const std::string& name)>;

// The configuration that `text` states. CUDA_ERROR_INVALID_VALUE: the message is NAME:LINE:COLUMN
// and what was expected there.
Result<Config> parse_config(std::string_view text, const std::string& name,
                            const FindUser& find_user);

// parse_config() of a file, with the system's users. CUDA_ERROR_FILE_NOT_FOUND: it can't be read.
Result<Config> read_config(const std::string& path);

// CUDA_ERROR_INVALID_VALUE: the configuration describes partitions, and the daemon has no -S.
Status check_mode(const Config& config, bool has_static_partitions);

}  // namespace openmps::control
