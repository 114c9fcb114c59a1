// SPDX-License-Identifier: Apache-2.0
// Completion. Every stream owns a fence slot in shared memory to which the GPU writes growing
// numbers; "has this finished?" is then one comparison, for streams, events, staging pieces and
// deferred frees alike. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "client/link/channel.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Stream;

// A moment in a stream's work: reached once the slot holds at least the value. Packed into one word
// so that threads exchange it atomically. Zero is reached since ever.
class FencePoint {
 public:
  FencePoint() = default;
  FencePoint(uint32_t slot, uint64_t value) : bits_(value << kSlotBits | slot) {}
  static FencePoint from_bits(uint64_t bits) {
    FencePoint point;
    point.bits_ = bits;
    return point;
  }
  [[nodiscard]] uint64_t bits() const { return bits_; }
  [[nodiscard]] uint32_t slot() const { return static_cast<uint32_t>(bits_ & (kSlots - 1)); }
  [[nodiscard]] uint64_t value() const { return bits_ >> kSlotBits; }

 private:
  static constexpr uint32_t kSlotBits = 12;
  static constexpr uint64_t kSlots = 1u << kSlotBits;
  static_assert(kSlots == wire::kFenceSlots, "a point names any slot");
  uint64_t bits_ = 0;  // 52 bits of value: 285 years at a million fences per second
};

class Fences {
 public:
  explicit Fences(Channel& channel) : channel_(channel) {}

  // Give a new stream its slot. False: all slots are taken (wire::kFenceSlots live streams).
  [[nodiscard]] bool open(Stream* stream);
  // The stream is about to be destroyed: fence what it still does, retire its slot until then.
  [[nodiscard]] CUresult close(const Channel::Order& order, Stream* stream);

  // Work was pushed to the stream: the point that will cover it. No fence is pushed yet; whoever
  // wants to wait calls force() first.
  FencePoint after_work(const Channel::Order& order, Stream& stream);
  // The same of a copy out of a staging piece.
  FencePoint after_staged_copy(const Channel::Order& order, Stream& stream);
  // A point that covers everything pushed to the stream so far, with its fence under way. Of the
  // legacy stream that includes the work of its context's blocking streams.
  [[nodiscard]] CUresult cover(const Channel::Order& order, Stream& stream, FencePoint* point);
  // The same, and all that work pushed to the stream now would wait for in other streams.
  [[nodiscard]] CUresult cover_in_order(const Channel::Order& order, Stream& stream,
                                        FencePoint* point);
  // cover() without the blocking streams' work, for those who cover them all.
  [[nodiscard]] CUresult cover_own(const Channel::Order& order, Stream& stream, FencePoint* point);
  // The next point of the stream for a command that is itself a fence (an event record).
  FencePoint take_next(const Channel::Order& order, Stream& stream);
  // The same for one that is work as well (a host function).
  FencePoint take_next_behind_work(const Channel::Order& order, Stream& stream);
  // Everything that cover() would cover has ended, as far as the program can see.
  [[nodiscard]] bool seems_idle(const Stream& stream);

  [[nodiscard]] bool reached(FencePoint point) const {
    const uint64_t value =
        channel_.view().fence(point.slot()).value.load(std::memory_order_acquire);
    if (value < point.value()) return false;
    // Pairs with host_function_ran().
    static_cast<void>(host_functions_.load(std::memory_order_acquire));
    return true;
  }
  // A host function of some stream has run, its stream has not been told yet. Points behind it are
  // reached by way of the worker and the GPU, whose stores are no releases of this process's
  // memory: this makes what the function did visible to whoever sees such a point reached.
  void host_function_ran() { host_functions_.fetch_add(1, std::memory_order_release); }
  // See to it that a fence for the point is under way.
  [[nodiscard]] CUresult force(FencePoint point);
  // force() and block until reached.
  [[nodiscard]] CUresult wait(FencePoint point);
  // Block until reached; a fence for it is under way. The stream may be destroyed meanwhile.
  [[nodiscard]] CUresult wait_forced(FencePoint point);
  // Everything that destroyed streams still do.
  [[nodiscard]] CUresult wait_for_retired();
  [[nodiscard]] bool retired_done();

 private:
  static void note_work(Stream& stream);
  static FencePoint advance(Stream& stream);
  static bool is_last(const Stream& stream, FencePoint point);
  [[nodiscard]] bool visible_reached(const Stream& stream) const;
  [[nodiscard]] bool retired_done_locked() const REQUIRES(lock_);

  Channel& channel_;
  std::atomic<uint64_t> host_functions_{0};  // that have run
  Mutex lock_{LockRank::kClientFences};
  uint32_t used_ GUARDED_BY(lock_) = 0;  // slots 0..used_-1 have been given out
  // Slots without a stream, free once their last point is reached.
  std::vector<FencePoint> retired_ GUARDED_BY(lock_);
  std::atomic<Stream*> owners_[wire::kFenceSlots] = {};
};

}  // namespace openmps::client
