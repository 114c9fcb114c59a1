// SPDX-License-Identifier: Apache-2.0
// The list of open captures. There are few at a time; everything is a linear search under a lock.
#include "client/capture.h"

#include <algorithm>

#include "client/session.h"

namespace openmps::client {

uint32_t Captures::open(Stream* origin, const void* thread, CUstreamCaptureMode mode) {
  std::lock_guard guard(lock_);
  const uint32_t number = next_number_++;
  captures_.push_back({number, origin, thread, mode, false});
  open_count_.store(static_cast<uint32_t>(captures_.size()), std::memory_order_release);
  return number;
}

void Captures::close(Session& session, uint32_t number) {
  {
    std::lock_guard guard(lock_);
    std::erase_if(captures_, [number](const Capture& c) { return c.number == number; });
    open_count_.store(static_cast<uint32_t>(captures_.size()), std::memory_order_release);
  }
  session.streams.for_each([number](Stream& stream) {
    uint32_t expected = number;
    stream.capture.compare_exchange_strong(expected, 0);
  });
}

bool Captures::find(uint32_t number, Capture* capture) {
  std::lock_guard guard(lock_);
  for (const Capture& open : captures_) {
    if (open.number != number) continue;
    *capture = open;
    return true;
  }
  return false;
}

void Captures::invalidate(uint32_t number) {
  std::lock_guard guard(lock_);
  for (Capture& open : captures_) {
    if (open.number == number) open.invalidated = true;
  }
}

CUresult Captures::check_unsafe_call(const void* thread, CUstreamCaptureMode thread_mode) {
  if (!any() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::lock_guard guard(lock_);
  bool forbidden = false;
  for (Capture& open : captures_) {
    const bool ours = open.thread == thread && open.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global =
        thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && open.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!ours && !global) continue;
    open.invalidated = true;
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult Captures::check_legacy_stream(const Stream& legacy) {
  if (!any()) return CUDA_SUCCESS;
  std::lock_guard guard(lock_);
  bool forbidden = false;
  for (Capture& open : captures_) {
    const bool blocking = open.origin->kind == wire::StreamKind::kBlocking;
    if (!blocking || open.origin->context != legacy.context) continue;
    open.invalidated = true;
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

}  // namespace openmps::client
