// SPDX-License-Identifier: Apache-2.0
// Who may queue work behind work that runs. A context has 32 hardware queues at most: a stream
// whose next item can't start holds one, and while all are held every other stream stands,
// whatever its priority (measured on an H200, decision 23). A lone running kernel holds none, nor
// does a graph. So at most 28 streams of a device's shared context queue anything behind their
// running work, or waits on the GPU for something else; the others are given one item at a time,
// and the right goes round.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace openmps::worker {

// Of one device. Thread-safe.
class QueueCredits {
 public:
  // Hardware queues for what has no right: fences of legacy streams, threads of clients that are
  // woken, graphs that wait inside.
  static constexpr int32_t kSpare = 4;

  // So many hardware queues has the context. Before anybody takes a right.
  void set_queues(uint32_t queues) {
    most_ = std::max(1, static_cast<int32_t>(queues) - kSpare);
    free_ = most_;
  }
  [[nodiscard]] int32_t most() const { return most_; }
  // Only so many are for work of which it is not known that what is before it ends soon: the others
  // are for what goes quickly.
  [[nodiscard]] int32_t most_unsure() const { return most_ - most_ / 2; }
  // There are such others: rights that always come back before long. A device of one right has
  // none.
  [[nodiscard]] bool keeps_some() const { return most_unsure() < most_; }

  // Take the right for a stream, which gives it back. `has_waited`: it has said so before; others
  // leave the free ones to those. `soon`: it is known that it comes back before long; who does not
  // know that waits for all.
  [[nodiscard]] bool take(bool has_waited, bool soon) {
    const int32_t others = soon ? waiting_soon_.load(std::memory_order_relaxed) : waiting();
    const int32_t left = (has_waited ? 0 : others) + (soon ? 0 : most_ / 2);
    int32_t free = free_.load(std::memory_order_relaxed);
    while (free > left) {
      if (free_.compare_exchange_weak(free, free - 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void give() { free_.fetch_add(1, std::memory_order_relaxed); }

  // Of the streams with a right so many may wait at a time for something else than their own work,
  // which nobody knows the end of. Who gets none is let wait in the worker.
  [[nodiscard]] bool open_wait() {
    int32_t open = open_waits_.load(std::memory_order_relaxed);
    while (open < most_unsure()) {
      if (open_waits_.compare_exchange_weak(open, open + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  void close_wait() { open_waits_.fetch_sub(1, std::memory_order_relaxed); }

  void begin_to_wait(bool soon) { waiting_for(soon).fetch_add(1, std::memory_order_relaxed); }
  void end_waiting(bool soon) { waiting_for(soon).fetch_sub(1, std::memory_order_relaxed); }
  // Who has the right should give it back before long.
  [[nodiscard]] bool are_wanted() const { return waiting() > 0; }

 private:
  std::atomic<int32_t>& waiting_for(bool soon) { return soon ? waiting_soon_ : waiting_long_; }
  [[nodiscard]] int32_t waiting() const {
    return waiting_soon_.load(std::memory_order_relaxed) +
           waiting_long_.load(std::memory_order_relaxed);
  }

  int32_t most_ = 28;
  std::atomic<int32_t> free_{most_};
  std::atomic<int32_t> waiting_soon_{0};
  std::atomic<int32_t> waiting_long_{0};
  std::atomic<int32_t> open_waits_{0};
};

// The streams of one session that wait so on one device. Session's thread.
class WaitCredits {
 public:
  // Natively the eighth stops all other streams of its program (measured, default number of
  // queues): nobody can need more.
  static constexpr uint32_t kMost = 7;

  [[nodiscard]] bool take(QueueCredits& connections) {
    if (taken_ == kMost || !connections.open_wait()) return false;
    ++taken_;
    return true;
  }
  void give(QueueCredits& connections) {
    --taken_;
    connections.close_wait();
  }
  // The streams that are refused one, and ask from time to time what they wait for.
  void begin_refusal() { ++refused_; }
  void end_refusal() { --refused_; }
  [[nodiscard]] uint32_t refused() const { return refused_; }

 private:
  uint32_t taken_ = 0;
  uint32_t refused_ = 0;
};

}  // namespace openmps::worker
