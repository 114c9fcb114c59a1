// SPDX-License-Identifier: Apache-2.0
// The session's held work: what its streams have been given and the driver has not, and which of it
// comes behind which. Of the first held item of a stream that comes behind no other, admission says
// whether it may be submitted: a wait for a value, for instance, would occupy a hardware queue of
// the shared context, and be in the way of whoever needs that context quiescent (decision 17).
// Session's thread only.
//
// Items are numbered in the order in which the program gave them. None waits for a later one, so
// submitting all of them in this order is always right: it is what the driver would have been given
// without a backlog. A command that removes something which held work uses submits that work first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/admission/verdict.h"
#include "worker/core/session_core.h"
#include "worker/device/value_watch.h"
#include "worker/streams/stream.h"
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

  [[nodiscard]] bool empty() const { return items_.empty(); }
  [[nodiscard]] bool is_full() const { return bytes_ >= kMostHeldBytes; }
  [[nodiscard]] size_t size() const { return items_.size(); }

  // Some held work waits for a value.
  [[nodiscard]] bool awaits_value() const { return value_waits_ != 0; }
  // The work comes behind held work of its stream or of another.
  [[nodiscard]] bool is_behind(const Work& work, const Stream& stream) const {
    return stream.held != 0 || is_behind_others(work, stream, ~0ull);
  }
  // How many items record the event, or wait for it as it was recorded before.
  [[nodiscard]] uint32_t named(const void* event) const {
    const auto found = named_.find(event);
    return found == named_.end() ? 0 : found->second;
  }
  // Held work names some event.
  [[nodiscard]] bool names_events() const { return !named_.empty(); }

  // Throws std::bad_alloc. `refused`: by which admission, as the next of its stream; nothing if it
  // comes behind held work.
  void hold(const Work& work, Stream& stream, const Refused& refused);
  struct Item {
    Item(const Work& work, Stream& stream, uint64_t number)
        : work(work), stream(stream), number(number) {}
    // The item records the event, or waits for it.
    [[nodiscard]] bool names(const void* event) const;

    HeldWork work;
    Stream& stream;
    const uint64_t number;
    Item* next = nullptr;                 // of its stream
    std::vector<ShownValues::Row> shown;  // the values that it waits for
    std::vector<ValueWatch::Row> watched;
    WordsSeen seen;
    HeldSpan span;      // while it is the first of its stream
    Admitted admitted;  // what it has taken, once it may go
  };
  using Items = std::map<uint64_t, Item>;  // by number
  using Taken = Items::node_type;
  [[nodiscard]] const Items& items() const { return items_; }
  // The first item from number `*from` on that is admitted; empty: there is none. `*from` is behind
  // the item then: no item waits for a later one, so whoever calls this from 0 on until it returns
  // nothing has asked for everything.
  Taken take_admitted(uint64_t* from);
  // The item of that number, the first of its stream, whatever admission says.
  Taken take(uint64_t number);
  // The numbers of the items that `wanted` picks and of all that these come behind, ascending.
  // Throws std::bad_alloc.
  template <typename Wanted>
  [[nodiscard]] std::vector<uint64_t> with_all_before(Wanted&& wanted) const {
    Needs needs;
    std::vector<uint64_t> numbers;
    for (auto at = items_.rbegin(); at != items_.rend(); ++at) {
      const auto& [number, item] = *at;
      if (!wanted(item) && !needs.include(item)) continue;
      needs.add(item);
      numbers.push_back(number);
    }
    std::ranges::reverse(numbers);
    return numbers;
  }
  // When admission is to be asked again, in Clock::now_ns() time, by its last answers; kNever: not
  // by time.
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

  // The work comes behind held work of other streams that was given before it.
  [[nodiscard]] bool is_behind_others(const Work& work, const Stream& stream,
                                      uint64_t number) const;
  [[nodiscard]] bool is_behind_legacy(const Work& work, const Stream& stream,
                                      uint64_t number) const;
  [[nodiscard]] bool is_behind_blocking(const Stream& legacy, uint64_t number) const;
  // Held work before that number is what later work comes behind (lead_of() in backlog.cc).
  [[nodiscard]] bool has_lead(const void* lead, uint64_t number) const;
  // What admission says of the first of a stream.
  [[nodiscard]] Verdict ask(Item& item);
  void end_span(Item& item);
  void note_change();
  void tell_whether_full(Stream& stream);

  SessionCore& core_;
  Streams& streams_;
  WorkAdmission& admission_;
  ValueWatch* const watch_;
  Items items_;
  std::map<uint64_t, Item*> firsts_;  // of each stream that has items, by number
  // What later work comes behind (lead_of()), with the items' numbers.
  std::set<std::pair<const void*, uint64_t>> leads_;
  std::unordered_map<const void*, uint32_t> named_;  // how many items name the event
  size_t bytes_ = 0;
  uint64_t next_look_ns_ = kNever;
  size_t value_waits_ = 0;  // items that wait for values
};

}  // namespace openmps::worker
