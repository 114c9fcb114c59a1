// SPDX-License-Identifier: Apache-2.0
// See journal.h.
#include "worker/core/journal.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace openmps::worker {
namespace {

// Entries are copied behind the others when more than half of the bytes, and at least so many, are
// those of dropped ones: as much as a session with some hundred objects has.
constexpr uint64_t kLeastWaste = 256 * wire::kKiB;

// At the beginning of the file: as much as a session with few objects writes between two times.
constexpr uint64_t kKeptPages = 4 * kLeastWaste;

// So many dropped entries an object remembers at least.
constexpr size_t kMostGone = 16;

constexpr std::string_view kTooMuch = "it has described too much";

uint64_t padded(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }

void copy(unsigned char* target, Journal::Bytes bytes) {
  if (!bytes.empty()) memcpy(target, bytes.data(), bytes.size());
}

}  // namespace

Status Journal::open(UniqueFd file) {
  Result<Mapping> mapping = map_shared(file.get(), 0, wire::kJournalBytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  const auto& there = *static_cast<const wire::JournalHeader*>(mapping->address());
  bool is_good = there.magic == wire::kJournalMagic && there.version == wire::kProtocolVersion;
  const wire::JournalExtent& extent = there.extents[there.current.load() & 1];
  const uint64_t begin = extent.begin.load();
  const uint64_t end = extent.end.load();
  is_good = is_good && begin >= wire::kJournalStart && begin <= end && end <= wire::kJournalBytes;
  if (!is_good) return Status(CUDA_ERROR_MPS_RPC_FAILURE, "the journal is damaged");
  mapping_ = std::move(mapping).value();
  view_ = wire::JournalView(mapping_.address());
  fence_slots_ = view_.fence_slots();
  file_ = std::move(file);
  return Status();
}

void Journal::close() {
  entries_.clear();
  by_object_.clear();
  needed_.clear();
  by_setting_.clear();
  by_address_.clear();
  staying_.clear();
  graphs_.clear();
  mapping_.reset();
  view_ = wire::JournalView();
  file_.reset();
}

uint64_t Journal::next_number() {
  if (!is_open()) return ++last_number_;
  return header().last_number.fetch_add(1, std::memory_order_relaxed) + 1;
}

void Journal::note_unmapped(uint64_t taken) {
  if (is_open()) header().unmapped.store(taken, std::memory_order_relaxed);
}
void Journal::note_unregistered(uint64_t taken) {
  if (is_open()) header().unregistered.store(taken, std::memory_order_relaxed);
}
uint64_t Journal::unmapped() const {
  return is_open() ? header().unmapped.load(std::memory_order_relaxed) : 0;
}
uint64_t Journal::unregistered() const {
  return is_open() ? header().unregistered.load(std::memory_order_relaxed) : 0;
}

// ---- Entries in the file ------------------------------------------------------------------------

Status Journal::next_entry(uint64_t offset, uint64_t end, wire::JournalEntry* entry) const {
  const Status damaged(CUDA_ERROR_MPS_RPC_FAILURE, "the journal is damaged");
  if (end > wire::kJournalBytes || offset > end || end - offset < sizeof(*entry)) return damaged;
  memcpy(entry, at(offset), sizeof(*entry));
  const uint64_t needed = sizeof(*entry) + padded(entry->record_bytes) + padded(entry->reply_bytes);
  if (entry->bytes != needed || needed > end - offset) return damaged;
  return Status();
}

uint64_t Journal::write(wire::Opcode opcode, Bytes record, Bytes reply, wire::JournalState state) {
  wire::JournalExtent& extent = header().extents[header().current.load() & 1];
  const uint64_t offset = extent.end.load(std::memory_order_relaxed);
  const uint64_t bytes = sizeof(wire::JournalEntry) + padded(record.size()) + padded(reply.size());
  if (is_full_ || live_bytes_ + bytes > kMostJournalBytes || bytes > wire::kJournalBytes - offset) {
    is_full_ = true;
    show_stays();
    return 0;
  }
  const wire::JournalEntry entry{.bytes = static_cast<uint32_t>(bytes),
                                 .opcode = static_cast<uint16_t>(opcode),
                                 .state = state,
                                 .record_bytes = static_cast<uint32_t>(record.size()),
                                 .reply_bytes = static_cast<uint32_t>(reply.size()),
                                 .kept = notes_.kept,
                                 .variables = notes_.variables.address,
                                 .variables_number = notes_.variables.number};
  memcpy(at(offset), &entry, sizeof(entry));
  copy(at(offset) + sizeof(entry), record);
  copy(at(offset) + sizeof(entry) + padded(record.size()), reply);
  // After the worker's death a reader sees whole entries.
  extent.end.store(offset + bytes, std::memory_order_release);
  written_bytes_ += bytes;
  return offset;
}

void Journal::set_state(uint64_t offset, wire::JournalState state) {
  memcpy(at(offset) + offsetof(wire::JournalEntry, state), &state, sizeof(state));
}

Journal::Number Journal::add_pending(wire::Opcode opcode, Bytes record, uint16_t reply_slot,
                                     const Notes& notes) {
  if (!is_open()) return 0;
  const Notes noted = std::exchange(notes_, notes);
  const uint32_t slot = reply_slot;
  const uint64_t offset =
      write(opcode, record, {reinterpret_cast<const unsigned char*>(&slot), sizeof(slot)},
            wire::JournalState::kPending);
  notes_ = noted;
  return offset == 0 ? 0 : insert_pending(offset);
}

Journal::Number Journal::keep_pending() { return insert_pending(replayed_); }

Journal::Number Journal::insert_pending(uint64_t offset) {
  wire::JournalEntry there;
  memcpy(&there, at(offset), sizeof(there));
  Entry entry;
  entry.offset = offset;
  entry.bytes = there.bytes;
  entry.opcode = static_cast<wire::Opcode>(there.opcode);
  return insert(std::move(entry));
}

void Journal::compact_if_due() {
  const uint64_t waste = written_bytes_ - live_bytes_;
  if (is_adopting_ || waste < kLeastWaste || waste < live_bytes_) return;
  wire::JournalExtent& old = header().extents[header().current.load() & 1];
  const uint64_t begin = old.begin.load();
  const uint64_t end = old.end.load();
  const bool fits_before = live_bytes_ <= begin - wire::kJournalStart;
  if (!fits_before && live_bytes_ > wire::kJournalBytes - end) return;
  const uint64_t first = fits_before ? wire::kJournalStart : end;
  uint64_t next = first;
  for (auto& [number, entry] : entries_) {
    memcpy(at(next), at(entry.offset), entry.bytes);
    entry.offset = next;
    next += entry.bytes;
  }
  const uint32_t other = (header().current.load() & 1) ^ 1;
  header().extents[other].begin.store(first);
  header().extents[other].end.store(next);
  header().current.store(other);
  written_bytes_ = next - first;
  // The pages of the old entries go back to the system, but for the first, which are used again; if
  // they do not, they stay until the session ends.
  const uint64_t page = wire::kHostPageBytes;
  const uint64_t from =
      std::max((begin + page - 1) / page * page, wire::kJournalStart + kKeptPages);
  const uint64_t to = end / page * page;
  if (to > from) {
    static_cast<void>(fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(from), static_cast<off_t>(to - from)));
  }
}

