// SPDX-License-Identifier: Apache-2.0
// Which driver functions a program calls with success, for the coverage page: the name of each,
// once per process, is appended to the file that OPENMPS_CALLS_FILE names. Any thread.
#pragma once

namespace openmps::client {

// Reads the environment. Called once, before the entry points are installed.
void begin_call_record();

}  // namespace openmps::client
