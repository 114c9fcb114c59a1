// SPDX-License-Identifier: Apache-2.0
// How a session's streams reach the client's threads: fences that the GPU writes, wakes of sleeping
// threads, host functions that run in the client. Session's thread, except where said.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "wire/commands/device.h"
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
  // The GPU has not written some promised value.
  [[nodiscard]] bool pending(const wire::ChannelView& view) const;

 private:
  // Most sessions have few streams: memory is allocated for the slots in use.
  static constexpr uint32_t kChunk = 128;
  static_assert(wire::kFenceSlots % kChunk == 0);
  using Chunk = std::array<std::atomic<uint64_t>, kChunk>;
  [[nodiscard]] std::atomic<uint64_t>& promised(uint32_t slot) const {
    return (*chunks_[slot / kChunk])[slot % kChunk];
  }

  std::array<std::unique_ptr<Chunk>, wire::kFenceSlots / kChunk> chunks_;
  std::atomic<uint32_t> used_{0};  // slots from 0, whose chunks are there
};

class Fences {
 public:
  // `credits`: as SideStreams takes them.
  Fences(SessionCore& core, OpenWaits& waits, PerDevice<QueueCredits>* credits)
      : core_(core), waits_(waits), side_streams_(core, credits) {
    set_debt([this] { return owes_answer(); });
  }

  // Earlier commands have been executed: nothing else is to be done.
  Status handle(const wire::Ping&) { return Status(); }

  // Submitted to a stream that has been entered: write a fence; wake the client's threads.
  Status write(const FenceValue& fence, const Stream& stream);
  Status wake_after(const Stream& stream) { return side_streams_.wake_after(stream); }
  // Record an event of another device.
  Status record_after(const Stream& stream, const DriverEvent& event) {
    return side_streams_.record_after(stream, event);
  }
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
  [[nodiscard]] bool passed() { return side_streams_.idle() && waits_.passed(); }
  void release_all();

  [[nodiscard]] const FenceLedger& ledger() const { return ledger_; }

 private:
  struct Posting {
    wire::ChannelHeader* header;
    wire::CallbackSlot* slot;
  };
  static void post(void* posting);
  // Told to the watchdog, and shown by `openmps inspect`.
  Status promise(const FenceValue& fence);
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
  SideStreams side_streams_;
};

}  // namespace openmps::worker
