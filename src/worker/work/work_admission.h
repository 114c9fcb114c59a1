// SPDX-License-Identifier: Apache-2.0
// Asks for the admission of a piece of work (admission/admission.h): says what each kind of work
// costs the device and which conditions it has. Session's thread only.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>

#include "worker/admission/admission.h"
#include "worker/core/session_core.h"
#include "worker/streams/device_words.h"
#include "worker/streams/stream.h"
#include "worker/work/work.h"

namespace openmps::worker {

// The work takes the GPU's time.
template <typename What>
constexpr bool takes_time() {
  return std::same_as<What, KernelWork> || std::same_as<What, CopyWork> ||
         std::same_as<What, BoxWork> || std::same_as<What, FillWork> ||
         std::same_as<What, GraphWork>;
}

// As what the work enters its stream.
template <typename What>
constexpr Streams::Entry entry_of(const What& what) {
  using Entry = Streams::Entry;
  if constexpr (std::same_as<What, FenceWork>) {
    return what.in_order ? Entry::kRecord : Entry::kFence;
  } else if constexpr (std::same_as<What, WakeWork>) {
    return Entry::kFence;
  } else {
    return std::same_as<What, RecordWork> ? Entry::kRecord : Entry::kWork;
  }
}

// How far the words in device memory that held work waits for have been seen: the operation whose
// word is looked at now, and the place where the word is read.
struct WordsSeen {
  size_t operation = 0;
  std::optional<DeviceWords::Row> row;
};

class WorkAdmission {
 public:
  WorkAdmission(const SessionCore& core, Streams& streams, DeviceWords& words)
      : core_(core), streams_(streams), words_(words) {}

  // The work is the next of the stream. `seen`: of held work, from one call to the next; null: the
  // work is not held, and words in device memory are not looked at. Throws std::bad_alloc.
  template <typename What>
  [[nodiscard]] Verdict try_admit(const Uses& uses, const What& what, Stream& stream,
                                  WordsSeen* seen = nullptr) {
    using wire::HeldFor;
    const auto has_come = [&]() -> bool {
      if constexpr (std::same_as<What, ValuesWork>) {
        return have_device_words_come(what, stream, seen);
      }
      if constexpr (std::same_as<What, HostCallWork>) return is_answered(what);
      if constexpr (std::same_as<What, WaitWork>) return is_reached(what);
      return true;
    };
    const auto are_host_words_there = [&]() -> bool {
      if constexpr (std::same_as<What, ValuesWork>) return this->are_host_words_there(what);
      return true;
    };
    const auto is_implied_wait_over = [&] { return streams_.is_implied_wait_over(stream); };
    const auto admit_slots = [&](Verdict& verdict) {
      streams_.admit_slots(stream, uses.lane, verdict);
    };
    AdmissionRequest request;
    Condition& on_gpu = request.on_gpu[0];
    if constexpr (takes_time<What>()) {
      request.kind = AdmissionRequest::Kind::kWork;
      request.cost = &uses.cost;
      request.is_cold = uses.lane == Lane::kCold;
    } else if constexpr (std::same_as<What, UploadWork>) {
      request.kind = AdmissionRequest::Kind::kUnlimited;
    } else if constexpr (std::same_as<What, ValuesWork>) {
      // The worker sees words in host memory by itself.
      if (what.waits != 0 && streams_.holds_waits()) {
        request.in_worker = {HeldFor::kValue, are_host_words_there};
        if (awaits_device_words(what)) on_gpu = {HeldFor::kValue, has_come};
      }
    } else if constexpr (std::same_as<What, HostCallWork>) {
      if (what.awaits && what.answers_soon) on_gpu = {HeldFor::kQueueCredit, has_come};
      if (what.awaits && !what.answers_soon) {
        // The client says when it has answered (wire::RingProducer::nudge()).
        Condition& there = streams_.holds_waits() ? request.in_worker : on_gpu;
        there = {HeldFor::kHostFunction, has_come};
      }
    } else if constexpr (std::same_as<What, WaitWork>) {
      on_gpu = {HeldFor::kQueueCredit, has_come};
    }
    if (Streams::implies_wait(stream, entry_of(what))) [[unlikely]] {
      request.on_gpu[1] = {
          HeldFor::kQueueCredit, is_implied_wait_over,
          Streams::ends_implied_wait_soon(stream) ? CreditTerm::kShort : CreditTerm::kUnknown};
    }
    const bool is_limited = request.is_cold || request.has_condition();
    request.budget = is_limited ? streams_.budget(stream) : stream.budget.get();
    if (!Streams::has_stream_slot(stream, uses.lane)) [[unlikely]]
      request.admit_slots = admit_slots;
    return worker::try_admit(request);
  }

 private:
  [[nodiscard]] bool are_host_words_there(const ValuesWork& values) const;
  [[nodiscard]] bool awaits_device_words(const ValuesWork& values) const;
  [[nodiscard]] bool have_device_words_come(const ValuesWork& values, const Stream& stream,
                                            WordsSeen* seen);
  [[nodiscard]] bool is_answered(const HostCallWork& call) const;
  [[nodiscard]] bool is_reached(const WaitWork& wait) const;

  const SessionCore& core_;
  Streams& streams_;
  DeviceWords& words_;
};

}  // namespace openmps::worker
