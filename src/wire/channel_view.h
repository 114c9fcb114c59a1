// SPDX-License-Identifier: Apache-2.0
// Typed pointers into a mapped host file. Both ends make one of the start of the mapping.
#pragma once

#include "wire/layout.h"

namespace openmps::wire {

class ChannelView {
 public:
  ChannelView() = default;
  explicit ChannelView(void* start) : start_(static_cast<unsigned char*>(start)) {}

  [[nodiscard]] ChannelHeader& header() const { return at<ChannelHeader>(kHeaderOffset); }
  [[nodiscard]] RingControl& ring_control() const { return at<RingControl>(kRingControlOffset); }
  [[nodiscard]] unsigned char* ring_data() const { return start_ + kRingOffset; }
  [[nodiscard]] ReplySlot& reply(uint32_t slot) const {
    return at<ReplySlot>(kReplyOffset + slot * kReplySlotBytes);
  }
  [[nodiscard]] FenceSlot& fence(uint32_t slot) const {
    return at<FenceSlot>(kFenceOffset + slot * kFenceSlotBytes);
  }
  [[nodiscard]] CallbackSlot& callback(uint32_t slot) const {
    return at<CallbackSlot>(kCallbackOffset + slot * sizeof(CallbackSlot));
  }
  [[nodiscard]] ExecutorState& executor() const { return at<ExecutorState>(kExecutorOffset); }
  [[nodiscard]] ValueWait& value_wait(uint32_t row) const {
    return at<ValueWait>(kValueWaitOffset + row * sizeof(ValueWait));
  }
  [[nodiscard]] PendingReturn& pending_return(uint32_t row) const {
    return at<PendingReturn>(kReturnOffset + row * sizeof(PendingReturn));
  }
  [[nodiscard]] LostEvents& lost_events() const { return at<LostEvents>(kLostEventsOffset); }
  [[nodiscard]] EventTimes& event_times() const { return at<EventTimes>(kEventTimesOffset); }
  [[nodiscard]] FencePromise& promise(uint32_t slot) const {
    return at<FencePromise>(kPromiseOffset + slot * sizeof(FencePromise));
  }
  // 1 while the worker holds so much of what the stream of a fence slot was given that the client
  // waits before it sends more work for the stream; other streams go on. Stored by the executor
  // with release, then it wakes the client.
  [[nodiscard]] std::atomic<uint32_t>& is_full(uint32_t slot) const {
    return at<std::atomic<uint32_t>>(kFullOffset + slot * sizeof(std::atomic<uint32_t>));
  }
  [[nodiscard]] unsigned char* staging() const { return start_ + kStagingOffset; }
  [[nodiscard]] OutputControl& output_control() const { return at<OutputControl>(kOutputOffset); }
  [[nodiscard]] unsigned char* output_text() const { return start_ + kOutputTextOffset; }
  [[nodiscard]] unsigned char* start() const { return start_; }

 private:
  template <typename T>
  [[nodiscard]] T& at(uint64_t offset) const {
    return *reinterpret_cast<T*>(start_ + offset);
  }
  unsigned char* start_ = nullptr;
};

}  // namespace openmps::wire
