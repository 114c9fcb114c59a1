// SPDX-License-Identifier: Apache-2.0
// Whether the next piece of work of a stream may be submitted to the driver now. This is the one
// place that decides, but for two things: the backlog asks only about work that is behind no other
// held work (work/backlog.h), and right before the driver's call the executor may have to wait at
// the gate (device/context_gate.h). The caller submits the work with the tokens in the verdict, or
// holds it until the verdict's time.
//
// The reasons to hold work, in the order in which they are checked:
//   a condition that the worker sees has not come           stream_budget.h (Condition)
//   stream budget, queue credit, fair share                 stream_budget.h, policy.h
//   for the cold stream: the client's stream waits on the
//   GPU for something other than its cold stream            stream_budget.h
//   a condition that the GPU may wait for has not come, and
//   no credit for that is free                              stream_budget.h
//   no stream slot is free                                  AdmissionRequest::admit_slots
#pragma once

#include <array>

#include "worker/admission/durations.h"
#include "worker/admission/stream_budget.h"
#include "worker/admission/verdict.h"

namespace openmps::worker {

// What admission has to know of a piece of work. Lives until try_admit() returns.
struct AdmissionRequest {
  enum class Kind {
    kWork,      // takes the GPU's time
    kTimeless,  // takes none: a fence, a record, a wait, a write of a value
    kUnlimited  // the upload of a graph: budget, order of queues and fair share do not apply
  };
  Kind kind = Kind::kTimeless;
  bool is_cold = false;  // the work goes to the stream's cold stream
  // Of the stream, also for work that goes to its cold stream. Null: budgets are switched off, or
  // the stream has had no work yet, and this is neither cold nor conditional. Then `in_worker` and
  // slots alone are checked: no policy holds the first work of a stream.
  StreamBudget* budget = nullptr;
  const Cost* cost = nullptr;  // of the work, if it is kWork
  // A condition that the worker sees by itself; the executor is woken when it comes. The work is
  // held until then.
  Condition in_worker;
  // Conditions that the GPU may wait for, in the order in which they are checked. That takes
  // credits; without them the work is held until the condition has come. The second is a wait that
  // CUDA's order of streams implies.
  std::array<Condition, 2> on_gpu;
  // Takes the stream slots that the work still needs, into the verdict, or refuses. Empty: it needs
  // none.
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
    if (request.kind == AdmissionRequest::Kind::kTimeless) budget->admit_timeless(verdict);
    if (request.is_cold && verdict.is_admitted()) budget->admit_cold(verdict);
    for (const Condition& condition : request.on_gpu) {
      if (condition.has_come && verdict.is_admitted()) budget->admit_wait(condition, verdict);
    }
  }
  if (request.admit_slots && verdict.is_admitted()) request.admit_slots(verdict);
  return verdict;
}

}  // namespace openmps::worker
