// SPDX-License-Identifier: Apache-2.0
// What work waits for. See work_admission.h.
#include "worker/work/work_admission.h"

#include <algorithm>
#include <atomic>

#include "worker/device/value_watch.h"

namespace openmps::worker {
namespace {

using wire::HeldFor;

Condition in_worker(HeldFor why, FunctionRef<bool()> has_come) {
  return {.waits = Condition::Waits::kInWorker, .why = why, .has_come = has_come};
}

Condition on_gpu(HeldFor why, FunctionRef<bool()> has_come) {
  return {.waits = Condition::Waits::kOnGpu, .why = why, .has_come = has_come};
}

}  // namespace

// Words in host memory are seen here, and need not be tried on the GPU.
void WorkAdmission::add_conditions(const ValuesWork& values, HasCome is_host_ready,
                                   HasCome has_come, AdmissionRequest& request) const {
  if (values.waits == 0 || !streams_.holds_waits()) return;
  request.add(in_worker(HeldFor::kValue, is_host_ready));
  const bool names_device_words =
      std::ranges::any_of(values.operations, [this](const wire::ValueOperation& operation) {
        return operation.kind == wire::ValueKind::kWait && !core_.is_host(operation.value.address);
      });
  if (names_device_words) request.add(on_gpu(HeldFor::kValue, has_come));
}

// The client says when it has answered a call that is not expected to end soon
// (wire::RingProducer::nudge()).
void WorkAdmission::add_conditions(const HostCallWork& call, HasCome is_host_ready,
                                   HasCome has_come, AdmissionRequest& request) const {
  if (call.part == HostCallWork::Part::kAsk) return;
  if (!call.answers_soon && streams_.holds_waits()) {
    request.add(in_worker(HeldFor::kHostFunction, is_host_ready));
  } else {
    request.add(
        on_gpu(call.answers_soon ? HeldFor::kQueueCredit : HeldFor::kHostFunction, has_come));
  }
}

void WorkAdmission::add_conditions(const WaitWork&, HasCome, HasCome has_come,
                                   AdmissionRequest& request) const {
  request.add(on_gpu(HeldFor::kQueueCredit, has_come));
}

bool WorkAdmission::is_host_ready(const ValuesWork& values) const {
  return std::ranges::all_of(values.operations, [this](const wire::ValueOperation& operation) {
    return operation.kind != wire::ValueKind::kWait || !core_.is_host(operation.value.address) ||
           is_there(operation.value);
  });
}

bool WorkAdmission::is_host_ready(const HostCallWork& call) const {
  return call.part == HostCallWork::Part::kAwait &&
         core_.view.callback(call.slot).done.load(std::memory_order_acquire) != 0;
}

// The words in device memory have come, one after the other.
bool WorkAdmission::has_come(const ValuesWork& values, Stream& stream, WordsSeen* seen) {
  if (seen == nullptr) return false;
  for (; seen->operation < values.operations.size(); ++seen->operation) {
    const wire::ValueOperation& operation = values.operations[seen->operation];
    const wire::StreamValue& wait = operation.value;
    if (operation.kind != wire::ValueKind::kWait || core_.is_host(wait.address)) continue;
    if (!seen->row) seen->row.emplace(words_.row(wait, stream.place.device));
    if (!seen->row->has_come()) return false;
    seen->row.reset();
  }
  seen->operation = 0;  // if the work does not go now, all words are looked at once more
  return true;
}

}  // namespace openmps::worker
