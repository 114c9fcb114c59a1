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

struct PageExchange {
  // What has to lie there, in one or several mappings of that kind. Whole pages.
  uint64_t address = 0;
  uint64_t bytes = 0;
  MappingKind kind;
  uint64_t kind_offset = 0;  // into the kind's file, if it has one, of `address`
  // The pages that move there, and get the contents and the protection. Mapped for reading and
  // writing.
  uint64_t fresh = 0;
};

enum class Exchanged {
  kAll,
  kChanged,      // something else lies there
  kNotAllowed,   // the other threads can't be stopped
  kOutOfMemory,  // or of mappings
};
struct ExchangeResult {
  Exchanged outcome = Exchanged::kAll;
  uint64_t bytes = 0;    // that have been exchanged, from `address` on
  const char* why = "";  // not kAll: a constant text
};

ExchangeResult exchange_pages(const PageExchange& exchange);
// Nothing is exchanged: whether the other threads can be stopped.
ExchangeResult try_exchange();

}  // namespace openmps::client
