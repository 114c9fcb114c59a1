// SPDX-License-Identifier: Apache-2.0
// What the session's streams have been given and the driver has not. A stream that waits for a
// value which is not there yet would take one of the few hardware queues of the shared context, and
// make everybody wait who needs a quiet moment: the wait, and what is behind it, stays here until
// the value has come (decision 17). So do other waits that find no hardware queue to be had
// (decision 23), and what a stream has no room for in its window, until it has (decision 18).
// Session's thread only.
//
// Items are numbered in the order in which the program gave them. None waits for a later one, so
// submitting all of them in this order is always right: it is what the driver would have been given
// without a backlog. Whoever does something that held work must not outlive has that done first.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/core/session_core.h"
#include "worker/device/value_watch.h"
#include "worker/streams/device_words.h"
#include "worker/streams/stream.h"
#include "worker/work/held_work.h"
#include "worker/work/work.h"

namespace openmps::worker {

// Of one stream: who gives it more waits until half of that has gone (wire::ChannelView::is_full).
// NVIDIA's driver lets whoever gives a stream more than some 1,020 items wait.
inline constexpr size_t kMostHeldItems = 1u << 14;
inline constexpr size_t kDriverItems = 1020;
// Of a session: nothing more is read from its ring meanwhile. While there is a quarter of it
// streams have no more than the driver would hold, so this comes to be only where 60 streams wait
// that are full for the driver, too, which has 32 hardware queues for them.
inline constexpr size_t kMostHeldBytes = 256 * wire::kMiB;

// The driver records or waits for events in it that the backlog does not see.
[[nodiscard]] bool names_hidden_events(const Work& work);

class Backlog {
 public:
  // `watch`: null: the executor looks for values itself. `connections`: null: none are counted.
  Backlog(SessionCore& core, Streams& streams, DeviceWords& words, ValueWatch* watch,
          const PerDevice<QueueCredits>* connections)
      : core_(core), streams_(streams), words_(words), watch_(watch), connections_(connections) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  struct Item;

  [[nodiscard]] bool is_full() const { return bytes_ >= kMostHeldBytes; }
  [[nodiscard]] size_t size() const { return size_; }

  // It waits for something that has not come, and may not do so on the GPU, or for room in its
  // stream's window. Behind long work nothing is submitted before its end is near: it would hold a
  // hardware queue. Nor is it while too many streams have work behind what runs
  // (worker/admission/queue_credits.h). Or there is no room for its stream (decision 33), which is
  // asked for last: what waits needs none. `item`: what is known of it, if it is held.
  template <typename What>
  [[nodiscard]] bool stands(const Uses& uses, const What& what, Stream& stream,
                            Item* item = nullptr) const {
    return stands_for_now(uses, what, stream, item) || !streams_.has_stream_slot(stream, uses.lane);
  }
  [[nodiscard]] bool stands(const Work& work, Stream& stream, Item* item = nullptr) const;
  // As what it enters its stream.
  template <typename What>
  static constexpr Streams::Entry entry_of(const What& what) {
    using Entry = Streams::Entry;
    if constexpr (std::same_as<What, FenceWork>) {
      return what.in_order ? Entry::kMarker : Entry::kFence;
    } else if constexpr (std::same_as<What, WakeWork>) {
      return Entry::kFence;
    } else {
      return std::same_as<What, RecordWork> ? Entry::kMarker : Entry::kWork;
    }
  }
  // It counts in its stream's window.
  template <typename What>
  static constexpr bool is_windowed() {
    return is_one_of<What, KernelWork, CopyWork, BoxWork, FillWork, GraphWork>();
  }
  // Some held work waits for a value.
  [[nodiscard]] bool awaits_value() const { return value_waits_ != 0; }
  // So does some for room for its stream, perhaps, as far as the last look told. Who makes some, or
  // gives it back, tells nobody.
  [[nodiscard]] bool awaits_stream_slot() const { return awaits_stream_slot_; }
  // It comes behind something held, in its stream or in another.
  [[nodiscard]] bool is_behind(const Work& work, const Stream& stream) const {
    return stream.held != 0 || is_behind_others(work, stream, ~0ull);
  }
  // The item records the event, or waits for it.
  [[nodiscard]] static bool names(const Item& item, const void* event);
  // Held work records the event, or waits for it as it was recorded before.
  [[nodiscard]] bool names(const void* event) const {
    const auto named = named_.find(event);
    return named != named_.end() && named->second.items != 0;
  }
  // Held work records the event.
  [[nodiscard]] bool records(const void* event) const {
    const auto named = named_.find(event);
    return named != named_.end() && named->second.records != 0;
  }
  // Held work names some event.
  [[nodiscard]] bool names_events() const { return !named_.empty(); }
  // How many items name the event.
  [[nodiscard]] uint32_t times_named(const void* event) const {
    const auto named = named_.find(event);
    return named == named_.end() ? 0 : named->second.items;
  }

