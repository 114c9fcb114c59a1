// SPDX-License-Identifier: Apache-2.0
// The journal of a session as its worker writes it (wire/journal.h): the commands that make the
// session again in another worker, and what they need. An entry is dropped when what its command
// has made or set is no more. A session whose journal is not open (tests, or
// OPENMPS_TAKEOVER=off) can't move. Session's thread only.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "cuda/status.h"
#include "wire/command.h"
#include "wire/commands/memory.h"
#include "wire/journal.h"

namespace openmps::worker {

// The most that the live entries of a session may take: half of the file, so that they can be
// copied behind the others.
inline constexpr uint64_t kMostJournalBytes = wire::kJournalBytes / 2 - wire::kJournalStart;

class Journal {
 public:
  // Bytes of a record or reply.
  using Bytes = std::span<const unsigned char>;

  // Begins, or goes on with what a former worker has written; then adopt() of
  // session/adoption.h reads it. Errors: those of map_shared(); CUDA_ERROR_MPS_RPC_FAILURE: it is
  // no journal.
  Status open(UniqueFd file);
  [[nodiscard]] bool is_open() const { return mapping_.valid(); }
  // Another worker goes on with it: what ends here is not dropped from it.
  void close();

  // ---- While a command is executed, for its handler ----
  // Where a module's variables lie, and the number of their memory (code/variable_memory.h).
  struct Variables {
    uint64_t address = 0;  // 0: it has none there
    uint64_t number = 0;
  };
  // What handlers say of a command beside its record and its reply.
  struct Notes {
    uint64_t kept = 0;
    Variables variables;
    std::string_view stays;  // of static storage
  };
  // The command needs the descriptor that the server keeps under that number (wire::Keep).
  void note_kept(uint64_t number) { notes_.kept = number; }
  void note_variables(const Variables& variables) { notes_.variables = variables; }
  // What the command has made can't be made again, for this reason, until it ends.
  void note_stays(std::string_view why) { notes_.stays = why; }
  // The number for a descriptor that the server is to keep: unique in the session, for all its
  // workers.
  [[nodiscard]] uint64_t next_number();

  // ---- While the session is made again ----
  // Commands come from the journal: memory is imported, not created, and so on.
  [[nodiscard]] bool is_adopting() const { return is_adopting_; }
  // What the command in hand needs: the notes of its first execution.
  [[nodiscard]] uint64_t kept() const { return notes_.kept; }
  [[nodiscard]] const Variables& variables() const { return notes_.variables; }
  // The reply of its first execution; null: it had another size.
  template <typename Reply>
  [[nodiscard]] const Reply* recorded() const {
    return is_adopting_ && recorded_.size() >= sizeof(Reply)
               ? reinterpret_cast<const Reply*>(recorded_.data())
               : nullptr;
  }

