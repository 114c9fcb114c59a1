// SPDX-License-Identifier: Apache-2.0
// What a process has from whoever started it and can't work with: signals that are ignored, limits,
// closed streams. Daemon, server and worker call this first thing in main(), before there is a
// second thread, a child or a descriptor of theirs. What is harmless stays: priority, processors,
// directory.
#pragma once

#include <cstdint>

#include "cuda/status.h"

namespace openmps {

// Standard streams that are closed lead to /dev/null, or the next descriptors would get their
// numbers. Ignored signals have their default action (who ignores SIGCHLD never learns how a child
// has ended), no signal is blocked, and no timer of the starter's runs on (alarm(), which execve()
// keeps).
void forget_starter();

// What a program needs, in bytes.
struct Needs {
  uint64_t file_bytes = 0;     // the largest file, shared memory included
  uint64_t address_bytes = 0;  // address space
};

// Bring the limits of files, address space, data and CPU time as high as they may be, and the
// stack, which is also that of threads, to 8 MiB: without a limit the system would lay out the
// address space in another way. What is started from here inherits them.
// CUDA_ERROR_OPERATING_SYSTEM: something is below what is needed, with its name in ulimit.
Status raise_limits(const Needs& needs);

}  // namespace openmps