void Journal::show_stays() {
  const std::string_view why = is_full_           ? kTooMuch
                               : staying_.empty() ? std::string_view()
                                                  : entries_.at(*staying_.begin()).stays;
  fill_field(header().stays, why);
}

std::string_view Journal::stays() const { return is_open() ? field_text(header().stays) : ""; }

// ---- Entries ------------------------------------------------------------------------------------

std::string Journal::setting(const Command& command) {
  std::string setting(reinterpret_cast<const char*>(&command.opcode), sizeof(command.opcode));
  for (const ObjectKey object : command.lives_with) {
    setting.append(reinterpret_cast<const char*>(&object), sizeof(object));
  }
  return setting + command.key;
}

Journal::Number Journal::insert(Entry entry) {
  const Number number = ++last_;
  live_bytes_ += entry.bytes;
  for (const ObjectKey object : entry.lives_with) by_object_[object].numbers.push_back(number);
  if (!entry.key.empty()) by_setting_[entry.key] = number;
  if (entry.range.end != 0) by_address_[entry.range.begin].insert(number);
  const bool stays = !entry.stays.empty();
  entries_.emplace(number, std::move(entry));
  if (stays) {
    staying_.insert(number);
    show_stays();
  }
  return number;
}

void Journal::add(const Command& command) {
  if (!is_open()) return;
  Entry entry;
  entry.opcode = command.opcode;
  entry.lives_with.assign(command.lives_with.begin(), command.lives_with.end());
  entry.makes = command.makes;
  entry.stays = command.stays != nullptr ? std::string_view(command.stays) : notes_.stays;
  entry.range = command.range;
  const bool is_range = command.keeping == wire::Keeping::kRange;
  if (command.keeping == wire::Keeping::kSet) {
    entry.key = setting(command);
    if (const auto former = by_setting_.find(entry.key); former != by_setting_.end()) {
      drop(former->second);
    }
  } else if (is_range && (command.opcode == wire::Opcode::kMemoryAccess ||
                          command.opcode == wire::Opcode::kHostMap)) {
    // An access of the same device to no more than this range is replaced, or what was mapped here.
    entry.key = setting(command);
    if (command.opcode == wire::Opcode::kMemoryAccess) {
      longest_access_ = std::max(longest_access_, entry.range.end - entry.range.begin);
    }
    std::vector<Number> inside;
    for (auto it = by_address_.lower_bound(entry.range.begin);
         it != by_address_.end() && it->first < entry.range.end; ++it) {
      for (const Number number : it->second) {
        const Entry& there = entries_.at(number);
        if (there.opcode == command.opcode && there.range.end <= entry.range.end &&
            there.key == entry.key) {
          inside.push_back(number);
        }
      }
    }
    drop_all(inside);
  }
  if (command.outlives != 0) {
    std::weak_ptr<Needed>& needed = needed_[command.outlives];
    entry.needed = needed.lock();
    if (entry.needed == nullptr) needed = entry.needed = std::make_shared<Needed>();
  }
  if (is_adopting_ && !is_replayed_) {
    is_replayed_ = true;
    entry.offset = offset_in_hand(&entry.bytes);
  } else {
    entry.offset = write(command.opcode, command.record, command.reply);
    entry.bytes = static_cast<uint32_t>(sizeof(wire::JournalEntry) + padded(command.record.size()) +
                                        padded(command.reply.size()));
  }
  if (entry.offset == 0) return;
  const wire::Opcode opcode = command.opcode;
  const bool is_graph = command.keeping == wire::Keeping::kGraph;
  const Number number = insert(std::move(entry));
  if (!command.lives_with.empty()) {
    const ObjectKey exec = command.lives_with.front();
    if (is_graph && opcode == wire::Opcode::kGraphInstantiate) {
      graphs_[exec].instantiated = number;
    } else if (is_graph) {
      for (const ObjectKey of : command.lives_with) {
        if (of >> 32 == static_cast<uint8_t>(wire::Object::kExec)) {
          graphs_[of].draft.push_back(number);
        }
      }
    } else if (opcode == wire::Opcode::kGraphSetNode || opcode == wire::Opcode::kGraphEnableNode) {
      graphs_[exec].set.push_back(number);
    }
  }
  compact_if_due();
}

