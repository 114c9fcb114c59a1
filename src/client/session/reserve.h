// SPDX-License-Identifier: Apache-2.0
// Memory set aside for the moment when the process has none left. The standard library's new
// handler (this library's own: libstdc++ is linked into it) gives the first piece to the call that
// is under way, so that it ends as if nothing had happened. From then on calls that need memory
// are refused before they begin, until the pieces can be set aside again; calls that give memory
// back go on, and have the second piece. So no call stops half-way, but one that needs more at
// once than the pieces hold: that one ends by an exception (result_of_exception()). Any thread.
#pragma once

#include <cstddef>

namespace openmps::client {

// What one call allocates in small pieces: a round number above the largest seen, some 60 KiB for
// the tables of a first allocation and the chunk of a handle table.
inline constexpr size_t kReserveBytes = 256 * 1024;

// Sets the memory aside and installs the handler. When a session is made; twice does no harm.
void set_memory_aside();

}  // namespace openmps::client
