// SPDX-License-Identifier: Apache-2.0
// The journal of a session: the commands that make it again in another worker
// (docs/decisions/0042). A sparse file that the server makes, hands to the session's worker with
// OpenSession, and keeps; the client never sees it. The worker writes it while it executes commands
// (worker/core/journal.h). After the worker's end the next one reads it; of a worker that died
// in the middle of an entry, the journal ends before that entry.
//
//   | JournalHeader, one page | GivenWork, GivenCall: tables | entries ... |
//
// Entries lie between `begin` and `end` of the current extent, in the order of execution.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "wire/channel_view.h"
#include "wire/handshake.h"
#include "wire/layout.h"

namespace openmps::wire {

inline constexpr uint32_t kJournalMagic = 0x4a504d4f;  // "OMPJ"
// Of the sparse file: room for twice what a session may have described (graphs are the largest),
// so that live entries can be copied behind the others.
inline constexpr uint64_t kJournalBytes = kGiB;
inline constexpr uint64_t kGivenWorkOffset = 4 * kKiB;
inline constexpr uint64_t kGivenCallOffset = kGivenWorkOffset + kFenceSlots * 16;
inline constexpr uint64_t kJournalStart = kGivenCallOffset + kCallbackSlots * 16;
static_assert(kJournalStart % kHostPageBytes == 0);

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
  // Behind which command of the ring (Record::end) entries were added or dropped last: if that is
  // not done, the worker has died in the middle of it.
  std::atomic<uint64_t> noted;
  // Where the last command ends that was given again (Record::end). Twice it is not: it may be what
  // ends the workers.
  std::atomic<uint64_t> given_again;
  // Where the session has addresses beside its window (places_of()).
  std::atomic<uint32_t> places;
  // Slots from these on have not been used.
  std::atomic<uint32_t> fence_slots;
  std::atomic<uint32_t> callback_slots;
  // Why the session can't be made again; "": it can. Written by the worker, shown by the server.
  char stays[kStaysBytes];
};
static_assert(sizeof(JournalHeader) <= kGivenWorkOffset);

// What streams have been given, by fence slot: written before the driver gets it, so that it tells
// of a worker that has died, or whose threads can't be asked, what may not have ended.
struct GivenWork {
  std::atomic<uint64_t> promised;  // the value of the last fence that was taken from the ring
  std::atomic<uint32_t> is_open;   // work was taken behind that
  uint32_t reserved;
};
static_assert(sizeof(GivenWork) == 16);
// By callback slot: the fence behind the last host function that was taken from the ring.
struct GivenCall {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> slot;
  uint32_t reserved;
};
static_assert(sizeof(GivenCall) == 16);

// The journal up to its entries, in a mapping of these.
class JournalView {
 public:
  JournalView() = default;
  explicit JournalView(void* address) : address_(static_cast<unsigned char*>(address)) {}
  [[nodiscard]] bool valid() const { return address_ != nullptr; }
  [[nodiscard]] JournalHeader& header() const { return *at<JournalHeader>(0); }
  [[nodiscard]] GivenWork& work(uint32_t slot) const {
    return *at<GivenWork>(kGivenWorkOffset + slot * sizeof(GivenWork));
  }
  [[nodiscard]] GivenCall& call(uint32_t slot) const {
    return *at<GivenCall>(kGivenCallOffset + slot * sizeof(GivenCall));
  }
  // How many slots may be used.
  [[nodiscard]] uint32_t fence_slots() const {
    return std::min(header().fence_slots.load(std::memory_order_relaxed), kFenceSlots);
  }
  [[nodiscard]] uint32_t callback_slots() const {
    return std::min(header().callback_slots.load(std::memory_order_relaxed), kCallbackSlots);
  }
  // The stream of that fence slot has been given work that may not have ended.
  [[nodiscard]] bool is_unfinished(uint32_t slot, const ChannelView& channel) const {
    const GivenWork& given = work(slot);
    return given.is_open.load(std::memory_order_relaxed) != 0 ||
           channel.fence(slot).value.load(std::memory_order_acquire) <
               given.promised.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool any_unfinished(const ChannelView& channel) const {
    for (uint32_t slot = 0; slot < fence_slots(); ++slot) {
      if (is_unfinished(slot, channel)) return true;
    }
    return false;
  }

 private:
  template <typename T>
  [[nodiscard]] T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(address_ + offset);
  }

  unsigned char* address_ = nullptr;
};

enum class JournalState : uint16_t {
  kLive = 0,
  kDropped = 1,  // what the command made has ended: the entry is skipped
  // The command has been taken from the ring, and is answered when something is done: until then
  // the next worker would execute it. The reply is the number of its reply slot, 4 bytes.
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