uint64_t Journal::offset_in_hand(uint32_t* bytes) const {
  wire::JournalEntry entry;
  memcpy(&entry, at(replayed_), sizeof(entry));
  *bytes = entry.bytes;
  return replayed_;
}

void Journal::drop(Number number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  Entry entry = std::move(found->second);
  entries_.erase(found);
  live_bytes_ -= entry.bytes;
  set_state(entry.offset, wire::JournalState::kDropped);
  for (const ObjectKey object : entry.lives_with) {
    const auto of = by_object_.find(object);
    if (of == by_object_.end()) continue;
    Users& users = of->second;
    if (++users.gone == users.numbers.size()) {
      by_object_.erase(of);
    } else if (users.gone > kMostGone && 2 * users.gone > users.numbers.size()) {
      std::erase_if(users.numbers, [this](Number user) { return !entries_.contains(user); });
      users.gone = 0;
    }
  }
  if (!entry.key.empty()) {
    const auto set = by_setting_.find(entry.key);
    if (set != by_setting_.end() && set->second == number) by_setting_.erase(set);
  }
  if (entry.range.end != 0) {
    const auto there = by_address_.find(entry.range.begin);
    there->second.erase(number);
    if (there->second.empty()) by_address_.erase(there);
  }
  if (staying_.erase(number) != 0) show_stays();
  // Nothing needs what this has outlived any more.
  if (entry.needed != nullptr && entry.needed.use_count() == 1 && entry.needed->released != 0) {
    drop(entry.needed->made);
    drop(entry.needed->released);
  }
}