  // ---- For dispatch ----
  // An object of the session.
  using ObjectKey = uint64_t;
  static constexpr ObjectKey object(wire::Object kind, wire::Id id) {
    return uint64_t{static_cast<uint8_t>(kind)} << 32 | id;
  }
  // What is published under a random key.
  static ObjectKey share(const wire::ShareKey& key) {
    uint64_t parts[2];
    static_assert(sizeof(parts) == sizeof(key));
    memcpy(parts, &key, sizeof(parts));
    return (parts[0] ^ parts[1]) | uint64_t{1} << 63;
  }
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    // Where the record has its address and its bytes.
    uint32_t address_at = 0;
    uint32_t bytes_at = 0;
  };
  // A command that was executed with success.
  struct Command {
    wire::Opcode opcode = wire::Opcode::kPadding;
    wire::Keeping keeping = wire::Keeping::kMade;
    Bytes record;
    Bytes reply;
    std::span<const ObjectKey> lives_with;
    ObjectKey makes = 0;     // one of these; it ends with what the command uses
    ObjectKey outlives = 0;  // what it uses, and may outlive
    std::string key;         // of kSet: with the opcode and the objects it tells what is set
    Range range;             // of kRange
    const char* stays = nullptr;
  };
  // A command begins: no handler has said anything yet.
  void begin() {
    if (!is_adopting_) notes_ = {};
  }
  // The notes of a command that is answered later.
  [[nodiscard]] Notes notes() const { return notes_; }
  void resume(const Notes& notes) { notes_ = notes; }
  void add(const Command& command);
  // The command has been taken from the ring, and is answered when something is done: until
  // drop_pending() of what is returned the next worker would execute it.
  using Number = uint64_t;  // of an entry, in the order of execution; 0: none
  Number add_pending(wire::Opcode opcode, Bytes record, uint16_t reply_slot, const Notes& notes);
  void drop_pending(Number pending) { drop(pending); }
  // In the next worker: the entry in hand is such a command. It is executed later, and its handler
  // finds what was noted from begin_pending() to end_pending().
  Number keep_pending();
  void begin_pending(const Notes& notes) {
    notes_ = notes;
    is_adopting_ = is_replayed_ = true;
  }
  void end_pending() { is_adopting_ = is_replayed_ = false; }
  // Entries are about to be added or dropped for the command of the ring that ends there
  // (Record::end; 0: it is not in the ring).
  void note_position(uint64_t end) {
    if (is_open() && end != 0) view_.header().noted.store(end, std::memory_order_relaxed);
  }
  // A command has ended the object: entries that live with it are dropped, but not what others
  // still need that outlive it.
  void end(ObjectKey ended, wire::Opcode opcode, Bytes record);
  // A command, kMemoryUnmap, kAddressFree or kHostUnregister, has ended what is at these addresses.
  void end_range(uint64_t begin, uint64_t bytes, wire::Opcode by);
  // HostFree has ended the HostReserve that begins there, and what was mapped in it.
  void end_host_pages(uint64_t begin);
  // Executable graphs: GraphBegin drops what was described before; GraphInstantiate and GraphUpdate
  // have used the description, or have failed.
  void begin_graph(ObjectKey exec);
  void use_graph(ObjectKey exec, bool is_update);
  void fail_graph(ObjectKey exec);
  // Where the session has addresses beside its window (wire::places_of()).
  void note_places(uint32_t places) {
    if (is_open()) header().places.store(places, std::memory_order_relaxed);
  }
  // How many of the session's unmappings and unregistrations have been taken from its ring.
  void note_unmapped(uint64_t taken);
  void note_unregistered(uint64_t taken);
  [[nodiscard]] uint64_t unmapped() const;
  [[nodiscard]] uint64_t unregistered() const;

  // ---- What streams are given (wire::GivenWork): before the driver gets it ----
  // Work, to the stream of that fence slot; a fence; and a host function, with the fence behind it.
  void note_work(uint32_t slot) {
    if (!is_open()) return;
    std::atomic<uint32_t>& is_open = view_.work(slot).is_open;
    if (is_open.load(std::memory_order_relaxed) == 0) is_open.store(1, std::memory_order_relaxed);
  }
  void note_fence(uint32_t slot, uint64_t value) {
    if (!is_open() || slot >= wire::kFenceSlots) return;
    if (slot >= fence_slots_) note_fence_slot(slot);
    wire::GivenWork& given = view_.work(slot);
    // Work that is given again promises less than is promised behind it.
    if (value > given.promised.load(std::memory_order_relaxed)) {
      given.promised.store(value, std::memory_order_relaxed);
    }
    given.is_open.store(0, std::memory_order_relaxed);
  }
  void note_call(uint32_t callback, uint32_t slot, uint64_t value);
  // A stream has that fence slot from now on.
  void note_fence_slot(uint32_t slot);
  // The stream of that fence slot has nothing under way in this worker.
  void note_ended(uint32_t slot) {
    if (is_open()) view_.work(slot).is_open.store(0, std::memory_order_relaxed);
  }
  [[nodiscard]] const wire::JournalView& view() const { return view_; }

  // ---- For adoption ----
  // Reads the entries: f(entry, record, reply) is called with the notes set, in the order of
  // execution, until one fails. What f gives to add() and end() meanwhile is not written again.
  // Errors: those of f; CUDA_ERROR_MPS_RPC_FAILURE: the journal is damaged.
  template <typename F>
  Status replay(F&& f);
  // Why the session can't be made again; "": it can.
  [[nodiscard]] std::string_view stays() const;

