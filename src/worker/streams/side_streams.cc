// SPDX-License-Identifier: Apache-2.0
// See side_streams.h.
#include "worker/streams/side_streams.h"

#include <utility>

#include "worker/device/driver_check.h"

namespace openmps::worker {

Status SideStreams::add(uint32_t device, StreamSlot slots, CUstream* stream) {
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0),
            "cuStreamCreateWithPriority of a side stream"));
  sides_.push_back({device, *stream, std::move(slots)});
  return Status();
}

Status SideStreams::take(uint32_t device, SessionCore::Leaves leaves, CUstream* stream) {
  *stream = nullptr;
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  size_t owned = 0;
  for (const Side& side : sides_) {
    if (side.device != device) continue;
    ++owned;
    *stream = side.handle;
    if (most_ == 1 || core_.driver.cuStreamQuery(side.handle) == CUDA_SUCCESS) return Status();
  }
  StreamSlot slots;
  if (owned < most_ && core_.take_free_slots({device}, 1, leaves, &slots)) {
    return add(device, std::move(slots), stream);
  }
  while (owned != 0) {
    const Side& side = sides_[next_++ % sides_.size()];
    if (side.device != device) continue;
    *stream = side.handle;
    break;
  }
  return Status();
}

Status SideStreams::take_for_certain(uint32_t device, CUstream* stream) {
  OPENMPS_RETURN_IF_ERROR(take(device, SessionCore::Leaves::kQuarter, stream));
  return *stream != nullptr ? Status() : add(device, core_.take_slots({device}), stream);
}

bool SideStreams::idle() const {
  for (const Side& side : sides_) {
    if (!core_.use(side.device).ok()) continue;
    if (core_.driver.cuStreamQuery(side.handle) == CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

void SideStreams::release_all() {
  for (const Side& side : sides_) {
    static_cast<void>(core_.use(side.device).ok());
    core_.driver.cuStreamDestroy_v2(side.handle);
  }
  sides_.clear();
}

}  // namespace openmps::worker
