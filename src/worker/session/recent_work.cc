// SPDX-License-Identifier: Apache-2.0
// See recent_work.h.
#include "worker/session/recent_work.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <map>
#include <string>

#include "wire/codec.h"
#include "wire/command_info.h"
#include "wire/commands.h"
#include "wire/journal.h"
#include "wire/ring.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

using Again = RecentCommand::Again;
using wire::Effect;
using wire::Object;

template <typename C, typename... Cs>
constexpr bool kIsOneOf = (std::same_as<C, Cs> || ...);

template <typename C>
constexpr Again again_of() {
  if constexpr (kIsOneOf<C, wire::Fence, wire::EventRecord, wire::StreamWaitEvent, wire::WakeAfter,
                         wire::ContextFollow, wire::ContextJoin, wire::StreamAcknowledge>) {
    return Again::kAlways;
  }
  if constexpr (kIsOneOf<C, wire::Memcpy, wire::Memcpy3D, wire::Memset>) return Again::kByRanges;
  if constexpr (std::same_as<C, wire::HostFunction>) return Again::kUnposted;
  if constexpr (kIsOneOf<C, wire::Launch, wire::GraphLaunch, wire::StreamWriteValue,
                         wire::StreamWaitValue, wire::StreamBatch>) {
    return Again::kIfSaid;
  }
  return Again::kNever;
}

// Ends what lies at addresses.
template <typename C>
constexpr bool kEndsRange =
    kIsOneOf<C, wire::MemoryUnmap, wire::AddressFree, wire::HostUnregister, wire::HostFree>;

