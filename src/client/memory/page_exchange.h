// SPDX-License-Identifier: Apache-2.0
// Pages of this process take the place of others, with their contents and without losing anybody's
// write. For that time all other threads stand still, none of them inside a system call; threads
// that a debugger has can't be stopped, and nothing is exchanged then. Any thread, one at a time;
// the caller's own stack may lie in the range.
//
// A helper stops them: a process that shares this one's memory and descriptors, has a stack
// of its own, and traces the threads for that moment (ptrace: no signal handler, no SIGCHLD). The
// caller sleeps in the system call that made the helper. Large ranges are exchanged piece by piece,
// and between two pieces everybody runs (docs/decisions/0037).
#pragma once

#include <cstdint>

#include "client/memory/maps.h"

namespace openmps::client {

// What is copied while everybody waits: 3 ms on an H200's host. Pieces end at multiples of it.
inline constexpr uint64_t kExchangePieceBytes = 32ull << 20;

enum class Exchanged {
  kAll,
  kChanged,      // something else lies there
  kNotAllowed,   // the other threads can't be stopped
  kOutOfMemory,  // or of mappings
};
struct ExchangeResult {
  Exchanged outcome = Exchanged::kAll;
  uint64_t bytes = 0;    // that have been exchanged, from the beginning on
  const char* why = "";  // not kAll: a constant text
};

// `range`: what has to lie there, whole pages. The pages from `fresh` on, which are mapped for
// reading and writing, move there, and get the contents and the protection.
ExchangeResult exchange_pages(const MappedRange& range, uint64_t fresh);
// Nothing is exchanged: whether the other threads can be stopped.
ExchangeResult try_exchange();

}  // namespace openmps::client
