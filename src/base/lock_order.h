// SPDX-License-Identifier: Apache-2.0
// The order of all locks of the tree. Each Mutex has a rank (base/lock_order.def has the list); a
// thread may take a mutex only if its rank is above that of every mutex that the thread holds.
// Builds with OPENMPS_CHECK_LOCK_ORDER (the presets debug, asan and tsan) end a program that breaks
// this rule; other builds store no rank.
#pragma once

#include <cstdint>

namespace openmps {

enum class LockRank : uint8_t {
#define LOCK_RANK(name, what) name,
#include "base/lock_order.def"
#undef LOCK_RANK
};

#ifdef OPENMPS_CHECK_LOCK_ORDER
// The calling thread is about to take a mutex of this rank. If the thread holds one of this rank or
// of a higher one, the program ends with a message that names all of them.
void note_lock(LockRank rank);
// The calling thread is about to give back its mutex of this rank.
void note_unlock(LockRank rank);
// Ends the program if the calling thread holds no mutex of this rank.
void check_held(LockRank rank);
#endif

}  // namespace openmps
