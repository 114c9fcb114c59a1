// SPDX-License-Identifier: Apache-2.0
// CUDA's rules about the order of a program's operations: behind which operations each one comes,
// and for which gates it may have to wait. A gate is a value for which a stream waits and that no
// thread has been asked to write yet. random_order.cc keeps the state of its streams that the rules
// need here, by IDs that no two streams of a program share.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace e2e::random_order {

inline constexpr uint32_t kStreamsEver = 16;  // all streams of a program, destroyed ones included
inline constexpr uint32_t kGatesEver = 64;    // the bits of a mask

// An operation, by its stream and its number in it. Number 0: no operation.
struct Operation {
  uint32_t stream = 0;
  uint32_t number = 0;
};

// The operations and gates behind which something comes.
struct Clock {
  std::array<uint32_t, kStreamsEver> count{};  // the number of operations of each stream
  uint64_t may = 0;                            // gates for which it may have to wait
  uint64_t must = 0;                           // gates for which it certainly waits

  void merge(const Clock& other) {
    for (uint32_t i = 0; i < kStreamsEver; i++) count[i] = std::max(count[i], other.count[i]);
    may |= other.may;
    must |= other.must;
  }
  [[nodiscard]] bool covers(const Operation& operation) const {
    return count[operation.stream] >= operation.number;
  }
};

class Rules {
 public:
  static constexpr uint32_t kLegacy = 0;

  // The legacy stream exists from the beginning.
  Rules() { add(true); }

  uint32_t add(bool blocking) {
    streams_.emplace_back().blocking = blocking;
    return static_cast<uint32_t>(streams_.size()) - 1;
  }
  [[nodiscard]] bool full() const { return streams_.size() == kStreamsEver; }
  [[nodiscard]] bool is_blocking(uint32_t stream) const {
    return stream != kLegacy && streams_[stream].blocking;
  }

  // What an operation that is given to the stream now comes behind, work of destroyed streams
  // included.
  [[nodiscard]] Clock behind(uint32_t stream) const {
    Clock clock = streams_[stream].clock;
    clock.merge(host_);
    if (stream == kLegacy) {
      for (const Stream& other : streams_) {
        if (other.blocking) clock.merge(other.shown());
      }
    } else if (streams_[stream].blocking) {
      clock.merge(streams_[kLegacy].shown());
    }
    return clock;
  }
  // The stream's last operation, and what it came behind.
  [[nodiscard]] const Clock& given(uint32_t stream) const { return streams_[stream].clock; }
  // What synchronising with the stream waits for.
  [[nodiscard]] Clock awaited(uint32_t stream) const {
    return stream == kLegacy ? behind(stream) : streams_[stream].clock;
  }
  // The next operation of the stream, and what it comes behind.
  [[nodiscard]] Clock begin(uint32_t stream) {
    Clock clock = behind(stream);
    clock.count[stream] = ++streams_[stream].given;
    return clock;
  }
  // Records that an operation that comes behind `clock` has been given to the stream.
  Operation give(uint32_t stream, const Clock& clock) {
    streams_[stream].clock = clock;
    if (!is_behind_call(stream)) streams_[stream].work = clock;
    return {stream, streams_[stream].given};
  }
  // As give(), for a host function, which orders its own stream only: the implicit waits between
  // the legacy stream and others are only for work of the device, and not for such work behind a
  // host function that may not have ended. (Both seen on an H200: a copy from pinned memory in a
  // blocking stream did not wait for a kernel in the legacy stream behind a host function.)
  Operation give_call(uint32_t stream) {
    streams_[stream].clock = begin(stream);
    streams_[stream].last_call = streams_[stream].given;
    return {stream, streams_[stream].given};
  }
  // A wait is no work, so implicit waits need not include it, though they may.
  void wait(uint32_t stream, const Clock& clock) {
    const uint64_t may = behind(stream).may;
    streams_[stream].clock.merge(clock);
    streams_[stream].clock.may |= may;
    if (!is_behind_call(stream)) streams_[stream].work.merge(clock);
  }
  Operation give(uint32_t stream) { return give(stream, begin(stream)); }

  // Whether all work that an operation in the stream would implicitly wait for, by the legacy
  // stream's rules, is known to have ended.
  [[nodiscard]] bool implies_nothing(uint32_t stream) const {
    const auto is_done = [this](uint32_t other) {
      return host_.count[other] >= streams_[other].given;
    };
    if (stream != kLegacy) return !streams_[stream].blocking || is_done(kLegacy);
    for (uint32_t other = 1; other < streams_.size(); other++) {
      if (streams_[other].blocking && !is_done(other)) return false;
    }
    return true;
  }

  // The operations that the host knows to have ended.
  [[nodiscard]] const Clock& host() const { return host_; }
  void host_waited(const Clock& clock) { host_.merge(clock); }
  // What synchronising the context waits for.
  [[nodiscard]] Clock everything() const {
    Clock clock;
    for (const Stream& stream : streams_) clock.merge(stream.clock);
    return clock;
  }

  // ---- Gates -----------------------------------------------------------------------------------

  [[nodiscard]] bool has_gates() const { return gates_.size() < kGatesEver; }
  uint32_t add_gate() {
    gates_.push_back({});
    return static_cast<uint32_t>(gates_.size()) - 1;
  }
  [[nodiscard]] bool is_open(uint32_t gate) const { return gates_[gate].open; }
  // The writer of the gate's value comes behind `clock`.
  void open(uint32_t gate, const Clock& clock) { gates_[gate] = {true, clock.may, clock.must}; }
  // The closed ones among the gates. For an open gate, those for which its writer waits.
  [[nodiscard]] uint64_t closed(const Clock& clock) const { return closed(clock.may, &Gate::may); }
  [[nodiscard]] bool is_stuck(const Clock& clock) const {
    return closed(clock.must, &Gate::must) != 0;
  }
  [[nodiscard]] bool may_open(uint32_t gate, const Clock& clock) const {
    return (closed(clock) >> gate & 1) == 0;
  }

 private:
  struct Stream {
    Clock clock;  // the clock of its last operation
    Clock work;   // this clock without host functions and the operations behind them
    bool blocking = false;

    // The work for which others wait, or may have to wait, by the legacy stream's rules.
    [[nodiscard]] Clock shown() const {
      Clock shown = work;
      shown.may |= clock.may;
      return shown;
    }
    uint32_t given = 0;
    uint32_t last_call = 0;  // the number of its last host function
  };
  struct Gate {
    bool open = false;
    uint64_t may = 0;
    uint64_t must = 0;
  };

  // Whether the next operation of the stream comes behind a host function that is not known to have
  // ended.
  [[nodiscard]] bool is_behind_call(uint32_t stream) const {
    return streams_[stream].last_call > host_.count[stream];
  }

  [[nodiscard]] uint64_t closed(uint64_t gates, uint64_t Gate::*behind) const {
    uint64_t seen = 0, found = 0;
    while ((gates & ~seen) != 0) {
      const auto index = static_cast<uint32_t>(std::countr_zero(gates & ~seen));
      seen |= 1ull << index;
      if (gates_[index].open) {
        gates |= gates_[index].*behind;
      } else {
        found |= 1ull << index;
      }
    }
    return found;
  }

  std::vector<Stream> streams_;
  std::vector<Gate> gates_;
  Clock host_;
};

}  // namespace e2e::random_order
