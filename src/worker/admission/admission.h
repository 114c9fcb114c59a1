// SPDX-License-Identifier: Apache-2.0
// Whether the next piece of work of a stream may go to the driver now: the one place that decides.
// The caller submits the work with the tokens in the verdict, or holds it until the verdict's time.
//
// The reasons to hold work, in the order in which they are checked:
//   a condition that the worker polls has not come       condition.h
//   stream budget (window), queue credit, fair share     stream_budget.h, policy.h
//   work for the cold stream, while its stream waits     stream_budget.h
//   no credit for a condition that the GPU may wait for  condition.h, stream_budget.h
//   no stream slot                                       AdmissionRequest::admit_slots
#pragma once

#include <array>

#include "worker/admission/condition.h"
#include "worker/admission/durations.h"
#include "worker/admission/stream_budget.h"
#include "worker/admission/verdict.h"

namespace openmps::worker {

// What admission has to know of a piece of work. Lives until try_admit() returns.
struct AdmissionRequest {
  enum class Kind {
    kWork,      // takes the GPU's time
    kMarker,    // takes none: a fence, a record, a wait
    kUnlimited  // the stream's budget does not limit it
  };
  Kind kind = Kind::kMarker;
  bool is_cold = false;            // the work goes to the stream's cold stream
  StreamBudget* budget = nullptr;  // of the stream; null: no budget, credit or fair share applies
  const Cost* cost = nullptr;      // of the work, if it is kWork
  // What the work waits for that the worker sees, and is told of when it comes: the work waits here
  // until then.
  Condition in_worker;
  // What the GPU may wait for, in the order in which it is checked. That takes a credit; without
  // one the work waits here. The second is the wait that the order of streams implies.
  std::array<Condition, 2> on_gpu;
  // Adds the stream slots that the work lacks to the verdict, or refuses; empty: it lacks none.
  FunctionRef<void(Verdict&)> admit_slots;

  [[nodiscard]] bool has_condition() const {
    return in_worker.has_come || on_gpu[0].has_come || on_gpu[1].has_come;
  }
};

[[nodiscard]] inline Verdict try_admit(const AdmissionRequest& request) {
  Verdict verdict;
  if (request.in_worker.has_come && !request.in_worker.has_come()) {
    verdict.refuse(request.in_worker.why);
    return verdict;
  }
  if (StreamBudget* const budget = request.budget; budget != nullptr) {
    if (request.kind == AdmissionRequest::Kind::kWork) budget->admit_work(*request.cost, verdict);
    if (request.kind == AdmissionRequest::Kind::kMarker) budget->admit_marker(verdict);
    if (request.is_cold && verdict.is_admitted()) budget->admit_cold(verdict);
    for (const Condition& condition : request.on_gpu) {
      if (condition.has_come && verdict.is_admitted()) budget->admit_wait(condition, verdict);
    }
  }
  if (request.admit_slots && verdict.is_admitted()) request.admit_slots(verdict);
  return verdict;
}

}  // namespace openmps::worker
