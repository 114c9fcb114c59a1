// SPDX-License-Identifier: Apache-2.0
// How a session's streams reach the client's threads: fences that the GPU writes, wakes of sleeping
// threads, host functions that run in the client. Session's thread, except where said.
//
// Some of this is done in side streams, which wait by an event until the client's stream has come
// to some point. Wakes: in the client's stream the host function that wakes would hold up the work
// behind it until a thread of the driver has run, 15-45 us (decision 1). A wake that waits in a
// side stream occupies a hardware queue: where these are short the wake goes into the client's
// stream all the same (decision 23). Records of an event of another device: the driver takes them
// in streams of that device alone, but an event of another process is one of the device that was
// current when it was opened.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "wire/commands/device.h"
#include "worker/admission/queue_credits.h"
#include "worker/core/session_core.h"
#include "worker/streams/open_waits.h"
#include "worker/streams/side_streams.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

// A value for a fence slot.
struct FenceValue {
  uint32_t slot = wire::kNoFence;
  uint64_t value = 0;
  wire::Id stream = 0;  // as the client is told
};

// What has been promised to the fence slots. Written by the session's thread, read by the watchdog.
class FenceLedger {
 public:
  void promise(uint32_t slot, uint64_t value);
  // The sum of the values that the GPU has written: it grows with each.
  [[nodiscard]] uint64_t reached(const wire::ChannelView& view) const;
  // The GPU has not written some promised value.
  [[nodiscard]] bool pending(const wire::ChannelView& view) const;
  // What a look found in a slot, and since when it has been so.
  struct Seen {
    uint64_t value = 0;
    bool is_awaited = false;  // a greater value was promised
    uint64_t since_ns = 0;
  };
  // Look at all slots, at that time. Returns since when one that is awaited has not moved; 0: none
  // is awaited.
  uint64_t look(const wire::ChannelView& view, uint64_t now, std::vector<Seen>* seen) const;
  // The largest value that was promised to the slot; 0: none.
  [[nodiscard]] uint64_t promised(uint32_t slot) const {
    return promised_[slot].load(std::memory_order_relaxed);
  }
  // Slots from this one on have never been promised a value.
  [[nodiscard]] uint32_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<std::atomic<uint64_t>[]> promised_ =
      std::make_unique<std::atomic<uint64_t>[]>(wire::kFenceSlots);
  std::atomic<uint32_t> used_{0};  // slots from 0
};

class Fences {
 public:
  // `credits`: null: hardware queues are not counted.
  Fences(SessionCore& core, OpenWaits& waits, PerDevice<QueueCredits>* credits)
      : core_(core), waits_(waits), credits_(credits) {
    set_debt([this] { return owes_answer(); });
  }

  // Earlier commands have been executed: nothing else is to be done.
  Status handle(const wire::Ping&) { return Status(); }

  // Submitted to a stream that has been entered: write a fence; wake the client's threads.
  Status write(const FenceValue& fence, const Stream& stream);
  Status wake_after(const Stream& stream);
  // Record an event that may be of another device.
  Status record_after(const Stream& stream, const DriverEvent& event);
  // As well: have the client's callback thread call a function, if `asks`; wait for that and write
  // a fence, unless `then` is null. The second may come after the client has run the function.
  Status call(uint32_t slot, bool asks, const FenceValue* then, const Stream& stream);
  // The node that posts that slot from a graph, whose next node waits for the answer.
  [[nodiscard]] CUDA_HOST_NODE_PARAMS posting(uint32_t slot);
  // The client has gone: let every stream pass that waits for it. Called again and again while the
  // session drains, because each wait that passes may uncover the next. True: one has passed.
  bool pass_all_waits();
  // The writes of pass_all_waits() have ended and no wake is under way: the memory that they name
  // may go.
  [[nodiscard]] bool passed() { return sides_.idle() && waits_.passed(); }
  void release_all();

  [[nodiscard]] const FenceLedger& ledger() const { return ledger_; }
  // The value will be written, or the session is handed over before that.
  void promise(const FenceValue& fence);

 private:
  struct Posting {
    wire::ChannelHeader* header;
    wire::CallbackSlot* slot;
  };
  static void post(void* posting);
  // What a wake from a side stream needs, and the event that it waits for.
  struct Waking {
    wire::ChannelHeader* header = nullptr;
    QueueCredits* credits = nullptr;  // of its device, to give its credit back; null: it has none
  };
  static void wake(void* waking);
  // A wake by a side stream occupies a hardware queue. Empty: few are left.
  [[nodiscard]] std::optional<QueueCredit> take_credit(uint32_t device);
  // `side` waits for the earlier work of the stream, whose context is current.
  Status come_behind(CUstream side, const Stream& stream);
  // Before and after the driver is given a fence. What is promised is told to the watchdog, and
  // shown by `openmps inspect`.
  Status prepare(const FenceValue& fence);
  // `awaited`: the GPU waits for the answer. Otherwise only the worker does (decision 14).
  void note_used(uint32_t slot, bool awaited);
  void set_debt(const std::function<bool()>& owes);
  // A host function has been posted that the client has not run, and streams wait for that. Any
  // thread.
  [[nodiscard]] bool owes_answer() const;

  SessionCore& core_;
  OpenWaits& waits_;
  FenceLedger ledger_;
  std::atomic<uint32_t> callbacks_used_{0};  // slots from 0
  std::array<std::atomic<bool>, wire::kCallbackSlots> awaited_{};
  std::unique_ptr<Posting[]> postings_;  // by slot, made at first use
  PerDevice<QueueCredits>* const credits_;
  // So many waits, such as sleeping threads of a client, do not delay each other; further ones
  // share a stream.
  SideStreams sides_{core_, 8};
  std::array<Waking, wire::kMaxDevices> wakings_{};                   // by device
  std::array<std::unique_ptr<DriverEvent>, wire::kMaxDevices> ends_;  // that side streams wait for
};

}  // namespace openmps::worker
