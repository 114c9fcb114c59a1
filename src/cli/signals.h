// SPDX-License-Identifier: Apache-2.0
// The signals that end what goes on until it is told to stop: Ctrl-C, SIGTERM, SIGHUP. Main thread.
#pragma once

namespace openmps::cli {

// Catches them once: a second signal ends the program at once. Returns a descriptor that can be
// read from the first one on; -1: the system has none left, and the first signal does nothing.
int catch_ending_signals();

}  // namespace openmps::cli
