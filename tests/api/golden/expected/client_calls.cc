// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Implementations of which the description says how they begin (`enter`), or all that
// they do (`get`, `returns`). On the program's threads.

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/entry/entry.h"
#include "client/entry/families.h"
#include "wire/commands/device.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace openmps::client::impl {

}  // namespace openmps::client::impl
