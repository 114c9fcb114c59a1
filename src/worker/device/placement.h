// SPDX-License-Identifier: Apache-2.0
// Where on a device work runs and code lies: in which context, on which SMs. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/abi.h"
#include "worker/device/stream_slots.h"

namespace openmps::worker {

// A context of a device: the main one, or the cold one for code that the main one does not have yet
// (cold_lane.h).
enum class Lane : uint32_t { kMain = 0, kCold };
inline constexpr uint32_t kLanes = 2;

// A set of SMs of a device as a green context of the main context. The client has made it, or the
// session is limited to it.
struct GreenContext {
  uint32_t device = 0;
  CUgreenCtx handle = nullptr;
  CUcontext context = nullptr;  // the CUcontext of `handle`
  uint32_t sms = 0;
  bool is_limit = true;  // work in it may not run on other SMs, so not in the cold context
  std::shared_ptr<StreamSlots> slots = std::make_shared<StreamSlots>();
};

struct Placement {
  uint32_t device = 0;
  Lane lane = Lane::kMain;
  const GreenContext* partition = nullptr;  // in the main context; null: all SMs

  // The placement in the other context. The cold context has no partitions.
  [[nodiscard]] Placement in(Lane other) const {
    return other == lane ? *this : Placement{device, other, nullptr};
  }
};

}  // namespace openmps::worker
