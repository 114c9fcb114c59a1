// SPDX-License-Identifier: Apache-2.0
// Futex wait and wake on words in memory that several processes map (never FUTEX_PRIVATE).
// Called by both ends of the channel, on any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace openmps {

// Sleep while *word == expected, at most timeout_ns (0: no limit). Returns on a wake, a changed
// word, a signal or the timeout: the caller checks its own condition again.
void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, uint64_t timeout_ns);

// Wake at most `count` sleepers.
void futex_wake(std::atomic<uint32_t>* word, int count);

}  // namespace openmps