  // Throws std::bad_alloc.
  void hold(const Work& work, Stream& stream);
  struct Item {
    HeldWork work;
    Stream& stream;
    const uint64_t number;
    std::vector<ShownValues::Row> shown;  // what it waits for
    std::vector<ValueWatch::Row> watched;
    // The operation that is looked at, as long as it is the first of its stream, and where it is
    // read if it waits for device memory.
    size_t looked_at = 0;
    std::optional<DeviceWords::Row> read;
    HeldSpan span;  // while it is the first of its stream
  };
  // The first from number `*from` on that can go, or, if `all`, the first of all; null: there is
  // none. `*from` is behind it then: since none waits for a later one, who takes all from 0 on in
  // turn has looked at everything.
  std::unique_ptr<Item> take(bool all, uint64_t* from);
  // The numbers of what is held that `wanted` picks and of all that this comes behind, ascending:
  // taken in turn, `all`, they are in their order. Throws std::bad_alloc.
  template <typename Wanted>
  [[nodiscard]] std::vector<uint64_t> with_all_before(Wanted&& wanted) const {
    std::vector<const Item*> items;
    for (const auto& [stream, line] : lines_) {
      for (const auto& item : line) items.push_back(item.get());
    }
    if (!std::ranges::any_of(items, [&](const Item* item) { return wanted(*item); })) return {};
    std::ranges::sort(items, std::greater(), &Item::number);
    Needs needs;
    std::vector<uint64_t> numbers;
    for (const Item* item : items) {
      if (!wanted(*item) && !needs.include(*item)) continue;
      needs.add(*item);
      numbers.push_back(item->number);
    }
    std::ranges::reverse(numbers);
    return numbers;
  }
  // When to look again, by now_ns(), as far as the last look told: the first window that has no
  // room is due; ~0: none is.
  [[nodiscard]] uint64_t next_look_ns() const { return next_look_ns_; }
  // The client has gone, and its work with it.
  void drop();

 private:
  // What some held work comes behind, of all that was held before it.
  struct Needs {
    [[nodiscard]] bool include(const Item& earlier) const;
    void add(const Item& item);

    std::set<const void*> things;  // streams, contexts that order all, events, executable graphs
    std::set<const ClientContext*> legacy;    // whose legacy streams'
    std::set<const ClientContext*> blocking;  // and blocking streams' work
    bool any_event = false;                   // every record and every wait
  };
  static constexpr uint64_t kNoLook = ~0ull;
  template <typename What, typename... Whats>
  static constexpr bool is_one_of() {
    return (std::same_as<What, Whats> || ...);
  }
  using Line = std::deque<std::unique_ptr<Item>>;

