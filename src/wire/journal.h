// SPDX-License-Identifier: Apache-2.0
// The journal of a session: the commands that make it again in another worker
// (docs/decisions/0042). A sparse file that the server makes, hands to the session's worker with
// OpenSession, and keeps; the client never sees it. The worker writes it while it executes commands
// (worker/session/journal.h). After the worker's end the next one reads it; of a worker that died
// in the middle of an entry, the journal ends before that entry.
//
//   | JournalHeader, one page | entries ... |
//
// Entries lie between `begin` and `end` of the current extent, in the order of execution.
#pragma once

#include <atomic>
#include <cstdint>

#include "wire/handshake.h"
#include "wire/layout.h"

namespace openmps::wire {

inline constexpr uint32_t kJournalMagic = 0x4a504d4f;  // "OMPJ"
// Of the sparse file: room for twice what a session may have described (graphs are the largest),
// so that live entries can be copied behind the others.
inline constexpr uint64_t kJournalBytes = kGiB;
inline constexpr uint64_t kJournalStart = 4 * kKiB;

struct JournalExtent {
  std::atomic<uint64_t> begin;
  std::atomic<uint64_t> end;
};

struct JournalHeader {
  uint32_t magic;
  uint32_t version;               // kProtocolVersion
  std::atomic<uint32_t> current;  // which of the extents
  std::atomic<uint32_t> reserved;
  JournalExtent extents[2];
  std::atomic<uint64_t> last_number;  // of Keep; the session's next is one more
  // How many kMemoryUnmap (except those carried out at once) and kHostUnregister commands have been
  // taken: once the worker has ended all of them are done.
  std::atomic<uint64_t> unmapped;
  std::atomic<uint64_t> unregistered;
  // Why the session can't be made again; "": it can. Written by the worker, shown by the server.
  char stays[kStaysBytes];
};
static_assert(sizeof(JournalHeader) <= kJournalStart);

enum class JournalState : uint16_t {
  kLive = 0,
  kDropped = 1,  // what the command made has ended: the entry is skipped
  // The worker had taken the command from the ring and has not answered it: the next one executes
  // it. The reply is the number of its reply slot, 4 bytes.
  kPending = 2,
};

// A command that was executed with success, or a part of one that is being described. Behind it:
// the command's record (struct and tail), then its reply, each padded to 8 bytes.
struct JournalEntry {
  uint32_t bytes;  // of all, with this header: a multiple of 8
  uint16_t opcode;
  JournalState state;
  uint32_t record_bytes;
  uint32_t reply_bytes;
  uint64_t kept;  // Keep::number of what the command needs; 0: nothing
  // Of a module whose variables lie in the session's memory: where, and the Keep::number of that.
  uint64_t variables;
  uint64_t variables_number;
};
static_assert(sizeof(JournalEntry) == 40);

}  // namespace openmps::wire