template <typename C>
void describe(const wire::Record& record, RecentCommand* out) {
  const C* command = nullptr;
  wire::TailOf<C> tail;
  if (!wire::decode(record, &command, &tail).ok()) return;
  const auto look = [&](auto name) {
    using Name = decltype(name);
    constexpr Effect effect = Name::kEffect;
    constexpr bool alters = effect == Effect::kEnd || effect == Effect::kChange;
    constexpr Object kind = Name::kObject;
    const wire::Id id = command->*Name::kField;
    if constexpr (effect == Effect::kIn && kind == Object::kStream) out->stream = id;
    if constexpr (kind == Object::kEvent || kind == Object::kExec || kind == Object::kFunction) {
      (alters ? out->alters : out->uses).push_back(Journal::object(kind, id));
    } else if constexpr (alters && kind != Object::kStream && kind != Object::kBlob) {
      out->alters_any = true;
    }
  };
  wire::NamesOf<C>::with([&](auto... name) { (look(name), ...); });
  out->alters_any |= kEndsRange<C>;
  if constexpr (std::same_as<C, wire::MemoryAccess>) {
    out->alters_any |= command->access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  if constexpr (std::same_as<C, wire::Launch>) out->uses_any_event = command->attribute_count != 0;
  out->again = again_of<C>();
  if constexpr (again_of<C>() == Again::kByRanges) {
    static_cast<void>(wire::visit_ranges(
        *command, [out](uint64_t address, uint64_t bytes, bool writes, const char*) {
          out->ranges.push_back({address, bytes, writes});
          return Status();
        }));
  }
  if constexpr (kIsOneOf<C, wire::Memcpy, wire::Memcpy3D, wire::ArrayCopy>) {
    out->orders_all = (command->flags & wire::kOrderAllStreams) != 0;
  }
  out->orders_all |= std::same_as<C, wire::ContextFollow>;
  if constexpr (std::same_as<C, wire::Fence>) {
    out->fence = {command->slot & ~wire::kFenceInOrder, command->value, command->stream};
  } else if constexpr (std::same_as<C, wire::EventRecord>) {
    out->fence = {command->slot, command->value, command->stream};
    out->recorded = command->event;
  } else if constexpr (std::same_as<C, wire::HostFunction>) {
    out->fence = {command->fence, command->value, command->stream};
    out->callback = command->slot;
  }
}

using Describe = void (*)(const wire::Record&, RecentCommand*);
template <typename... Cs>
constexpr auto make_describers(wire::CommandList<Cs...>) {
  std::array<Describe, std::max({static_cast<size_t>(Cs::kOpcode)...}) + 1> table{};
  ((table[static_cast<size_t>(Cs::kOpcode)] = describe<Cs>), ...);
  return table;
}
constexpr auto kDescribers = make_describers(wire::Commands());

RecentCommand describe(const wire::Record& record) {
  RecentCommand command;
  command.opcode = record.opcode;
  command.end = record.end;
  command.payload.assign(record.payload, record.payload + record.payload_bytes);
  const auto number = static_cast<size_t>(record.opcode);
  const bool is_known = number < kDescribers.size() && kDescribers[number] != nullptr;
  if (is_known) kDescribers[number](record, &command);
  return command;
}

bool overlap(const WorkRange& a, const WorkRange& b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

// Copies and fills, in their order, give the same if some of them have been carried out before: no
// one writes what it or an earlier one reads.
bool is_same_again(const std::vector<const RecentCommand*>& commands) {
  std::vector<WorkRange> reads;
  for (const RecentCommand* command : commands) {
    for (const WorkRange& range : command->ranges) {
      if (!range.writable) reads.push_back(range);
    }
    for (const WorkRange& range : command->ranges) {
      if (!range.writable) continue;
      const auto is_read = [&range](const WorkRange& read) { return overlap(range, read); };
      if (std::ranges::any_of(reads, is_read)) return false;
    }
  }
  return true;
}

bool is_unreached(const wire::ChannelView& view, uint32_t slot, uint64_t value) {
  const wire::FenceSlot& fence = view.fence(slot);
  const bool is_lost = fence.lost.load(std::memory_order_acquire) != 0;
  return (is_lost ? fence.good : fence.value).load(std::memory_order_acquire) < value;
}

}  // namespace

RecentWork::RecentWork(const wire::ChannelView& view) {
  wire::RingHistory history(view);
  is_complete_ = history.begin() == 0;
  wire::Record record;
  for (;;) {
    const Result<bool> next = history.next(&record);
    if (!next.ok()) {  // what comes before a damaged record says nothing any more
      commands_.clear();
      is_complete_ = false;
      return;
    }
    if (!next.value()) break;
    commands_.push_back(describe(record));
  }
  wire::RingConsumer ahead(view);  // the session's own begins where this one does
  const Result<bool> taken = ahead.take(&record);
  if (taken.ok() && taken.value()) in_hand_ = describe(record);
}

std::optional<uint64_t> RecentWork::begin_of(uint32_t slot, uint64_t reached) const {
  for (auto at = commands_.rbegin(); at != commands_.rend(); ++at) {
    if (at->fence.slot == slot && at->fence.value <= reached) return at->end;
  }
  return is_complete_ ? std::optional<uint64_t>(0) : std::nullopt;
}

bool has_unfinished(const SessionParts& session) {
  const wire::ChannelView& view = session.core.view;
  const wire::JournalView& journal = session.core.journal.view();
  const bool is_found = session.core.info.adoption == wire::Adoption::kFound;
  for (uint32_t slot = 0; slot < journal.fence_slots(); ++slot) {
    if (view.fence(slot).lost.load(std::memory_order_relaxed) != 0) return true;
    if (is_found && journal.is_unfinished(slot, view)) return true;
  }
  return false;
}

void lose_unfinished(SessionParts& session, const RecentWork& recent) {
  const wire::ChannelView& view = session.core.view;
  const wire::JournalView& journal = session.core.journal.view();
  // By slot; null: the stream is gone.
  std::map<uint32_t, const Stream*> unfinished;
  for (uint32_t slot = 0; slot < journal.fence_slots(); ++slot) {
    if (journal.is_unfinished(slot, view)) unfinished[slot] = nullptr;
  }
  if (unfinished.empty()) return;
  session.streams.streams().for_each([&](const Stream& stream) {
    const auto found = unfinished.find(stream.fence_slot);
    if (found != unfinished.end()) found->second = &stream;
  });
  // All streams of the session are lost with one that others may have come behind.
  bool loses_all = false;
  bool is_known = true;
  std::map<wire::Id, uint64_t> begins;
  for (const auto& [slot, stream] : unfinished) {
    const auto begin =
        recent.begin_of(slot, view.fence(slot).value.load(std::memory_order_acquire));
    is_known &= begin.has_value();
    loses_all |= stream == nullptr || !begin;
    if (stream != nullptr && begin) begins[stream->id] = *begin;
  }
  std::map<wire::Id, const RecentCommand*> records;  // the last of each event
  for (const RecentCommand& command : recent.commands()) {
    const auto begin = begins.find(command.stream);
    const bool is_lost = begin != begins.end() && command.end > begin->second;
    loses_all |= is_lost && command.orders_all;
    if (command.recorded != 0) records[command.recorded] = &command;
  }
  if (loses_all) {
    session.streams.streams().for_each(
        [&unfinished](const Stream& stream) { unfinished[stream.fence_slot] = &stream; });
  }
  wire::LostEvents& list = view.lost_events();
  uint32_t count = 0;
  session.events.events().for_each_id([&](wire::Id id, const Event&) {
    const auto found = records.find(id);
    bool is_lost = !is_known;
    if (found != records.end()) {
      const FenceValue& fence = found->second->fence;
      is_lost = fence.slot < wire::kFenceSlots ? is_unreached(view, fence.slot, fence.value)
                                               : begins.contains(found->second->stream);
    }
    if (!is_lost) return;
    if (count < wire::kMostLostEvents) {
      list.events[count].event.store(id, std::memory_order_relaxed);
      list.events[count].stream.store(found != records.end() ? found->second->stream : 0,
                                      std::memory_order_relaxed);
    }
    ++count;
  });
  list.count.store(count, std::memory_order_release);
  for (const auto& [slot, stream] : unfinished) {
    lose_fences(view, slot, journal.work(slot).promised.load(std::memory_order_relaxed));
  }
}

namespace {

// Whether what the former worker has lost may be executed again, and what that is.
class LostAgain {
 public:
  LostAgain(SessionParts& session, const RecentWork& recent)
      : recent_(recent),
        view_(session.core.view),
        journal_(session.core.journal.view()),
        is_said_(session.core.info.replay == wire::Replay::kAlways) {
    find_streams(session);
    for (const RecentCommand& command : recent.commands()) {
      if (is_lost(command)) commands_.push_back(&command);
    }
    judged_ = commands_;
    // It is taken from the ring again.
    const RecentCommand* const in_hand = recent.in_hand();
    const bool is_found = session.core.info.adoption == wire::Adoption::kFound;
    if (is_found && in_hand != nullptr && begins_.contains(in_hand->stream)) {
      judged_.push_back(in_hand);
    }
  }

  [[nodiscard]] const std::vector<uint32_t>& slots() const { return slots_; }
  [[nodiscard]] const std::vector<const RecentCommand*>& commands() const { return commands_; }
  // Why not; "": they may.
  [[nodiscard]] std::string why_not() const {
    if (has_older_) return "an older loss of which the program has not been told";
    if (begins_.size() != slots_.size()) return "work of a stream that is gone";
    if (is_unknown_) return "more than is known";
    if (judged_.empty()) return "work that is not known";
    if (judged_.front()->end <= journal_.header().given_again.load(std::memory_order_relaxed)) {
      return "it has been given again before";
    }
    for (const RecentCommand* command : judged_) {
      if (!may_again(*command)) return wire::name_of(command->opcode);
    }
    if (!is_said_ && !is_same_again(judged_)) return "a copy whose source was to be written later";
    // What the commands use is to be as it was.
    for (const RecentCommand& later : recent_.commands()) {
      if (!commands_.empty() && later.end > commands_.front()->end && alters_what_is_used(later)) {
        return std::string(wire::name_of(later.opcode)) + " behind it";
      }
    }
    return "";
  }

 private:
  void find_streams(const SessionParts& session) {
    const uint32_t number = number_of_next_loss(view_);
    for (uint32_t slot = 0; slot < journal_.fence_slots(); ++slot) {
      const uint32_t lost = view_.fence(slot).lost.load(std::memory_order_acquire);
      if (lost != 0) slots_.push_back(slot);
      has_older_ |= lost != 0 && lost != number;
    }
    session.streams.streams().for_each([&](const Stream& stream) {
      if (std::ranges::find(slots_, stream.fence_slot) == slots_.end()) return;
      const uint64_t good = view_.fence(stream.fence_slot).good.load(std::memory_order_relaxed);
      const std::optional<uint64_t> begin = recent_.begin_of(stream.fence_slot, good);
      is_unknown_ |= !begin.has_value();
      begins_[stream.id] = begin.value_or(~uint64_t{0});
    });
  }
  [[nodiscard]] bool is_lost(const RecentCommand& command) const {
    const auto begin = begins_.find(command.stream);
    return begin != begins_.end() && command.end > begin->second;
  }
  [[nodiscard]] bool may_again(const RecentCommand& command) const {
    switch (command.again) {
      case Again::kAlways: return true;
      case Again::kByRanges: return true;  // is_same_again() tells
      case Again::kUnposted: return is_unposted(command);
      case Again::kIfSaid: return is_said_;
      case Again::kNever: return false;
    }
    return false;
  }
  [[nodiscard]] bool is_unposted(const RecentCommand& command) const {
    if (command.callback >= wire::kCallbackSlots) return false;
    const wire::GivenCall& call = journal_.call(command.callback);
    return view_.callback(command.callback).posted.load() == 0 &&
           call.slot.load() == command.fence.slot && call.value.load() == command.fence.value;
  }
  [[nodiscard]] bool alters_what_is_used(const RecentCommand& later) const {
    if (later.alters_any) return true;
    return std::ranges::any_of(later.alters, [this, &later](Journal::ObjectKey altered) {
      const bool is_event = altered >> 32 == static_cast<uint8_t>(Object::kEvent);
      return std::ranges::any_of(commands_, [&](const RecentCommand* command) {
        const bool uses = (is_event && command->uses_any_event) ||
                          std::ranges::find(command->uses, altered) != command->uses.end();
        return uses && command->end < later.end;
      });
    });
  }

  const RecentWork& recent_;
  const wire::ChannelView& view_;
  const wire::JournalView& journal_;
  const bool is_said_;
  std::vector<uint32_t> slots_;          // of lost streams
  std::map<wire::Id, uint64_t> begins_;  // of these streams: where what is lost begins
  bool has_older_ = false;
  bool is_unknown_ = false;
  std::vector<const RecentCommand*> commands_;
  std::vector<const RecentCommand*> judged_;
};

}  // namespace

std::optional<uint32_t> give_again(SessionParts& session, const RecentWork& recent) {
  if (session.core.info.replay == wire::Replay::kNever) return std::nullopt;
  const wire::ChannelView& view = session.core.view;
  const LostAgain lost(session, recent);
  if (lost.slots().empty()) return std::nullopt;
  if (const std::string why = lost.why_not(); !why.empty()) {
    log("Session " + std::to_string(session.core.info.id) +
        ": what was under way is not given again: " + why);
    return std::nullopt;
  }
  for (const uint32_t slot : lost.slots()) {
    wire::FenceSlot& fence = view.fence(slot);
    fence.value.store(fence.good.load(std::memory_order_relaxed), std::memory_order_relaxed);
    fence.lost.store(0, std::memory_order_release);
  }
  view.lost_events().count.store(0, std::memory_order_relaxed);
  if (!lost.commands().empty()) {
    session.core.journal.view().header().given_again.store(lost.commands().back()->end,
                                                           std::memory_order_relaxed);
  }
  for (const RecentCommand* command : lost.commands()) {
    session.pending.push_back({.opcode = command->opcode,
                               .payload = command->payload,
                               .notes = {},
                               .stream = command->stream});
  }
  return static_cast<uint32_t>(lost.commands().size());
}

void drop_unposted_calls(SessionParts& session) {
  const wire::ChannelView& view = session.core.view;
  const wire::JournalView& journal = session.core.journal.view();
  for (uint32_t i = 0; i < journal.callback_slots(); ++i) {
    const uint32_t slot = journal.call(i).slot.load(std::memory_order_relaxed);
    const uint64_t value = journal.call(i).value.load(std::memory_order_relaxed);
    if (slot < wire::kFenceSlots && view.callback(i).posted.load() == 0 &&
        is_unreached(view, slot, value)) {
      view.callback(i).posted.store(wire::kCallbackDropped, std::memory_order_release);
    }
  }
}

}  // namespace openmps::worker
