// SPDX-License-Identifier: Apache-2.0
// Completion. Every stream owns a fence slot in shared memory to which the GPU writes growing
// numbers. Whether work has ended is then one comparison, for streams, events, staging pieces and
// deferred frees. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "client/link/channel.h"
#include "cuda/abi.h"

namespace openmps::client {

struct Stream;

// A position in a stream's work, reached once the fence slot holds at least the value. Packed into
// one word, so threads exchange it atomically. The default one is always reached.
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
  static_assert(kSlots == wire::kFenceSlots, "a point can name any slot");
  uint64_t bits_ = 0;  // 52 bits of value: 285 years at a million fences per second
};

class Fences {
 public:
  explicit Fences(Channel& channel) : channel_(channel) {}

  // Gives a new stream its slot. False: all slots are taken (wire::kFenceSlots live streams).
  [[nodiscard]] bool open(Stream* stream);
  // The stream is about to be destroyed: pushes a fence behind its work, and keeps the slot until
  // that fence is reached.
  [[nodiscard]] CUresult close(const Channel::Order& order, Stream* stream);

  // Work was pushed to the stream: returns the point that will cover the work. No fence is pushed
  // yet; force() pushes one.
  FencePoint after_work(const Channel::Order& order, Stream& stream);
  // As after_work(), for a copy out of a staging piece, which the program does not see.
  FencePoint after_staged_copy(const Channel::Order& order, Stream& stream);
  // A point that covers all work pushed to the stream so far; its fence is pushed. For the legacy
  // stream that includes the work of the context's blocking streams.
  [[nodiscard]] CUresult cover(const Channel::Order& order, Stream& stream, FencePoint* point);
  // As cover(), and the point also covers what work pushed to the stream now would wait for in
  // other streams.
  [[nodiscard]] CUresult cover_in_order(const Channel::Order& order, Stream& stream,
                                        FencePoint* point);
  // As cover(), without the work of blocking streams, for callers that cover each of them.
  [[nodiscard]] CUresult cover_own(const Channel::Order& order, Stream& stream, FencePoint* point);
  // The next point of the stream, for a command that writes the fence itself (an event record).
  FencePoint take_next(const Channel::Order& order, Stream& stream);
  // As take_next(), for a command that is work as well (a host function).
  FencePoint take_next_behind_work(const Channel::Order& order, Stream& stream);
  // All work that cover() would cover has ended, apart from copies that the program does not see.
  [[nodiscard]] bool seems_idle(const Stream& stream);

  [[nodiscard]] bool reached(FencePoint point) const {
    const wire::FenceSlot& fence = channel_.view().fence(point.slot());
    if (fence.value.load(std::memory_order_acquire) < point.value()) return false;
    if (const uint32_t lost = fence.lost.load(std::memory_order_relaxed); lost != 0) [[unlikely]] {
      if (is_undecided(lost) && point.value() > fence.good.load(std::memory_order_relaxed)) {
        return false;
      }
    }
    // Pairs with host_function_ran().
    static_cast<void>(host_functions_.load(std::memory_order_acquire));
    return true;
  }
  // ---- Work that was lost with the session's former worker (wire::FenceSlot) ----
  // The point, which is reached, covers work that has not been carried out.
  [[nodiscard]] bool is_lost(FencePoint point) const {
    const wire::FenceSlot& fence = channel_.view().fence(point.slot());
    if (fence.lost.load(std::memory_order_acquire) != 0 &&
        point.value() > fence.good.load(std::memory_order_relaxed)) {
      return true;
    }
    const Told* const all = told_.load(std::memory_order_acquire);
    return all != nullptr && all[point.slot()].covers(point.value());
  }
  // Nothing has to wait for the point any more.
  [[nodiscard]] bool is_over(FencePoint point) const { return reached(point) && !is_lost(point); }
  // The program learns that the point is reached. CUDA_ERROR_LAUNCH_FAILED, once for each loss:
  // work that the point covers is lost. Later work of the stream is carried out again.
  [[nodiscard]] CUresult tell(FencePoint point) {
    const wire::FenceSlot& fence = channel_.view().fence(point.slot());
    if (fence.lost.load(std::memory_order_acquire) == 0) [[likely]] {
      return CUDA_SUCCESS;
    }
    return tell_of_loss(point);
  }
  // As tell(), of all points and of streams that are destroyed, once for all of them.
  [[nodiscard]] CUresult tell(std::span<const FencePoint> points);
  // The stream of that slot has lost work of which the program has not been told.
  [[nodiscard]] bool has_loss(uint32_t slot) const {
    const uint32_t lost = channel_.view().fence(slot).lost.load(std::memory_order_acquire);
    return lost != 0 && has_loss(slot, lost);
  }

  // A host function has run, and its stream has not been told yet. The worker and the GPU write the
  // fences behind it, and their stores release nothing of this process's memory: this call makes
  // what the function stored visible to each thread that sees such a point reached.
  void host_function_ran() { host_functions_.fetch_add(1, std::memory_order_release); }
  // Pushes a fence for the point, unless one is pushed already.
  [[nodiscard]] CUresult force(FencePoint point);
  // force(), then blocks until the point is reached.
  [[nodiscard]] CUresult wait(FencePoint point);
  // Blocks until the point is reached; its fence is pushed. The stream may be destroyed meanwhile.
  [[nodiscard]] CUresult wait_forced(FencePoint point);
  // Blocks until the work of all destroyed streams has ended.
  [[nodiscard]] CUresult wait_for_retired();
  [[nodiscard]] bool retired_done();

 private:
  // The last loss of a slot's stream of which the program has been told: its number, and the values
  // that cover lost work, above `from` and up to `to`.
  struct Told {
    std::atomic<uint32_t> number{0};
    std::atomic<uint64_t> from{0};
    std::atomic<uint64_t> to{0};
    [[nodiscard]] bool covers(uint64_t value) const {
      return value > from.load(std::memory_order_relaxed) &&
             value <= to.load(std::memory_order_relaxed);
    }
  };
  // The worker is lost, and the server has neither moved nor ended the session yet.
  [[nodiscard]] bool is_undecided(uint32_t lost) const {
    return wire::is_of_later_generation(
        lost, channel_.view().header().generation.load(std::memory_order_acquire));
  }
  [[nodiscard]] CUresult tell_of_loss(FencePoint point);
  [[nodiscard]] bool has_loss(uint32_t slot, uint32_t lost) const;
  bool acknowledge(uint32_t slot);
  void explain_loss() const;
  [[nodiscard]] Told& told(const Channel::Order& order, uint32_t slot);
  static void note_work(Stream& stream);
  static FencePoint advance(Stream& stream);
  static bool is_last(const Stream& stream, FencePoint point);
  [[nodiscard]] bool visible_reached(const Stream& stream) const;
  [[nodiscard]] bool retired_done_locked() const REQUIRES(lock_);

  Channel& channel_;
  std::atomic<uint64_t> host_functions_{0};  // how many have run
  Mutex lock_{LockRank::kClientFences};
  uint32_t used_ GUARDED_BY(lock_) = 0;  // slots from here on were never used
  // Slots without a stream, free once their last point is reached.
  std::vector<FencePoint> retired_ GUARDED_BY(lock_);
  std::atomic<Stream*> owners_[wire::kFenceSlots] = {};
  // By slot; null: nothing was ever lost. Written under the channel's order, never freed.
  std::atomic<Told*> told_{nullptr};
};

}  // namespace openmps::client
