// SPDX-License-Identifier: Apache-2.0
// Asks for the admission of a piece of work (admission/admission.h): what each kind of work takes
// of the device and waits for. Session's thread only.
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
    return what.in_order ? Entry::kMarker : Entry::kFence;
  } else if constexpr (std::same_as<What, WakeWork>) {
    return Entry::kFence;
  } else {
    return std::same_as<What, RecordWork> ? Entry::kMarker : Entry::kWork;
  }
}

// What has been seen of the words in device memory that held work waits for: the operation that is
// looked at, and the place where its word is read.
struct WordsSeen {
  size_t operation = 0;
  std::optional<DeviceWords::Row> row;
};

class WorkAdmission {
 public:
  WorkAdmission(const SessionCore& core, Streams& streams, DeviceWords& words)
      : core_(core), streams_(streams), words_(words) {}

  // The work is the next of the stream. `seen`: of held work, from one question to the next; null:
  // the work is not held, and words in device memory are not looked at. Throws std::bad_alloc.
  template <typename What>
  [[nodiscard]] Verdict try_admit(const Uses& uses, const What& what, Stream& stream,
                                  WordsSeen* seen = nullptr) {
    const auto has_come = [&] { return this->has_come(what, stream, seen); };
    const auto is_host_ready = [&] { return this->is_host_ready(what); };
    const auto is_implied_wait_over = [&] { return streams_.is_implied_wait_over(stream); };
    const auto admit_slots = [&](Verdict& verdict) {
      streams_.admit_slots(stream, uses.lane, verdict);
    };
    AdmissionRequest request;
    if constexpr (takes_time<What>()) {
      request.kind = AdmissionRequest::Kind::kWork;
      request.cost = &uses.cost;
      request.is_cold = uses.lane == Lane::kCold;
    } else if constexpr (std::same_as<What, UploadWork>) {
      request.kind = AdmissionRequest::Kind::kUnlimited;
    } else {
      add_conditions(what, is_host_ready, has_come, request);
    }
    if (Streams::implies_wait(stream, entry_of(what))) [[unlikely]] {
      request.add({.waits = Condition::Waits::kOnGpu,
                   .why = wire::HeldFor::kQueueCredit,
                   .term = Streams::ends_implied_wait_soon(stream) ? CreditTerm::kShort
                                                                   : CreditTerm::kUnknown,
                   .has_come = is_implied_wait_over});
    }
    const bool is_limited = request.is_cold || request.condition_count != 0;
    request.budget = is_limited ? streams_.budget(stream) : stream.budget.get();
    if (!Streams::has_stream_slot(stream, uses.lane)) [[unlikely]]
      request.admit_slots = admit_slots;
    return worker::try_admit(request);
  }

 private:
  using HasCome = FunctionRef<bool()>;

  // What the worker need not ask the GPU for is there.
  template <typename What>
  [[nodiscard]] bool is_host_ready(const What&) const {
    return true;
  }
  [[nodiscard]] bool is_host_ready(const ValuesWork& values) const;
  [[nodiscard]] bool is_host_ready(const HostCallWork& call) const;
  // What the GPU may wait for has come.
  template <typename What>
  [[nodiscard]] bool has_come(const What&, Stream&, WordsSeen*) {
    return false;
  }
  [[nodiscard]] bool has_come(const ValuesWork& values, Stream& stream, WordsSeen* seen);
  [[nodiscard]] bool has_come(const HostCallWork& call, Stream&, WordsSeen*) {
    return is_host_ready(call);
  }
  [[nodiscard]] bool has_come(const WaitWork& wait, Stream&, WordsSeen*) {
    return core_.driver.cuEventQuery(wait.event) != CUDA_ERROR_NOT_READY;
  }

  template <typename What>
  void add_conditions(const What&, HasCome, HasCome, AdmissionRequest&) const {}
  void add_conditions(const ValuesWork& values, HasCome is_host_ready, HasCome has_come,
                      AdmissionRequest& request) const;
  void add_conditions(const HostCallWork& call, HasCome is_host_ready, HasCome has_come,
                      AdmissionRequest& request) const;
  void add_conditions(const WaitWork& wait, HasCome is_host_ready, HasCome has_come,
                      AdmissionRequest& request) const;

  const SessionCore& core_;
  Streams& streams_;
  DeviceWords& words_;
};

}  // namespace openmps::worker
