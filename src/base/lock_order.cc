// SPDX-License-Identifier: Apache-2.0
#include "base/lock_order.h"

#ifdef OPENMPS_CHECK_LOCK_ORDER

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace openmps {

namespace {

// The ranks that the thread holds, ascending: each was checked when it was taken.
struct HeldRanks {
  std::array<LockRank, 32> ranks;
  size_t count;
};
constinit thread_local HeldRanks t_held{};

const char* rank_name(LockRank rank) {
  static constexpr const char* kNames[] = {
#define LOCK_RANK(name, what) #name " (" what ")",
#include "base/lock_order.def"
#undef LOCK_RANK
  };
  return kNames[static_cast<size_t>(rank)];
}

[[noreturn]] void fail(const char* what, LockRank rank) {
  std::fprintf(stderr, "lock order: %s %s\n", what, rank_name(rank));
  for (size_t i = 0; i < t_held.count; ++i) {
    std::fprintf(stderr, "lock order: held: %s\n", rank_name(t_held.ranks[i]));
  }
  std::abort();
}

LockRank* find_held(LockRank rank) {
  LockRank* const end = t_held.ranks.begin() + t_held.count;
  LockRank* const held = std::find(t_held.ranks.begin(), end, rank);
  if (held == end) fail("not held:", rank);
  return held;
}

}  // namespace

void note_lock(LockRank rank) {
  if (t_held.count == t_held.ranks.size()) fail("too many locks are held to take", rank);
  if (t_held.count != 0 && t_held.ranks[t_held.count - 1] >= rank) fail("out of order:", rank);
  t_held.ranks[t_held.count++] = rank;
}

void note_unlock(LockRank rank) {
  LockRank* const held = find_held(rank);
  std::copy(held + 1, t_held.ranks.begin() + t_held.count, held);
  --t_held.count;
}

void check_held(LockRank rank) { static_cast<void>(find_held(rank)); }

}  // namespace openmps

#endif  // OPENMPS_CHECK_LOCK_ORDER
