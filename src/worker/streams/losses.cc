// SPDX-License-Identifier: Apache-2.0
// See losses.h.
#include "worker/streams/losses.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace openmps::worker {

uint32_t number_of_next_loss(const wire::ChannelView& view) {
  return wire::number_of_loss(view.header().generation.load(std::memory_order_relaxed) + 1, 0);
}

// An older loss of which the program has not been told begins earlier. The value comes last:
// whoever sees it sees that it is lost.
void lose_fences(const wire::ChannelView& view, uint32_t slot, uint64_t promised) {
  wire::FenceSlot& fence = view.fence(slot);
  const uint64_t value = fence.value.load(std::memory_order_acquire);
  if (fence.lost.load(std::memory_order_relaxed) == 0) {
    fence.good.store(value, std::memory_order_relaxed);
    fence.lost.store(number_of_next_loss(view), std::memory_order_release);
  }
  if (value < promised) fence.value.store(promised, std::memory_order_release);
}

void Losses::take_over() {
  streams_.streams().for_each([this](Stream& stream) {
    if (core_.view.fence(stream.fence_slot).lost.load(std::memory_order_acquire) == 0) return;
    if (stream.loss == nullptr) stream.loss = std::make_unique<Loss>();
    any_ = true;
  });
  wire::LostEvents& list = core_.view.lost_events();
  const uint32_t count = list.count.exchange(0, std::memory_order_acquire);
  if (count == 0) return;
  const wire::Id all = count > wire::kMostLostEvents ? kSomeStream : 0;
  events_.events().for_each([all](Event& event) { event.lost_in = all; });
  for (uint32_t i = 0; i < std::min(count, wire::kMostLostEvents); ++i) {
    const wire::LostEvent& lost = list.events[i];
    Event* event = events_.events().find(lost.event.load(std::memory_order_relaxed));
    if (event != nullptr) {
      const wire::Id stream = lost.stream.load(std::memory_order_relaxed);
      event->lost_in = stream != 0 ? stream : kSomeStream;
    }
  }
  any_ = true;
}

uint32_t Losses::count_new() const {
  uint32_t count = 0;
  const uint32_t number = number_of_next_loss(core_.view);
  streams_.streams().for_each([&](const Stream& stream) {
    count += core_.view.fence(stream.fence_slot).lost.load(std::memory_order_relaxed) == number;
  });
  return count;
}

// The values that were promised before are reached: what the stream was given until now is carried
// out.
void Losses::lose(Stream& stream) {
  if (stream.loss != nullptr) return;
  stream.loss = std::make_unique<Loss>();
  any_ = true;
  wire::FenceSlot& fence = core_.view.fence(stream.fence_slot);
  if (fence.lost.load(std::memory_order_relaxed) != 0) return;  // not told yet
  const uint64_t value = fence.value.load(std::memory_order_acquire);
  fence.good.store(std::max(value, fences_.ledger().promised(stream.fence_slot)),
                   std::memory_order_relaxed);
  fence.lost.store(wire::number_of_loss(
                       core_.view.header().generation.load(std::memory_order_relaxed), ++count_),
                   std::memory_order_release);
}

void Losses::lose_by(Stream& stream, wire::Id source) {
  if (stream.id == source) return;
  lose(stream);
  Loss& loss = *stream.loss;
  if (std::ranges::find(loss.sources, source) != loss.sources.end()) return;
  if (loss.sources.size() < kMostSources && source != kSomeStream) {
    loss.sources.push_back(source);
  } else {
    loss.has_more_sources = true;
  }
}

bool Losses::is_lost(Stream& stream, Streams::Entry entry) {
  const ClientContext& context = *stream.context;
  if (stream.kind == wire::StreamKind::kLegacy) {
    streams_.streams().for_each([&](const Stream& other) {
      if (other.loss != nullptr && other.context == &context &&
          other.kind == wire::StreamKind::kBlocking) {
        lose_by(stream, other.id);
      }
    });
  } else if (stream.kind == wire::StreamKind::kBlocking && entry != Streams::Entry::kFence &&
             context.legacy != nullptr && context.legacy->loss != nullptr) {
    lose_by(stream, context.legacy->id);
  }
  return stream.loss != nullptr;
}

void Losses::note_record(Event& event, Stream& stream) {
  event.lost_in = is_lost(stream, Streams::Entry::kRecord) ? stream.id : 0;
}

void Losses::note_wait(Stream& stream, const Event& event) {
  if (event.lost_in != 0) lose_by(stream, event.lost_in);
}

void Losses::note_wait_for_some(Stream& stream) {
  events_.events().for_each([&](const Event& event) { note_wait(stream, event); });
}

void Losses::note_dropped_record(const void* driver_event, const Stream& stream) {
  events_.events().for_each([&](Event& event) {
    if (event.driver_event.get() == driver_event) event.lost_in = stream.id;
  });
}

void Losses::spread(Stream& stream) {
  streams_.streams().for_each([&](Stream& other) {
    if (other.context == stream.context) lose_by(other, stream.id);
  });
}

void Losses::drop_call(uint32_t slot) {
  core_.view.callback(slot).posted.store(wire::kCallbackDropped, std::memory_order_release);
  wake_client(core_.view.header());
}

void Losses::end(wire::Id id) {
  std::vector<wire::Id> left{id};
  while (!left.empty()) {
    const wire::Id next = left.back();
    left.pop_back();
    events_.events().for_each([next](Event& event) {
      if (event.lost_in == next) event.lost_in = 0;
    });
    Stream* const stream = streams_.streams().find(next);
    if (stream == nullptr || stream->loss == nullptr) continue;
    const std::unique_ptr<Loss> ended = std::move(stream->loss);
    left.insert(left.end(), ended->sources.begin(), ended->sources.end());
    if (!ended->has_more_sources) continue;
    streams_.streams().for_each([](Stream& other) { other.loss.reset(); });
    events_.events().for_each([](Event& event) { event.lost_in = 0; });
  }
}

Status Losses::handle(const wire::StreamAcknowledge&, Stream& stream) {
  core_.view.fence(stream.fence_slot).lost.store(0, std::memory_order_release);
  if (!any_) return Status();
  end(stream.id);
  any_ = false;
  streams_.streams().for_each([this](const Stream& other) { any_ |= other.loss != nullptr; });
  // With the last stream the loss of events ends whose stream is not known.
  events_.events().for_each([this](Event& event) {
    if (event.lost_in == kSomeStream && !any_) event.lost_in = 0;
  });
  events_.events().for_each([this](const Event& event) { any_ |= event.lost_in != 0; });
  return Status();
}

Status Losses::handle(const wire::ContextFollow&, Stream& stream) {
  if (any_ && is_lost(stream, Streams::Entry::kRecord)) [[unlikely]]
    spread(stream);
  return streams_.follow(stream);
}

Status Losses::handle(const wire::ContextJoin& command, Stream& stream) {
  if (any_) [[unlikely]] {
    streams_.streams().for_each([&](const Stream& other) {
      if (other.loss != nullptr && streams_.is_of(other, command.context)) {
        lose_by(stream, other.id);
      }
    });
  }
  return streams_.join(command, stream);
}

}  // namespace openmps::worker
