// SPDX-License-Identifier: Apache-2.0
// Whether the next piece of work of a stream may go to the driver now: the one place that decides.
// Asked once per look; whoever asks submits the work with what the verdict gives, or holds it back.
//
// The reasons to hold work, in the order in which they are asked:
//   conditions that the worker sees by itself         condition.h
//   window, hardware-queue credit, fair share         stream_budget.h, policy.h
//   the stream waits, and its cold stream would too   stream_budget.h
//   conditions that the GPU may wait for, credits     condition.h, stream_budget.h
//   slots for the driver's streams                    AdmissionRequest::admit_slots
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "worker/admission/condition.h"
#include "worker/admission/durations.h"
#include "worker/admission/stream_budget.h"
#include "worker/admission/verdict.h"

namespace openmps::worker {

// What a piece of work is, as far as admission is concerned. Lives as long as the question.
struct AdmissionRequest {
  enum class Kind {
    kWork,      // takes the GPU's time
    kMarker,    // takes none: a fence, a record, a wait
    kUnlimited  // the budget says nothing of it
  };
  Kind kind = Kind::kMarker;
  bool is_cold = false;            // work of the stream's cold stream
  StreamBudget* budget = nullptr;  // of the stream; null: nothing is limited
  const Cost* cost = nullptr;      // of kWork
  // What the work waits for, in the order in which it is looked at.
  static constexpr size_t kMostConditions = 3;
  std::array<Condition, kMostConditions> conditions;
  size_t condition_count = 0;
  // Takes the slots that the driver's streams for it need, or refuses; empty: they are there.
  FunctionRef<void(Verdict&)> admit_slots;

  [[nodiscard]] std::span<const Condition> all_conditions() const {
    return std::span(conditions).first(condition_count);
  }
  void add(const Condition& condition) { conditions[condition_count++] = condition; }
};

[[nodiscard]] inline Verdict try_admit(const AdmissionRequest& request) {
  Verdict verdict;
  for (const Condition& condition : request.all_conditions()) {
    const bool is_seen_here = condition.waits == Condition::Waits::kInWorker;
    if (is_seen_here && !condition.has_come()) {
      verdict.refuse(condition.why);
      return verdict;
    }
  }
  if (StreamBudget* const budget = request.budget; budget != nullptr) {
    if (request.kind == AdmissionRequest::Kind::kWork) budget->admit_work(*request.cost, verdict);
    if (request.kind == AdmissionRequest::Kind::kMarker) budget->admit_marker(verdict);
    if (request.is_cold && verdict.is_admitted()) budget->admit_cold(verdict);
    for (const Condition& condition : request.all_conditions()) {
      const bool waits_on_gpu = condition.waits == Condition::Waits::kOnGpu;
      if (waits_on_gpu && verdict.is_admitted()) budget->admit_wait(condition, verdict);
    }
  }
  if (request.admit_slots && verdict.is_admitted()) request.admit_slots(verdict);
  return verdict;
}

}  // namespace openmps::worker
