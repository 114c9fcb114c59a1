// SPDX-License-Identifier: Apache-2.0
// See fence.h. A stream's counter changes only under the channel's order, so points are pushed to
// the ring in the order of their values.
#include "client/link/fence.h"

#include <cstdio>
#include <cstring>

#include "api/client_hooks.h"
#include "base/mutex.h"
#include "client/debug.h"
#include "client/objects.h"
#include "wire/commands/stream.h"

namespace openmps::client {

bool Fences::open(Stream* stream) {
  const MutexLock guard(lock_);
  for (FencePoint& last : retired_) {
    // A loss of which nobody has been told is not the new stream's.
    if (!reached(last) || (has_loss(last.slot()) && used_ != wire::kFenceSlots)) continue;
    stream->fence_slot = last.slot();
    stream->sequence.store(last.value(), std::memory_order_relaxed);
    stream->visible.store(0, std::memory_order_relaxed);
    last = retired_.back();
    retired_.pop_back();
    owners_[stream->fence_slot].store(stream, std::memory_order_release);
    return true;
  }
  if (used_ == wire::kFenceSlots) return false;
  stream->fence_slot = used_++;
  stream->sequence.store(0, std::memory_order_relaxed);
  stream->visible.store(0, std::memory_order_relaxed);
  owners_[stream->fence_slot].store(stream, std::memory_order_release);
  return true;
}

CUresult Fences::close(const Channel::Order& order, Stream* stream) {
  FencePoint last;
  const CUresult result = cover(order, *stream, &last);
  const MutexLock guard(lock_);
  owners_[stream->fence_slot].store(nullptr, std::memory_order_release);
  retired_.push_back(FencePoint(stream->fence_slot, last.value()));
  return result;
}

// A wait for the legacy stream also waits for the work of blocking streams.
void Fences::note_work(Stream& stream) {
  stream.dirty.store(true, std::memory_order_relaxed);
  if (stream.kind == wire::StreamKind::kBlocking) {
    stream.context->unjoined.store(true, std::memory_order_relaxed);
  }
}

FencePoint Fences::after_staged_copy(const Channel::Order&, Stream& stream) {
  note_work(stream);
  return FencePoint(stream.fence_slot, stream.sequence.load(std::memory_order_relaxed) + 1);
}

FencePoint Fences::after_work(const Channel::Order& order, Stream& stream) {
  const FencePoint point = after_staged_copy(order, stream);
  stream.visible.store(point.value(), std::memory_order_relaxed);
  return point;
}

// A fence or event of the legacy stream makes the worker wait for the blocking streams in it.
FencePoint Fences::advance(Stream& stream) {
  const uint64_t value = stream.sequence.load(std::memory_order_relaxed) + 1;
  stream.sequence.store(value, std::memory_order_relaxed);
  stream.dirty.store(false, std::memory_order_release);
  if (stream.kind == wire::StreamKind::kLegacy) {
    stream.context->unjoined.store(false, std::memory_order_relaxed);
  }
  return FencePoint(stream.fence_slot, value);
}

FencePoint Fences::take_next(const Channel::Order&, Stream& stream) {
  const FencePoint point = advance(stream);
  stream.visible.store(point.value(), std::memory_order_relaxed);
  return point;
}

FencePoint Fences::take_next_behind_work(const Channel::Order& order, Stream& stream) {
  note_work(stream);
  return take_next(order, stream);
}

bool Fences::visible_reached(const Stream& stream) const {
  return reached(FencePoint(stream.fence_slot, stream.visible.load(std::memory_order_relaxed))) &&
         !has_loss(stream.fence_slot);
}

bool Fences::seems_idle(const Stream& stream) {
  if (!visible_reached(stream)) return false;
  if (stream.kind != wire::StreamKind::kLegacy ||
      !stream.context->unjoined.load(std::memory_order_relaxed)) {
    return true;
  }
  const Channel::Order order = channel_.order();  // no stream is destroyed meanwhile
  const MutexLock guard(lock_);
  for (uint32_t slot = 0; slot < used_; ++slot) {
    const Stream* other = owners_[slot].load(std::memory_order_acquire);
    if (other != nullptr && other->context == stream.context &&
        other->kind == wire::StreamKind::kBlocking && !visible_reached(*other)) {
      return false;
    }
  }
  return retired_done_locked();
}

CUresult Fences::cover(const Channel::Order& order, Stream& stream, FencePoint* point) {
  if (stream.kind == wire::StreamKind::kLegacy &&
      stream.context->unjoined.load(std::memory_order_relaxed)) {
    stream.dirty.store(true, std::memory_order_relaxed);
  }
  return cover_own(order, stream, point);
}

CUresult Fences::cover_in_order(const Channel::Order& order, Stream& stream, FencePoint* point) {
  *point = advance(stream);
  return channel_.push(order,
                       wire::Fence{stream.id, point->slot() | wire::kFenceInOrder, point->value()});
}

CUresult Fences::cover_own(const Channel::Order& order, Stream& stream, FencePoint* point) {
  if (!stream.dirty.load(std::memory_order_relaxed)) {
    *point = FencePoint(stream.fence_slot, stream.sequence.load(std::memory_order_relaxed));
    return CUDA_SUCCESS;
  }
  *point = advance(stream);
  return channel_.push(order, wire::Fence{stream.id, point->slot(), point->value()});
}

// WakeAfter wakes once all work of the stream has ended, so it is of use only for the last point.
bool Fences::is_last(const Stream& stream, FencePoint point) {
  return stream.sequence.load(std::memory_order_relaxed) == point.value() &&
         !stream.dirty.load(std::memory_order_relaxed);
}

CUresult Fences::force(FencePoint point) {
  if (reached(point)) return CUDA_SUCCESS;
  const Channel::Order order = channel_.order();
  // The owner can't be destroyed meanwhile: close() is called under the order.
  Stream* owner = owners_[point.slot()].load(std::memory_order_acquire);
  if (owner == nullptr || owner->sequence.load(std::memory_order_relaxed) >= point.value()) {
    return CUDA_SUCCESS;
  }
  FencePoint covering;
  return cover(order, *owner, &covering);
}

CUresult Fences::wait(FencePoint point) {
  if (reached(point)) return CUDA_SUCCESS;
  const CUresult result = force(point);
  return result == CUDA_SUCCESS ? wait_forced(point) : result;
}

CUresult Fences::wait_forced(FencePoint point) {
  if (reached(point)) return CUDA_SUCCESS;
  const std::atomic<Stream*>& owner = owners_[point.slot()];
  wire::Id stream = 0;
  if (channel_.is_traced()) {
    const Channel::Order order = channel_.order();
    const Stream* waited_for = owner.load(std::memory_order_acquire);
    if (waited_for != nullptr) stream = waited_for->id;
  }
  // Under the order no thread destroys the stream between the look at it and the command.
  const auto ask = [this, &owner, point](bool* asked) {
    const Channel::Order order = channel_.order();
    const Stream* behind = owner.load(std::memory_order_acquire);
    *asked = behind != nullptr && behind->capture.load(std::memory_order_relaxed) == 0 &&
             is_last(*behind, point);
    return *asked ? channel_.push(order, wire::WakeAfter{behind->id}) : CUDA_SUCCESS;
  };
  return channel_.wait_behind(
      stream, [this, point] { return reached(point); }, ask);
}

// ---- Lost work ----------------------------------------------------------------------------------

bool Fences::has_loss(uint32_t slot, uint32_t lost) const {
  const Told* const all = told_.load(std::memory_order_acquire);
  return all == nullptr || all[slot].number.load(std::memory_order_relaxed) != lost;
}

Fences::Told& Fences::told(const Channel::Order&, uint32_t slot) {
  Told* all = told_.load(std::memory_order_relaxed);
  if (all == nullptr) {
    all = new Told[wire::kFenceSlots];
    told_.store(all, std::memory_order_release);
  }
  return all[slot];
}

// False: there is no loss, or the program has been told.
bool Fences::acknowledge(uint32_t slot) {
  const Channel::Order order = channel_.order();
  const wire::FenceSlot& fence = channel_.view().fence(slot);
  const uint32_t lost = fence.lost.load(std::memory_order_acquire);
  if (lost == 0 || !has_loss(slot, lost)) return false;
  const Stream* const owner = owners_[slot].load(std::memory_order_acquire);
  Told& one = told(order, slot);
  one.number.store(lost, std::memory_order_relaxed);
  one.from.store(fence.good.load(std::memory_order_relaxed), std::memory_order_relaxed);
  one.to.store(owner != nullptr ? owner->sequence.load(std::memory_order_relaxed)
                                : fence.value.load(std::memory_order_relaxed),
               std::memory_order_relaxed);
  // If the session has ended the next call says so.
  if (owner != nullptr) static_cast<void>(channel_.push(order, wire::StreamAcknowledge{owner->id}));
  return true;
}

// For OPENMPS_DEBUG, and the log of failed calls.
void Fences::explain_loss() const {
  const wire::ChannelHeader& header = channel_.view().header();
  char culprit[wire::kCulpritBytes];
  memcpy(culprit, header.culprit, sizeof(culprit));
  culprit[sizeof(culprit) - 1] = 0;
  char text[wire::kCulpritBytes + 64];
  snprintf(text, sizeof(text), "work of a stream was lost with another process's fault%s%s",
           culprit[0] != 0 ? ": " : "", culprit);
  debug_line("%s", text);
  explain_failure(text);
}

CUresult Fences::tell_of_loss(FencePoint point) {
  if (!is_lost(point) || !acknowledge(point.slot())) return CUDA_SUCCESS;
  explain_loss();
  return CUDA_ERROR_LAUNCH_FAILED;
}

CUresult Fences::tell(std::span<const FencePoint> points) {
  std::vector<FencePoint> retired;
  {
    const MutexLock guard(lock_);
    for (const FencePoint point : retired_) {
      if (has_loss(point.slot())) retired.push_back(point);
    }
  }
  CUresult result = CUDA_SUCCESS;
  for (const std::span<const FencePoint> some : {points, std::span<const FencePoint>(retired)}) {
    for (const FencePoint point : some) {
      if (const CUresult told = tell(point); told != CUDA_SUCCESS) result = told;
    }
  }
  if (result == CUDA_SUCCESS) return result;
  // Streams that have only waited for what is lost have been told of it, too.
  for (const FencePoint point : points) static_cast<void>(acknowledge(point.slot()));
  return result;
}

CUresult Fences::wait_for_retired() {
  std::vector<FencePoint> points;
  {
    const MutexLock guard(lock_);
    points = retired_;
  }
  for (const FencePoint point : points) {
    const CUresult result = wait(point);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

bool Fences::retired_done() {
  const MutexLock guard(lock_);
  return retired_done_locked();
}

bool Fences::retired_done_locked() const {
  for (const FencePoint point : retired_) {
    if (!reached(point)) return false;
  }
  return true;
}

}  // namespace openmps::client