 private:
  // What outlives what it uses: the entries of the making and of the release of that.
  struct Needed {
    Number made = 0;
    Number released = 0;
  };
  struct Entry {
    uint64_t offset = 0;
    uint32_t bytes = 0;
    wire::Opcode opcode = wire::Opcode::kPadding;
    bool is_kept_by_others = false;  // only what outlives it needs it
    std::vector<ObjectKey> lives_with;
    ObjectKey makes = 0;
    std::string key;
    Range range;
    std::string_view stays;
    std::shared_ptr<Needed> needed;
  };
  using Entries = std::map<Number, Entry>;

  wire::JournalHeader& header() const {
    return *static_cast<wire::JournalHeader*>(mapping_.address());
  }
  unsigned char* at(uint64_t offset) const {
    return static_cast<unsigned char*>(mapping_.address()) + offset;
  }
  static std::string setting(const Command& command);
  Status next_entry(uint64_t offset, uint64_t end, wire::JournalEntry* entry) const;
  // The entry's offset in the file; 0: there is no room, and the session stays for ever.
  uint64_t write(wire::Opcode opcode, Bytes record, Bytes reply,
                 wire::JournalState state = wire::JournalState::kLive);
  Number insert_pending(uint64_t offset);
  void set_state(uint64_t offset, wire::JournalState state);
  uint64_t offset_in_hand(uint32_t* bytes) const;
  Number insert(Entry entry);
  void drop(Number number);
  void drop_all(const std::vector<Number>& numbers);
  // Drop the entry, and what lives with an object that it has made: that ends with `ended`.
  void drop_with_made(Number number, ObjectKey ended);
  void move_behind(Number number);
  void compact_if_due();
  void show_stays();
  [[nodiscard]] std::vector<Number> living_with(ObjectKey object) const;
  void shorten(Number number, uint64_t begin, uint64_t end);

  Mapping mapping_;
  wire::JournalView view_;
  uint32_t fence_slots_ = 0;  // slots from this one on have not been used
  UniqueFd file_;
  Notes notes_;
  bool is_adopting_ = false;
  bool is_full_ = false;
  Bytes recorded_;
  uint64_t replayed_ = 0;     // offset of the entry in hand
  bool is_replayed_ = false;  // that entry has been added
  Number last_ = 0;
  uint64_t live_bytes_ = 0;
  uint64_t written_bytes_ = 0;  // of the current extent
  Entries entries_;
  // The entries that live with an object, ascending; some of them may have been dropped.
  struct Users {
    std::vector<Number> numbers;
    size_t gone = 0;  // of them
  };
  std::unordered_map<ObjectKey, Users> by_object_;
  std::unordered_map<ObjectKey, std::weak_ptr<Needed>> needed_;
  std::unordered_map<std::string, Number> by_setting_;
  std::map<uint64_t, std::set<Number>> by_address_;  // begin of the range
  uint64_t longest_access_ = 0;                      // of the ranges of MemoryAccess, so far
  std::set<Number> staying_;
  struct Graph {
    std::vector<Number> used;   // GraphBegin, GraphNode
    std::vector<Number> draft;  // the same, not used yet
    Number instantiated = 0;
    std::vector<Number> set;
  };
  std::unordered_map<ObjectKey, Graph> graphs_;
  uint64_t last_number_ = 0;  // of a journal that is not open
};

template <typename F>
Status Journal::replay(F&& f) {
  const wire::JournalExtent& extent = header().extents[header().current.load() & 1];
  const uint64_t end = extent.end.load(std::memory_order_acquire);
  is_adopting_ = true;
  Status status;
  for (uint64_t offset = extent.begin.load(); status.ok() && offset < end;) {
    wire::JournalEntry entry;
    status = next_entry(offset, end, &entry);
    if (!status.ok()) break;
    written_bytes_ += entry.bytes;
    if (entry.state != wire::JournalState::kDropped) {
      const unsigned char* const record = at(offset) + sizeof(entry);
      const uint64_t padded = (uint64_t{entry.record_bytes} + 7) & ~uint64_t{7};
      replayed_ = offset;
      is_replayed_ = false;
      recorded_ = {record + padded, entry.reply_bytes};
      notes_ = {
          .kept = entry.kept, .variables = {entry.variables, entry.variables_number}, .stays = {}};
      status = f(entry, Bytes(record, entry.record_bytes), recorded_);
    }
    offset += entry.bytes;
  }
  is_adopting_ = false;
  replayed_ = 0;
  recorded_ = {};
  notes_ = {};
  return status;
}

}  // namespace openmps::worker
