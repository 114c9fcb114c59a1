// SPDX-License-Identifier: Apache-2.0
// Memory that is reserved for the moment when the process has none left. The new handler (of this
// library's own libstdc++, which is linked into it) frees the first block for the call that is
// being executed, so that the call completes. From then on, calls that need memory are refused
// before they begin, until both blocks can be reserved again; calls that release memory are
// executed, and get the second block. So no call stops half-way, except one that needs more than a
// block at once: that call ends with an exception (result_of_exception()). Any thread.
#pragma once

#include <cstddef>

namespace openmps::client {

// Of one block: above the most that a call was seen to allocate in small parts, some 60 KiB for the
// tables of a first allocation and the chunk of a handle table.
inline constexpr size_t kReserveBytes = 256 * 1024;

// Reserves the memory and installs the handler, when a session is made. May be called again.
void set_memory_aside();

}  // namespace openmps::client