void Journal::drop_all(const std::vector<Number>& numbers) {
  for (const Number number : numbers) drop(number);
}

void Journal::drop_with_made(Number number, ObjectKey ended) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  const ObjectKey made = found->second.makes;
  drop(number);
  if (made == 0 || made == ended) return;
  for (const Number user : living_with(made)) drop_with_made(user, made);
}

std::vector<Journal::Number> Journal::living_with(ObjectKey object) const {
  const auto of = by_object_.find(object);
  if (of == by_object_.end()) return {};
  std::vector<Number> numbers = of->second.numbers;
  std::erase_if(numbers, [this](Number number) { return !entries_.contains(number); });
  return numbers;
}

void Journal::end(ObjectKey ended, wire::Opcode opcode, Bytes record) {
  if (!is_open()) return;
  const std::vector<Number> numbers = living_with(ended);
  const auto needed = needed_.find(ended);
  const std::shared_ptr<Needed> others = needed == needed_.end() ? nullptr : needed->second.lock();
  if (needed != needed_.end()) needed_.erase(needed);
  if (others == nullptr || numbers.empty()) {
    for (const Number number : numbers) drop_with_made(number, ended);
  } else {
    // The first entry has made the object. It and its end stay for those that outlive it.
    others->made = numbers.front();
    by_object_.erase(ended);
    for (const Number number : numbers) std::erase(entries_.at(number).lives_with, ended);
    for (size_t i = 1; i < numbers.size(); ++i) drop_with_made(numbers[i], ended);
    Entry release;
    release.opcode = opcode;
    if (is_adopting_ && !is_replayed_) {
      is_replayed_ = true;
      release.offset = offset_in_hand(&release.bytes);
    } else {
      const Notes notes = std::exchange(notes_, {});
      release.offset = write(opcode, record, {});
      release.bytes = static_cast<uint32_t>(sizeof(wire::JournalEntry) + padded(record.size()));
      notes_ = notes;
    }
    if (release.offset != 0) others->released = insert(std::move(release));
  }
  graphs_.erase(ended);
  compact_if_due();
}

// ---- Ranges -------------------------------------------------------------------------------------

namespace {

// What a command ends that names a range.
bool ends(wire::Opcode by, wire::Opcode what) {
  switch (by) {
    case wire::Opcode::kAddressFree: return what == wire::Opcode::kAddressReserve;
    case wire::Opcode::kHostUnregister: return what == wire::Opcode::kHostRegister;
    case wire::Opcode::kHostFree:
      return what == wire::Opcode::kHostReserve || what == wire::Opcode::kHostMap;
    default:
      return what != wire::Opcode::kAddressReserve && what != wire::Opcode::kHostRegister &&
             what != wire::Opcode::kHostReserve && what != wire::Opcode::kHostMap;
  }
}

}  // namespace

void Journal::end_range(uint64_t begin, uint64_t bytes, wire::Opcode by) {
  if (!is_open()) return;
  const uint64_t end = begin + bytes;
  std::vector<Number> touched;
  // Only accesses reach into a range from before it: they may span several mappings.
  const uint64_t first = begin - std::min(begin, longest_access_);
  for (auto it = by_address_.lower_bound(first); it != by_address_.end() && it->first < end; ++it) {
    for (const Number number : it->second) {
      const Entry& entry = entries_.at(number);
      const bool is_inside = it->first >= begin && entry.range.end <= end;
      const bool is_part = entry.opcode == wire::Opcode::kMemoryAccess && entry.range.end > begin;
      if (ends(by, entry.opcode) && (is_inside || is_part)) touched.push_back(number);
    }
  }
  for (const Number number : touched) {
    const Range range = entries_.at(number).range;
    if (range.begin < begin) shorten(number, range.begin, begin);
    if (range.end > end) shorten(number, end, range.end);
    drop(number);
  }
  compact_if_due();
}

void Journal::end_host_pages(uint64_t begin) {
  const auto found = by_address_.find(begin);
  if (!is_open() || found == by_address_.end()) return;
  const auto reserved =
      std::ranges::find(found->second, wire::Opcode::kHostReserve,
                        [this](Number number) { return entries_.at(number).opcode; });
  if (reserved == found->second.end()) return;
  const uint64_t end = entries_.at(*reserved).range.end;
  end_range(begin, end - begin, wire::Opcode::kHostFree);
}

