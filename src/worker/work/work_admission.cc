// SPDX-License-Identifier: Apache-2.0
// What work waits for. See work_admission.h.
#include "worker/work/work_admission.h"

#include <algorithm>
#include <atomic>

#include "worker/device/value_watch.h"

namespace openmps::worker {

bool WorkAdmission::are_host_words_there(const ValuesWork& values) const {
  return std::ranges::all_of(values.operations, [this](const wire::ValueOperation& operation) {
    return operation.kind != wire::ValueKind::kWait || !core_.is_host(operation.value.address) ||
           is_there(operation.value);
  });
}

bool WorkAdmission::awaits_device_words(const ValuesWork& values) const {
  return std::ranges::any_of(values.operations, [this](const wire::ValueOperation& operation) {
    return operation.kind == wire::ValueKind::kWait && !core_.is_host(operation.value.address);
  });
}

// One after the other.
bool WorkAdmission::have_device_words_come(const ValuesWork& values, const Stream& stream,
                                           WordsSeen* seen) {
  if (seen == nullptr) return false;
  for (; seen->operation < values.operations.size(); ++seen->operation) {
    const wire::ValueOperation& operation = values.operations[seen->operation];
    const wire::StreamValue& wait = operation.value;
    if (operation.kind != wire::ValueKind::kWait || core_.is_host(wait.address)) continue;
    if (!seen->row) seen->row.emplace(words_, wait, stream.place.device);
    if (!seen->row->has_come()) return false;
    seen->row.reset();
  }
  seen->operation = 0;  // if the work does not go now, all words are looked at once more
  return true;
}

// Before the client has been asked there is no answer.
bool WorkAdmission::is_answered(const HostCallWork& call) const {
  return !call.asks && core_.view.callback(call.slot).done.load(std::memory_order_acquire) != 0;
}

bool WorkAdmission::is_reached(const WaitWork& wait) const {
  return core_.driver.cuEventQuery(wait.event) != CUDA_ERROR_NOT_READY;
}

}  // namespace openmps::worker
