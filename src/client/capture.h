// SPDX-License-Identifier: Apache-2.0
// Stream capture as the program sees it: which streams take part in which capture, and which calls
// the modes of the open captures forbid. The worker captures in relaxed mode, so all of CUDA's
// rules about modes are kept here. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/cuda_abi.h"

namespace openmps::client {

struct Session;
struct Stream;

struct Capture {
  uint32_t number = 0;  // cuStreamGetCaptureInfo's id
  Stream* origin = nullptr;
  const void* thread = nullptr;  // identity of the thread that began it
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool invalidated = false;
};

class Captures {
 public:
  // Fast answer for the calls that captures forbid: none is open.
  [[nodiscard]] bool any() const { return open_count_.load(std::memory_order_acquire) != 0; }

  // Opens a capture that begins at `origin`; its number.
  uint32_t open(Stream* origin, const void* thread, CUstreamCaptureMode mode);
  // Forgets a capture; the streams that took part are set free.
  void close(Session& session, uint32_t number);
  [[nodiscard]] bool find(uint32_t number, Capture* capture);
  void invalidate(uint32_t number);

  // May the calling thread make a call that is unsafe while capturing (cuMemAlloc, ...)? If not,
  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures that forbid it are invalidated, as the
  // driver does.
  [[nodiscard]] CUresult check_unsafe_call(const void* thread, CUstreamCaptureMode thread_mode);
  // Work on the legacy stream while blocking streams of the context capture:
  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, and they are invalidated.
  [[nodiscard]] CUresult check_legacy_stream(const Stream& legacy);

 private:
  std::atomic<uint32_t> open_count_{0};
  std::mutex lock_;
  std::vector<Capture> captures_;
  uint32_t next_number_ = 1;
};

}  // namespace openmps::client
