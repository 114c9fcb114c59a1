// SPDX-License-Identifier: Apache-2.0
// The client library's only output: one line per notable event on stderr, and only if OPENMPS_DEBUG
// is set. Called from any thread.
#pragma once

namespace openmps::client {

[[nodiscard]] bool debug_enabled();

// "openmps[pid]: ..." and a newline, in one write. Does nothing unless OPENMPS_DEBUG asks.
void debug_line(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace openmps::client
