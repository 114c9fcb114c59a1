// SPDX-License-Identifier: Apache-2.0
// What server and worker agree on about the descriptors that the server keeps (handshake.h: Keep).
#pragma once

#include <cstdint>

#include "base/environment.h"

namespace openmps::wire {

// The limit of open files of server and worker, where the system allows it: the server has one for
// each memory object of its clients, and a worker some, while it exports them.
inline constexpr unsigned long kMostOpenFiles = 1u << 20;

// How many descriptors a process keeps for others, of so many that it may have open: the rest is
// for its own files, and for descriptors that wait to be sent.
constexpr uint64_t most_kept(uint64_t open_files) { return open_files / 4 * 3; }

// OPENMPS_TAKEOVER=off: sessions end with their worker, and nothing is kept. Server and workers
// have the daemon's environment.
inline bool takes_over() { return environment_or("OPENMPS_TAKEOVER", "on") != "off"; }

// OPENMPS_SUSPEND=off: the memory of sessions stays on its devices. Workers have the daemon's
// environment.
inline bool suspends() { return environment_or("OPENMPS_SUSPEND", "on") != "off"; }

}  // namespace openmps::wire
