// SPDX-License-Identifier: Apache-2.0
// The start of the device model in a process, and its fate across fork and exit. Called by the
// front: cuInit, every entry point, and the end of the library.
#pragma once

#include "cuda/status.h"

namespace openmps::softgpu {

class Driver;

// cuInit: idempotent, thread-safe.
Status start_driver();
// Null before cuInit and, for ever, in a child that was forked after it. It is never destroyed:
// threads of the program may call until the very end.
Driver* started_driver();
// This process was forked after cuInit.
bool is_forked();
// The process exits, and has come past the handler that cuInit registered.
bool is_exiting();
// Leave the shared segments; called when the library is unloaded or the process exits.
void stop_driver();

}  // namespace openmps::softgpu
