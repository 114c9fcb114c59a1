// SPDX-License-Identifier: Apache-2.0
// See activity_table.h. A recording needs no driver: it may start before cuInit.
#include "softgpu/front/activity_table.h"

#include <cstring>

#include "base/thread_end.h"
#include "softgpu/device/lifetime/start.h"
#include "softgpu/device/schedule/recorder.h"

namespace openmps::softgpu {
namespace {

CUresult start(const cupti::ActivitySink* sink, const char** why) {
  if (why != nullptr) *why = nullptr;
  if (sink == nullptr || sink->take == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_exiting()) return CUDA_ERROR_DEINITIALIZED;
  if (is_forked()) {
    if (why != nullptr) *why = "this process was forked after cuInit, and has no device";
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const CancellationHeld held;
  return start_recording(*sink);
}

CUresult stop() {
  const CancellationHeld held;
  stop_recording();
  return CUDA_SUCCESS;
}

CUresult flush() {
  const CancellationHeld held;
  flush_recording();
  return CUDA_SUCCESS;
}

constexpr cupti::ActivityTable kTable = {sizeof(cupti::ActivityTable), start, stop, flush,
                                         lost_activities};

}  // namespace

const cupti::ActivityTable* find_activity_table(const CUuuid& id) {
  return memcmp(&id, &cupti::kActivityTableId, sizeof id) == 0 ? &kTable : nullptr;
}

}  // namespace openmps::softgpu