// Add the entry once more, for a part of its range.
void Journal::shorten(Number number, uint64_t begin, uint64_t end) {
  const Entry& whole = entries_.at(number);
  wire::JournalEntry header;
  memcpy(&header, at(whole.offset), sizeof(header));
  const unsigned char* const there = at(whole.offset) + sizeof(header);
  std::vector<unsigned char> record(there, there + header.record_bytes);
  const uint64_t bytes = end - begin;
  memcpy(record.data() + whole.range.address_at, &begin, sizeof(begin));
  memcpy(record.data() + whole.range.bytes_at, &bytes, sizeof(bytes));
  Entry part;
  part.opcode = whole.opcode;
  part.lives_with = whole.lives_with;
  part.key = whole.key;
  part.range = {begin, end, whole.range.address_at, whole.range.bytes_at};
  const Notes notes = std::exchange(notes_, {});
  part.offset = write(whole.opcode, record, {});
  part.bytes = static_cast<uint32_t>(sizeof(header) + padded(record.size()));
  notes_ = notes;
  if (part.offset != 0) insert(std::move(part));
}

// ---- Executable graphs --------------------------------------------------------------------------

void Journal::begin_graph(ObjectKey exec) {
  if (!is_open()) return;
  drop_all(std::exchange(graphs_[exec].draft, {}));
}

void Journal::fail_graph(ObjectKey exec) { begin_graph(exec); }

// After an update the executable graph is what instantiating the new description makes, with the
// nodes switched off that were so: these come behind it again. Nodes that had been set have the
// description's parameters.
void Journal::use_graph(ObjectKey exec, bool is_update) {
  if (!is_open()) return;
  Graph& graph = graphs_[exec];
  drop_all(std::exchange(graph.used, std::exchange(graph.draft, {})));
  if (!is_update) return;
  if (graph.instantiated != 0) move_behind(std::exchange(graph.instantiated, 0));
  for (const Number number : std::exchange(graph.set, {})) {
    const auto entry = entries_.find(number);
    if (entry == entries_.end()) continue;
    if (entry->second.opcode == wire::Opcode::kGraphEnableNode) {
      move_behind(number);
    } else {
      drop(number);
    }
  }
  compact_if_due();
}

// The entry becomes the last one.
void Journal::move_behind(Number number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  wire::JournalEntry header;
  memcpy(&header, at(found->second.offset), sizeof(header));
  const unsigned char* const record = at(found->second.offset) + sizeof(header);
  Entry moved;
  moved.opcode = found->second.opcode;
  moved.lives_with = found->second.lives_with;
  moved.key = found->second.key;
  moved.bytes = found->second.bytes;
  const Notes notes = std::exchange(notes_, {});
  moved.offset = write(moved.opcode, {record, header.record_bytes},
                       {record + padded(header.record_bytes), header.reply_bytes});
  notes_ = notes;
  drop(number);
  if (moved.offset == 0) return;
  const ObjectKey exec = moved.lives_with.empty() ? 0 : moved.lives_with.front();
  const bool is_instantiation = moved.opcode == wire::Opcode::kGraphInstantiate;
  const Number last = insert(std::move(moved));
  if (is_instantiation) {
    graphs_[exec].instantiated = last;
  } else {
    graphs_[exec].set.push_back(last);
  }
}

// ---- What streams are given ---------------------------------------------------------------------

void Journal::note_fence_slot(uint32_t slot) {
  if (!is_open() || slot < fence_slots_ || slot >= wire::kFenceSlots) return;
  fence_slots_ = slot + 1;
  view_.header().fence_slots.store(fence_slots_, std::memory_order_relaxed);
}

void Journal::note_call(uint32_t callback, uint32_t slot, uint64_t value) {
  if (!is_open() || callback >= wire::kCallbackSlots) return;
  std::atomic<uint32_t>& used = view_.header().callback_slots;
  if (callback >= used.load(std::memory_order_relaxed)) {
    used.store(callback + 1, std::memory_order_relaxed);
  }
  wire::GivenCall& given = view_.call(callback);
  given.slot.store(slot, std::memory_order_relaxed);
  given.value.store(value, std::memory_order_relaxed);
}

}  // namespace openmps::worker
