// SPDX-License-Identifier: Apache-2.0
// See activity_table.h.
#include "client/entry/activity_table.h"

#include <optional>

#include "base/mutex.h"
#include "client/debug.h"
#include "client/session/session.h"

namespace openmps::client {
namespace {

// Profilers ask before the program has called cuInit.
Mutex lock{LockRank::kClientRecordingWish};
std::optional<cupti::ActivitySink> awaited GUARDED_BY(lock);

CUresult start(const cupti::ActivitySink* sink, const char** why) {
  const MutexLock guard(lock);
  Session* session = nullptr;
  if (enter_local(&session) == CUDA_SUCCESS) return session->recording.start(*sink, why);
  if (awaited) return CUDA_ERROR_ALREADY_ACQUIRED;
  awaited = *sink;
  return CUDA_SUCCESS;
}

CUresult stop() {
  const MutexLock guard(lock);
  if (awaited) {
    awaited.reset();
    return CUDA_SUCCESS;
  }
  Session* session = nullptr;
  return enter_local(&session) == CUDA_SUCCESS ? session->recording.stop()
                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult flush() {
  Session* session = nullptr;
  return enter_local(&session) == CUDA_SUCCESS ? session->recording.flush() : CUDA_SUCCESS;
}

uint64_t lost() {
  Session* session = nullptr;
  return enter_local(&session) == CUDA_SUCCESS ? session->recording.lost() : 0;
}

constexpr cupti::ActivityTable kTable{sizeof(cupti::ActivityTable), start, stop, flush, lost};

}  // namespace

const cupti::ActivityTable& activity_table() { return kTable; }

void begin_awaited_recording() {
  const MutexLock guard(lock);
  if (!awaited) return;
  const cupti::ActivitySink sink = *awaited;
  awaited.reset();
  Session* session = nullptr;
  const char* why = "";
  if (enter_local(&session) == CUDA_SUCCESS &&
      session->recording.start(sink, &why) != CUDA_SUCCESS) {
    debug_line("nothing is recorded: %s", why);
  }
}

}  // namespace openmps::client
