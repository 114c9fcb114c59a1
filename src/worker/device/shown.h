// SPDX-License-Identifier: Apache-2.0
// What a session shows in its channel for `openmps inspect` (wire/layout.h): what the executor
// waits for and which sessions it waits for, the values that streams wait for, and what has been
// given up and not yet given back. The server reads this at any time, whatever the session is stuck
// in. Times are of the session's clock. Session's thread only.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "wire/channel_view.h"
#include "wire/commands/stream.h"
#include "worker/device/usage.h"

namespace openmps::worker {

// The sessions that an executor waits for. Each has one row, with the reason that says most: work
// that runs ends by itself, a wait for an act of the program may not end.
class Hindrances {
 public:
  // `session` 0: the worker itself. `stream` 0: no particular one.
  void add(uint32_t session, uint32_t stream, wire::Hindrance why) {
    for (uint32_t i = 0; i < count_; ++i) {
      if (rows_[i].session != session) continue;
      if (why > rows_[i].why) rows_[i] = {session, stream, why};
      return;
    }
    if (count_ < rows_.size()) rows_[count_++] = {session, stream, why};
  }
  void show(wire::ExecutorState& state) const {
    for (uint32_t i = 0; i < count_; ++i) {
      state.hindrances[i].session.store(rows_[i].session, std::memory_order_relaxed);
      state.hindrances[i].stream.store(rows_[i].stream, std::memory_order_relaxed);
      state.hindrances[i].why.store(rows_[i].why, std::memory_order_relaxed);
    }
    if (count_ == rows_.size()) return;
    state.hindrances[count_].why.store(wire::Hindrance::kNone, std::memory_order_relaxed);
  }

 private:
  struct Row {
    uint32_t session;
    uint32_t stream;
    wire::Hindrance why;
  };
  std::array<Row, wire::kShownHindrances> rows_{};
  uint32_t count_ = 0;
};

// Shows and counts a wait of the executor, from construction, at `now`, to destruction. Null:
// nothing is shown, or counted.
class ShownWait {
 public:
  ShownWait(wire::ExecutorState* state, SessionUsage* usage, uint64_t now, wire::ExecutorWait wait,
            wire::HeldFor why = wire::HeldFor::kQuietMoment)
      : state_(state), usage_(usage) {
    if (usage_ != nullptr) usage_->begin_wait(why);
    if (state_ == nullptr) return;
    state_->wait_since_ns.store(now, std::memory_order_relaxed);
    state_->wait.store(wait, std::memory_order_relaxed);
  }
  ~ShownWait() {
    if (usage_ != nullptr) usage_->end_wait();
    if (state_ != nullptr) state_->wait.store(wire::ExecutorWait::kNone, std::memory_order_relaxed);
  }
  ShownWait(const ShownWait&) = delete;
  ShownWait& operator=(const ShownWait&) = delete;

 private:
  wire::ExecutorState* const state_;
  SessionUsage* const usage_;
};

// The rows of a table in the channel. An entry that finds no free row is counted and not shown.
template <uint32_t kRows>
class ShownRows {
 public:
  // `view`: set before the first is shown.
  explicit ShownRows(const wire::ChannelView& view) : view_(view) {}
  ShownRows(const ShownRows&) = delete;
  ShownRows& operator=(const ShownRows&) = delete;

 protected:
  static constexpr uint32_t kNoRow = kRows;
  // kNoRow: none is free.
  uint32_t take_row() {
    ++count_;
    for (uint32_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == ~0ull) continue;
      const auto bit = static_cast<uint32_t>(std::countr_one(words_[i]));
      words_[i] |= uint64_t{1} << bit;
      return i * 64 + bit;
    }
    return kNoRow;
  }
  void give_back_row(uint32_t row) {
    --count_;
    if (row != kNoRow) words_[row / 64] &= ~(uint64_t{1} << (row % 64));
  }

  const wire::ChannelView& view_;
  uint32_t count_ = 0;  // of entries, with those that are not shown

 private:
  static_assert(kRows % 64 == 0);
  std::array<uint64_t, kRows / 64> words_{};  // a bit of a row in use is 1
};

// One row of a table, shown while this exists.
template <typename Table>
class ShownRow {
 public:
  template <typename... What>
  ShownRow(Table& table, const What&... what) : table_(&table), row_(table.take(what...)) {}
  ShownRow(ShownRow&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)), row_(other.row_) {}
  ShownRow& operator=(ShownRow&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(row_, other.row_);
    return *this;
  }
  ~ShownRow() {
    if (table_ != nullptr) table_->give_back(row_);
  }

 private:
  Table* table_;
  uint32_t row_;
};

// The rows of the values that streams wait for, in the worker or in the driver.
class ShownValues : ShownRows<wire::kShownValueWaits> {
 public:
  using ShownRows::ShownRows;
  using Row = ShownRow<ShownValues>;
  // The waits have just been looked at.
  void seen(uint64_t now) {
    view_.executor().value_waits_seen_ns.store(now, std::memory_order_relaxed);
  }

 private:
  friend Row;
  uint32_t take(uint32_t stream, const wire::StreamValue& wait, uint64_t now) {
    if (count_ == 0) seen(now);
    const uint32_t row = take_row();
    view_.executor().value_waits.store(count_, std::memory_order_relaxed);
    if (row == kNoRow) return row;
    wire::ValueWait& shown = view_.value_wait(row);
    shown.address.store(wait.address, std::memory_order_relaxed);
    shown.value.store(wait.value, std::memory_order_relaxed);
    shown.since_ns.store(now, std::memory_order_relaxed);
    shown.stream.store(stream, std::memory_order_relaxed);
    const uint32_t condition = wait.flags & CU_STREAM_WAIT_VALUE_NOR;
    shown.how.store(wait.width + condition * wire::kValueCondition, std::memory_order_release);
    return row;
  }
  void give_back(uint32_t row) {
    if (row != kNoRow) view_.value_wait(row).how.store(0, std::memory_order_relaxed);
    give_back_row(row);
    view_.executor().value_waits.store(count_, std::memory_order_relaxed);
  }
};

// What the session has given up and the driver is told of later.
struct GivenUp {
  wire::ReturnKind kind = wire::ReturnKind::kNone;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// The rows of what the session has given up and the driver still has.
class ShownReturns : ShownRows<wire::kShownReturns> {
 public:
  using ShownRows::ShownRows;
  using Row = ShownRow<ShownReturns>;
  // The stream whose work the first release waits for; 0: no particular one.
  void show_stream(uint32_t stream) {
    view_.executor().return_stream.store(stream, std::memory_order_relaxed);
  }

 private:
  friend Row;
  uint32_t take(const GivenUp& what, wire::ReturnWait wait, uint64_t now) {
    const uint32_t row = take_row();
    view_.executor().returns.store(count_, std::memory_order_relaxed);
    if (row == kNoRow) return row;
    wire::PendingReturn& shown = view_.pending_return(row);
    shown.address.store(what.address, std::memory_order_relaxed);
    shown.bytes.store(what.bytes, std::memory_order_relaxed);
    shown.since_ns.store(now, std::memory_order_relaxed);
    shown.wait.store(wait, std::memory_order_relaxed);
    shown.kind.store(what.kind, std::memory_order_release);
    return row;
  }
  void give_back(uint32_t row) {
    if (row != kNoRow) {
      view_.pending_return(row).kind.store(wire::ReturnKind::kNone, std::memory_order_relaxed);
    }
    give_back_row(row);
    view_.executor().returns.store(count_, std::memory_order_relaxed);
  }
};

}  // namespace openmps::worker
