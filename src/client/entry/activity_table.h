// SPDX-License-Identifier: Apache-2.0
// The table by which our libcupti learns when the session's work has run (cupti/activity.h).
#pragma once

#include "cupti/activity.h"

namespace openmps::client {

// May be used before cuInit.
[[nodiscard]] const cupti::ActivityTable& activity_table();

// The session has begun: a recording that was asked for before begins, too.
void begin_awaited_recording();

}  // namespace openmps::client
