// SPDX-License-Identifier: Apache-2.0
// The tables that a configuration file of MPS's interface v3 has (schema_version 1.0, with the keys
// of release 620): servers, namespaces, their partitions, features. The same tables hold the state
// that a daemon leaves to the next one (config_state.h). Used by config.cc.
#pragma once

#include <vector>

#include "control/toml_reader.h"

namespace openmps::control {

// The keys of the document, which put what they read into `config`. Both have to outlive them.
std::vector<TomlReader::Key> keys_of_v3(const TomlReader& toml, Config* config);

}  // namespace openmps::control
