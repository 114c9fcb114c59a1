// SPDX-License-Identifier: Apache-2.0
// The configuration file of the daemon (--config, --apply): the limits of all users' clients and of
// each user's, groups of clients with limits together, static partitions, and what a file of MPS's
// interface v3 has: servers with their namespaces. TOML; docs/man/openmps-control.1.in describes
// it. Read at the start and by `reload`, fuzzed by tests/fuzz/config_fuzz.cc. The state that a
// daemon leaves to the next one is in the same notation.
#pragma once

#include <string>
#include <string_view>

#include "control/config_model.h"
#include "cuda/status.h"

namespace openmps::control {

// The configuration that `text` states. CUDA_ERROR_INVALID_VALUE: the message is NAME:LINE:COLUMN
// and what was expected there.
Result<Config> parse_config(std::string_view text, const std::string& name,
                            const FindUser& find_user);

// parse_config() of a file, with the system's users. CUDA_ERROR_FILE_NOT_FOUND: it can't be read.
Result<Config> read_config(const std::string& path);

// CUDA_ERROR_INVALID_VALUE: the configuration describes partitions, and the daemon has no -S.
Status check_mode(const Config& config, bool has_static_partitions);

}  // namespace openmps::control
