// SPDX-License-Identifier: Apache-2.0
// The calls of drv_capture_refusals, by topic: each is made while a stream of its stage captures.
#pragma once

#include <functional>
#include <vector>

#include "capture_stage.h"

namespace e2e {

struct Call {
  const char* name;
  std::function<CUresult(Stage&)> make;
};

extern const std::vector<Call> kStreamCalls;
extern const std::vector<Call> kEventCalls;
extern const std::vector<Call> kCopyCalls;
extern const std::vector<Call> kMemoryCalls;
extern const std::vector<Call> kCodeCalls;
extern const std::vector<Call> kCaptureCalls;
// Calls that become nodes of kinds that softgpu by itself does not have.
extern const std::vector<Call> kNodeCalls;

// Sets the calling thread's capture mode, and returns the previous one.
inline CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode) {
  CHECK_CU(cuThreadExchangeStreamCaptureMode(&mode));
  return mode;
}

}  // namespace e2e
