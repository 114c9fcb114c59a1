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
#include <map>
#include <memory>
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

// Of a session: 16 MiB of them. NVIDIA's driver holds some 1,020 items a stream.
inline constexpr size_t kMostHeldItems = 1u << 14;
// Each look at the backlog looks at all of them.
inline constexpr size_t kMostHeldStreams = 256;

class Backlog {
 public:
  Backlog(SessionCore& core, Streams& streams, DeviceWords& words)
      : core_(core), streams_(streams), words_(words) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] bool is_full() const {
    return size_ >= kMostHeldItems || lines_.size() >= kMostHeldStreams;
  }
  [[nodiscard]] size_t size() const { return size_; }

  struct Item;
  // There is no room for its stream (decision 33), or it waits for something that has not come, and
  // may not do so on the GPU, or for room in its stream's window. Behind long work nothing is
  // submitted before its end is near: it would hold a hardware queue. Nor is it while too many
  // streams have work behind what runs (worker/shared/connections.h). `item`: what is known of it,
  // if it is held.
  template <typename What>
  [[nodiscard]] bool stands(const Uses& uses, const What& what, Stream& stream,
                            Item* item = nullptr) const {
    if (!streams_.has_room(stream) || stands_by_itself(uses, what, stream, item)) return true;
    return Streams::implies_wait(stream, entry_of(what)) && stands_at_implied_wait(stream);
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
  // So does some for room for its stream. Who makes some, or gives it back, tells nobody.
  [[nodiscard]] bool awaits_room() const {
    return std::ranges::any_of(lines_, [](const auto& line) {
      return line.first->handle == nullptr && line.first->slots == nullptr;
    });
  }
  // Some held work waits for a value, or for something else that may come only when the program
  // goes on.
  [[nodiscard]] bool awaits_program() const;
  // It comes behind something held, in its stream or in another.
  [[nodiscard]] bool is_behind(const Work& work, const Stream& stream) const {
    return is_behind(work, stream, ~0ull);
  }
  // Held work records the event, or waits for it as it was recorded before.
  [[nodiscard]] bool names(const void* event) const {
    const auto named = named_.find(event);
    return named != named_.end() && named->second.items != 0;
  }
  // Held work records the event, launches the executable graph, launches the function.
  [[nodiscard]] bool records(const void* event) const {
    const auto named = named_.find(event);
    return named != named_.end() && named->second.records != 0;
  }
  [[nodiscard]] bool launches(const LaunchableGraph* exec) const {
    const auto first = launches_.lower_bound({exec, 0});
    return first != launches_.end() && first->first == exec;
  }
  [[nodiscard]] bool launches(const Function& function) const;
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
    std::vector<DeviceWords::Row> read;
    HeldSpan span;  // while it is the first of its stream
  };
  // The first that can go, or, if `all`, the first of all; null: there is none.
  std::unique_ptr<Item> take(bool all);
  // When the first window that has no room is to be looked at, by now_ns(); ~0: none has.
  [[nodiscard]] uint64_t next_look_ns() const;
  // The client has gone, and its work with it.
  void drop();

 private:
  template <typename What, typename... Whats>
  static constexpr bool is_one_of() {
    return (std::same_as<What, Whats> || ...);
  }
  using Line = std::deque<std::unique_ptr<Item>>;

  [[nodiscard]] bool is_behind(const Work& work, const Stream& stream, uint64_t number) const;
  [[nodiscard]] static bool is_ordered(const Work& work, const Stream& stream, const Stream& other,
                                       const Line& line, uint64_t number);
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
  // Work of the cold lane, behind which its stream waits for its twin and holds a hardware queue.
  // Whoever has the only right may be waiting for this very work.
  [[nodiscard]] bool stands_at_stay(Stream& stream) const {
    return core_.commons.connections[stream.place.device].keeps_some() &&
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
    if (!streams_.begin(stream) || stream.window == nullptr) return false;
    const bool refused = stream.window->refuses_wait(is_over, soon);
    streams_.note_right(stream);
    return refused;
  }
  // kNothing: it can go.
  [[nodiscard]] wire::HeldFor why_held(Item& item) const;
  void end_span(Item& item);
  void forget(const Item& item);
  void note_change();

  SessionCore& core_;
  Streams& streams_;
  DeviceWords& words_;
  std::map<Stream*, Line> lines_;  // none is empty
  size_t size_ = 0;
  size_t value_waits_ = 0;   // items that wait for values
  size_t answer_waits_ = 0;  // and for host functions that take their time
  // Events that held records and waits name: how many do, and how many of them are records.
  struct Named {
    uint32_t items = 0;
    uint32_t records = 0;
  };
  std::unordered_map<const void*, Named> named_;
  // Held launches of executable graphs, with their numbers: each comes behind those before it.
  std::set<std::pair<const LaunchableGraph*, uint64_t>> launches_;
  // Held copies that all later work of their context comes behind, by number.
  std::map<uint64_t, const ClientContext*> orderers_;
};

}  // namespace openmps::worker
