// SPDX-License-Identifier: Apache-2.0
// The worker's log lines: "[2026-11-21 10:20:30.456 Worker  1234] text" to standard error, which
// the server redirects into its log file. Called by the main, session and watchdog threads.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace openmps::worker {

// One line, one write: lines of several threads and processes do not mix.
void log(const std::string& text);
// Further lines go there. For tests, while nothing else logs.
void log_to(UniqueFd fd);

}  // namespace openmps::worker
