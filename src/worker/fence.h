// SPDX-License-Identifier: Apache-2.0
// How a session's streams speak to the client's threads: fences that the GPU writes, wakes for
// those who sleep, host functions that run in the client, and the values that programs themselves
// write and wait for (cuStreamWriteValue, cuStreamWaitValue). Session's thread, except where said.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "worker/event.h"
#include "worker/memory.h"
#include "worker/open_waits.h"
#include "worker/session_core.h"
#include "worker/stream.h"
#include "worker/waker.h"

namespace openmps::worker {

// Bump the session's wake word and wake the client's threads, if any waits. Any thread.
void wake_client(wire::ChannelHeader& header);

// What has been promised to the fence slots. Written by the session's thread, read by the watchdog.
class FenceLedger {
 public:
  FenceLedger() : promised_(std::make_unique<std::atomic<uint64_t>[]>(wire::kFenceSlots)) {}
  void promise(uint32_t slot, uint64_t value);
  // Some fence has not been reached.
  [[nodiscard]] bool pending(const wire::ChannelView& view) const;

 private:
  std::unique_ptr<std::atomic<uint64_t>[]> promised_;
  std::atomic<uint32_t> used_{0};  // slots from 0
};

class Fences {
 public:
  Fences(SessionCore& core, Streams& streams, Events& events, SessionMemory& memory,
         OpenWaits& waits)
      : core_(core), streams_(streams), events_(events), memory_(memory), waits_(waits) {
    set_debt(owes_answer);
  }

  // What came before it has been given to the driver: nothing more is asked.
  Status handle(const wire::Ping&) { return Status(); }
  Status handle(const wire::Fence& command, Stream& stream);
  // A record that may carry a fence.
  Status handle(const wire::EventRecord& command, Event& event, Stream& stream);
  Status handle(const wire::WakeAfter& command, Stream& stream);
  // Post the slot to the client's callback thread; the stream goes on when that has run it.
  Status handle(const wire::HostFunction& command, Stream& stream);
  // What posts that slot from a graph, which then waits for it by itself.
  [[nodiscard]] CUDA_HOST_NODE_PARAMS posting(uint32_t slot);
  // Operands that are not the session's are violations.
  Status handle(const wire::StreamWriteValue& command, Stream& stream);
  Status handle(const wire::StreamWaitValue& command, Stream& stream);
  Status handle(const wire::StreamBatch& command, Stream& stream,
                const wire::StreamBatch::Tail& tail);

  // The client has gone: let every stream pass that waits for it. Called again and again while the
  // session drains, because each wait that passes may uncover the next. True: one has passed.
  bool pass_all_waits();
  // What pass_all_waits() wrote has arrived and no wake is under way: the memory that they name may
  // go.
  [[nodiscard]] bool passed() { return wakers_.idle() && waits_.passed(); }
  void release_all();

  [[nodiscard]] const FenceLedger& ledger() const { return ledger_; }

 private:
  // Write value to the slot once the stream, which has been entered, has come here.
  Status write(wire::Id id, Stream& stream, uint32_t slot, uint64_t value);
  Status value(Stream& stream, const wire::ValueOperation& operation);
  template <typename F>
  Status submit(Stream& stream, std::span<const wire::ValueOperation> operations, F&& f);
  Status remember(const Stream& stream, std::span<const wire::ValueOperation> operations);
  struct Posting {
    wire::ChannelHeader* header;
    wire::CallbackSlot* slot;
  };
  static void post(void* posting);
  void set_debt(bool (*owes)(const void*));
  // A host function has been posted that the client has not run. Any thread.
  static bool owes_answer(const void* fences);

  SessionCore& core_;
  Streams& streams_;
  Events& events_;
  SessionMemory& memory_;
  OpenWaits& waits_;
  FenceLedger ledger_;
  std::atomic<uint32_t> callbacks_used_{0};  // slots from 0
  std::unique_ptr<Posting[]> postings_;      // by slot, made at first use
  Wakers wakers_{core_};
};

}  // namespace openmps::worker
