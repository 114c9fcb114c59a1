// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still use: what the system has available, and what the limits of
// its cgroups leave. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace openmps {

// Bytes; an estimate, since others allocate at the same time. ~0: nothing is known.
uint64_t available_host_memory();

// The parts of that, for tests. Bytes that a file like /proc/meminfo says are available; ~0: it
// says nothing.
uint64_t available_in_meminfo(const std::string& text);
// What the cgroup (version 2) `group`, a path like that of /proc/self/cgroup, and those above it
// leave, where `root` is the mounted hierarchy; ~0: none has a limit.
uint64_t left_by_cgroups(const std::string& root, const std::string& group);

}  // namespace openmps