  template <typename What>
  [[nodiscard]] bool stands_for_now(const Uses& uses, const What& what, Stream& stream,
                                    Item* item) const {
    return stands_by_itself(uses, what, stream, item) ||
           (Streams::implies_wait(stream, entry_of(what)) && stands_at_implied_wait(stream));
  }
  // Behind what is held of other streams and was given before it.
  [[nodiscard]] bool is_behind_others(const Work& work, const Stream& stream,
                                      uint64_t number) const;
  [[nodiscard]] bool is_behind_legacy(const Work& work, const Stream& stream,
                                      uint64_t number) const;
  [[nodiscard]] bool is_behind_blocking(const Stream& legacy, uint64_t number) const;
  template <typename What>
  [[nodiscard]] bool stands_by_itself(const Uses& uses, const What& what, Stream& stream,
                                      Item* item) const {
    if constexpr (is_windowed<What>()) {
      if (stream.window != nullptr && stream.window->is_full(uses.cost)) return true;
      return uses.lane == Lane::kCold && stands_at_stay(stream);
    } else if constexpr (std::same_as<What, UploadWork>) {
      return false;
    } else {
      if (stream.window != nullptr && stream.window->is_closed()) return true;
      return stands_at_wait(what, stream, item);
    }
  }
  // Work of the cold lane, behind which its stream waits for its cold stream and holds a hardware
  // queue. Whoever has the only right may be waiting for this very work. Behind a wait of its
  // stream it would keep that lane busy for as long, and whoever loads code finds neither of the
  // two quiet.
  [[nodiscard]] bool stands_at_stay(Stream& stream) const {
    if (stream.window != nullptr && stream.window->is_waiting()) return true;
    return connections_ != nullptr && (*connections_)[stream.place.device].keeps_some() &&
           refuses(
               stream, [] { return false; }, true);
  }
  // After stands_by_itself(): what passes here is submitted, or a right that it got would be lost.
  [[nodiscard]] bool stands_at_implied_wait(Stream& stream) const;
  template <typename What>
  [[nodiscard]] bool stands_at_wait(const What&, Stream&, Item*) const {
    return false;
  }
  [[nodiscard]] bool stands_at_wait(const ValuesWork& values, Stream& stream, Item* item) const;
  [[nodiscard]] bool stands_at_wait(const HostCallWork& call, Stream& stream, Item* item) const;
  [[nodiscard]] bool stands_at_wait(const WaitWork& wait, Stream& stream, Item* item) const;
  // The stream refuses a wait, which is not over.
  template <typename IsOver>
  [[nodiscard]] bool refuses(Stream& stream, IsOver&& is_over, bool soon = false) const {
    StreamBudget* window = streams_.window(stream);
    if (window == nullptr) return false;
    const bool refused = window->refuses_wait(is_over, soon);
    streams_.note_right(stream);
    return refused;
  }
  // The words in device memory that it waits for have come, one after the other.
  [[nodiscard]] bool have_come(const ValuesWork& values, Item& item) const;
  // kNothing: it can go. It is the first of its stream.
  [[nodiscard]] wire::HeldFor why_held(Item& item) const;
  void end_span(Item& item);
  void forget(const Item& item);
  void note_change();
  void tell_whether_full(Stream& stream);

  SessionCore& core_;
  Streams& streams_;
  DeviceWords& words_;
  ValueWatch* const watch_;
  const PerDevice<QueueCredits>* const connections_;
  std::unordered_map<const Stream*, Line> lines_;  // none is empty
  std::map<uint64_t, Line*> firsts_;               // the lines by the numbers of their first items
  // How many lines are of blocking streams of a context.
  std::unordered_map<const ClientContext*, uint32_t> blocking_;
  size_t size_ = 0;
  size_t bytes_ = 0;
  bool awaits_stream_slot_ = false;
  uint64_t next_look_ns_ = kNoLook;
  size_t value_waits_ = 0;  // items that wait for values
  // Events that held records and waits name: how many do, and how many of them are records.
  struct Named {
    uint32_t items = 0;
    uint32_t records = 0;
  };
  std::unordered_map<const void*, Named> named_;
  // Held launches of executable graphs, with their numbers: each comes behind those before it.
  std::set<std::pair<const LaunchableGraph*, uint64_t>> launches_;
  // Held copies that all later work of their context comes behind, by number.
  std::set<std::pair<const ClientContext*, uint64_t>> orderers_;
};

}  // namespace openmps::worker
