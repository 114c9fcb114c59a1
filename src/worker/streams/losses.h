// SPDX-License-Identifier: Apache-2.0
// Streams whose work is dropped, because what they had been given was lost with the session's
// former worker (docs/decisions/0042). The loss spreads as the data would have: to streams that
// wait for lost events, and between the legacy stream and the blocking streams of its context. It
// ends when the program has been told of it (StreamAcknowledge). Fences, records, waits and wakes
// of such streams are carried out, so no wait hangs, and later values of a fence mean what they
// say. Session's thread only.
#pragma once

#include <cstdint>
#include <span>

#include "wire/commands/device.h"
#include "wire/commands/stream.h"
#include "worker/core/session_core.h"
#include "worker/streams/event.h"
#include "worker/streams/fence.h"
#include "worker/streams/stream.h"

namespace openmps::worker {

// What a worker has promised the fence slot is lost, in its next worker: waits end, and say so. For
// the caller to wake the client.
void lose_fences(const wire::ChannelView& view, uint32_t slot, uint64_t promised);
// The number of such losses (wire::FenceSlot::lost), before the session goes on.
uint32_t number_of_next_loss(const wire::ChannelView& view);

class Losses {
 public:
  Losses(SessionCore& core, Streams& streams, Events& events, Fences& fences)
      : core_(core), streams_(streams), events_(events), fences_(fences) {}

  // The session is made again in this worker: what its former one has lost is what the fence slots
  // and the list of lost events say, which the client can write to.
  void take_over();
  // How many streams the former worker has lost last.
  [[nodiscard]] uint32_t count_new() const;
  // Some stream or event is lost: the calls below are needed.
  [[nodiscard]] bool any() const { return any_; }

  // The stream is about to be given something as `entry`: whether it is lost, as it is if it would
  // have to wait for a lost stream. Throws std::bad_alloc, as the others do.
  bool is_lost(Stream& stream, Streams::Entry entry);
  // The event is recorded in the stream, which may be lost.
  void note_record(Event& event, Stream& stream);
  // The stream waits for the event, or for any events.
  void note_wait(Stream& stream, const Event& event);
  void note_wait_for_some(Stream& stream);
  // A launch that is dropped would have recorded the event.
  void note_dropped_record(const void* driver_event, const Stream& stream);
  // All later work of the context waits for the stream, which is lost.
  void spread(Stream& stream);
  // The client does not run the function of that slot.
  void drop_call(uint32_t slot);

  // The program has been told of the stream's loss, and so of those that it has waited for.
  Status handle(const wire::StreamAcknowledge& command, Stream& stream);
  Status handle(const wire::ContextFollow& command, Stream& stream);
  Status handle(const wire::ContextJoin& command, Stream& stream);

 private:
  // What one stream remembers of those that it has waited for; acknowledging a stream that has
  // waited for more ends all losses.
  static constexpr size_t kMostSources = 64;

  void lose(Stream& stream);
  void lose_by(Stream& stream, wire::Id source);
  void end(wire::Id stream);

  SessionCore& core_;
  Streams& streams_;
  Events& events_;
  Fences& fences_;
  bool any_ = false;
  uint32_t count_ = 0;  // of losses in this worker
};

}  // namespace openmps::worker
