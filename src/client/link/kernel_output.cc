// SPDX-License-Identifier: Apache-2.0
// See kernel_output.h.
#include "client/link/kernel_output.h"
#include "base/mutex.h"
#include "wire/commands/device.h"

#include <cstdio>
#include <string>

#include "base/thread_end.h"

namespace openmps::client {

CUresult KernelOutput::collect(CUresult result) {
  // Cleared before the call: a kernel that is launched from now on sets it again.
  if (result == CUDA_SUCCESS && expected_.exchange(false, std::memory_order_acq_rel)) {
    wire::OutputFlush::Reply reply{};
    const CUresult asked = channel_.call(wire::OutputFlush{}, &reply);
    // If the session ends now, the next call reports it; this synchronisation has succeeded.
    if (asked == CUDA_SUCCESS && reply.pending != 0) expect();
  }
  const MutexLock lock(lock_);
  if (ring_.empty()) return result;
  const CancellationHeld held;
  wire::OutputKind kind{};
  std::string text;
  while (ring_.take(&kind, &text)) {
    // Through the program's buffers, so that the lines keep their order with the program's own.
    FILE* stream = kind == wire::OutputKind::kError ? stderr : stdout;
    fwrite(text.data(), 1, text.size(), stream);
    fflush(stream);
  }
  return result;
}

}  // namespace openmps::client
