// SPDX-License-Identifier: Apache-2.0
// Where on a device something runs or lies: by this streams, code and contexts are told apart. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/abi.h"
#include "worker/device/stream_slots.h"

namespace openmps::worker {

// In which context of a device: the shared one, or the one for code that is not there yet
// (cold_lane.h).
enum class Lane : uint32_t { kMain = 0, kCold };
inline constexpr uint32_t kLanes = 2;

// A set of SMs of a device: a green context of the shared context, which the client has made, or
// what the session has of the device.
struct GreenContext {
  uint32_t device = 0;
  CUgreenCtx handle = nullptr;
  CUcontext context = nullptr;  // as which it is current
  uint32_t sms = 0;
  bool is_limit = true;  // what is in it may not have other SMs, as in the cold lane
  std::shared_ptr<StreamSlots> slots = std::make_shared<StreamSlots>();
};

struct Placement {
  uint32_t device = 0;
  Lane lane = Lane::kMain;
  const GreenContext* partition = nullptr;  // whose SMs, in the main lane; null: all

  // The same in that lane; the cold one knows no partitions.
  [[nodiscard]] Placement in(Lane other) const {
    return other == lane ? *this : Placement{device, other, nullptr};
  }
};

}  // namespace openmps::worker
