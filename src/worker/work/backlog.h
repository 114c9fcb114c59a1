// SPDX-License-Identifier: Apache-2.0
// The work that the session's streams have been given and the driver has not, and which of it comes
// behind which. Whether the first item of a stream may go is for admission to say: an item that
// waits for a value, for instance, would occupy a hardware queue of the shared context on the GPU,
// and be in the way of whoever needs that context quiescent (decision 17). Session's thread only.
//
// Items are numbered in the order in which the program gave them. None waits for a later one, so
// submitting all of them in this order is always right: it is what the driver would have been given
// without a backlog. A command that removes something which held work uses submits that work first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/admission/verdict.h"
#include "worker/core/session_core.h"
#include "worker/device/value_watch.h"
#include "worker/streams/stream.h"
#include "worker/work/held_work.h"
#include "worker/work/work.h"
#include "worker/work/work_admission.h"

namespace openmps::worker {

// Of one stream: a thread that gives it more waits until half of that has gone
// (wire::ChannelView::is_full), as it waits in NVIDIA's driver behind some 1,020 items.
inline constexpr size_t kMostHeldItems = 1u << 14;
inline constexpr size_t kDriverItems = 1020;
// Of a session: its ring is not read meanwhile. From a quarter of this on a stream is full with
// kDriverItems, so it takes 60 full streams to get here, and the driver has 32 hardware queues.
inline constexpr size_t kMostHeldBytes = 256 * wire::kMiB;

// The driver records or waits for events in it that the backlog does not see.
[[nodiscard]] bool names_hidden_events(const Work& work);

class Backlog {
 public:
  // `watch`: null: the executor looks for values itself.
  Backlog(SessionCore& core, Streams& streams, WorkAdmission& admission, ValueWatch* watch)
      : core_(core), streams_(streams), admission_(admission), watch_(watch) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  struct Item;

  [[nodiscard]] bool is_full() const { return bytes_ >= kMostHeldBytes; }
  [[nodiscard]] size_t size() const { return size_; }

  // Some held work waits for a value.
  [[nodiscard]] bool awaits_value() const { return value_waits_ != 0; }
  // The work comes behind held work of its stream or of another.
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

  // Throws std::bad_alloc. `refused`: by which admission, as the next of its stream; nothing if it
  // comes behind held work.
  void hold(const Work& work, Stream& stream, const Refused& refused);
  struct Item {
    HeldWork work;
    Stream& stream;
    const uint64_t number;
    std::vector<ShownValues::Row> shown;  // the values that it waits for
    std::vector<ValueWatch::Row> watched;
    WordsSeen seen;
    HeldSpan span;      // while it is the first of its stream
    Admitted admitted;  // what it has taken, once it may go
  };
  // The first item from number `*from` on that is admitted; null: there is none. `*from` is behind
  // the item then: no item waits for a later one, so whoever calls this from 0 on until it returns
  // null has asked for everything.
  std::unique_ptr<Item> take_admitted(uint64_t* from);
  // The item of that number, the first of its stream, whatever admission says.
  std::unique_ptr<Item> take(uint64_t number) { return take(firsts_.find(number)); }
  // The numbers of the items that `wanted` picks and of all that these come behind, ascending.
  // Throws std::bad_alloc.
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
  // When admission is to be asked again, by the clock, as far as the last look told; kNever: it
  // need not be asked.
  [[nodiscard]] uint64_t next_look_ns() const { return next_look_ns_; }
  // The client has gone, and its work with it.
  void drop();

 private:
  // What some items come behind, of all that was held before these.
  struct Needs {
    [[nodiscard]] bool include(const Item& earlier) const;
    void add(const Item& item);

    std::set<const void*> things;  // streams, contexts that order all, events, executable graphs
    std::set<const ClientContext*> legacy;    // work of these contexts' legacy streams,
    std::set<const ClientContext*> blocking;  // and of these contexts' blocking streams
    bool any_event = false;                   // every record and every wait
  };
  using Line = std::deque<std::unique_ptr<Item>>;
  using Firsts = std::map<uint64_t, Line*>;

  // The work comes behind held work of other streams that was given before it.
  [[nodiscard]] bool is_behind_others(const Work& work, const Stream& stream,
                                      uint64_t number) const;
  [[nodiscard]] bool is_behind_legacy(const Work& work, const Stream& stream,
                                      uint64_t number) const;
  [[nodiscard]] bool is_behind_blocking(const Stream& legacy, uint64_t number) const;
  // What admission says of the first of a stream.
  [[nodiscard]] Verdict ask(Item& item);
  std::unique_ptr<Item> take(Firsts::iterator found);
  void end_span(Item& item);
  void forget(const Item& item);
  void note_change();
  void tell_whether_full(Stream& stream);

  SessionCore& core_;
  Streams& streams_;
  WorkAdmission& admission_;
  ValueWatch* const watch_;
  std::unordered_map<const Stream*, Line> lines_;  // none is empty
  Firsts firsts_;                                  // the lines by the numbers of their first items
  // The number of lines of blocking streams, by context.
  std::unordered_map<const ClientContext*, uint32_t> blocking_;
  size_t size_ = 0;
  size_t bytes_ = 0;
  uint64_t next_look_ns_ = kNever;
  size_t value_waits_ = 0;  // items that wait for values
  // The events that items name: the number of these items, and of records among them.
  struct Named {
    uint32_t items = 0;
    uint32_t records = 0;
  };
  std::unordered_map<const void*, Named> named_;
  // Held launches of executable graphs, with their numbers: launches of a graph keep their order.
  std::set<std::pair<const LaunchableGraph*, uint64_t>> launches_;
  // Held copies that all later work of a context comes behind, by number.
  std::set<std::pair<const ClientContext*, uint64_t>> orderers_;
};

}  // namespace openmps::worker
