// SPDX-License-Identifier: Apache-2.0
// What daemon, server and worker give up for good before they serve anybody: to be looked into by
// other processes of their user, to look into those, to gain rights, and the system calls that they
// never need. A call that is refused fails with EPERM and is named in the log. docs/security.md has
// the lists' reasons. Called by main(); a library of its own, which the client library does not
// link.
#pragma once

#include "cuda/status.h"

namespace openmps {

// Each may do less than the one before it: a filter is inherited, and the daemon starts servers, a
// server its worker.
enum class Role { kDaemon, kServer, kWorker };

// Once per process, for all of its threads. `log_fd` stays open; refusals are written to it.
// Errors: CUDA_ERROR_OPERATING_SYSTEM. OPENMPS_CONFINE=0 leaves the process as it is, for a
// debugger; sanitizer builds are left so unless OPENMPS_CONFINE=1.
Status confine(Role role, int log_fd);

// The part of confine() that counts for the calling thread and those that it starts only: from now
// on the memory and descriptors of processes which are not started by this one are out of reach.
// For a worker, before it has threads; confine() does it where it has not been done. It has what
// the server has given up (no_new_privs). Without Landlock (Linux 5.19) it is left out, with a line
// to `log_fd`. Errors: CUDA_ERROR_OPERATING_SYSTEM.
Status keep_to_itself(int log_fd);

// False: NVIDIA's kernel driver is not set up yet, and the first worker may have nvidia-modprobe, a
// program with root's rights, do it. Daemon and server confine themselves when that worker is
// ready.
bool driver_is_set_up();

// Name refused calls in the log from now on, before confine(): for a process that has inherited a
// filter.
void report_refused_calls(int log_fd);

}  // namespace openmps
