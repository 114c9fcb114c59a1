// SPDX-License-Identifier: Apache-2.0
// The recording of what happens on the devices (cupti/activity.h): which call a piece of work is
// of, when it began and ended, and the telling of that. One recording at a time. While there is
// none, a call costs one relaxed load, and a piece of work a comparison with null.
//
// A piece of work gets its WorkRecord when it is made; engines put the times in. When the work has
// ended it goes into a list, and the recorder's thread, soon, or flush_recording() tells the sink.
// Calls are told by the threads that make them. Of softgpu's locks only those of this file are held
// then. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/thread_end.h"
#include "cuda/abi.h"
#include "cupti/activity.h"

namespace openmps::softgpu {

// The number of the recording that is on; 0: none.
inline std::atomic<uint32_t> open_recording{0};
inline bool is_recording() { return open_recording.load(std::memory_order_relaxed) != 0; }

// The call that a piece of work comes from, and its place in a launched graph.
struct WorkOrigin {
  uint32_t recording = 0;  // 0: the work is not recorded
  uint32_t correlation = 0;
  uint32_t context = 0;  // of the stream, as cupti::Activity has it
  uint32_t graph = 0;
  uint64_t graph_node = 0;

  // Of what a kernel launches by itself.
  [[nodiscard]] WorkOrigin without_node() const { return {recording, correlation, context}; }
};

struct WorkRecord {
  uint32_t recording = 0;
  cupti::Activity activity;  // begin_ns is 0 until the work begins
  std::string name;          // of a kernel
  std::unique_ptr<WorkRecord> next;
};

// Null: the work is not recorded, or memory is short and the activity counts as lost. `name`: of a
// kernel.
std::unique_ptr<WorkRecord> make_record(const WorkOrigin& origin, cupti::ActivityKind kind,
                                        int device, uint64_t stream, std::string_view name = {});
// The work has ended. What has not begun is not told.
void end_record(std::unique_ptr<WorkRecord> record);

// A call that may give the device work, on its thread while the call lasts.
class RecordedCall {
 public:
  explicit RecordedCall(cupti::CallKind kind);
  ~RecordedCall();
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;

  // The calling thread's; null: none is recorded.
  static RecordedCall* current();
  // The call gives work to a stream.
  WorkOrigin give(int device, uint64_t context, uint64_t stream);
  // The call returns that. It is told if it has given work.
  CUresult end(CUresult result);

 private:
  const uint32_t recording_;
  bool gave_work_ = false;
  cupti::Activity activity_;
};

// Runs a call that may give the device work: body() -> CUresult. Calls inside of it are part of it.
template <typename Body>
CUresult recorded_call(cupti::CallKind kind, Body&& body) {
  if (!is_recording() || RecordedCall::current() != nullptr) return body();
  const CancellationHeld held;
  RecordedCall call(kind);
  return call.end(body());
}

// See cupti::ActivityTable. Also CUDA_ERROR_OUT_OF_MEMORY. In a forked child its parent's recording
// is over, and its locks, which threads of the parent may have held, are not touched.
CUresult start_recording(const cupti::ActivitySink& sink);
void stop_recording();
void flush_recording();
uint64_t lost_activities();

}  // namespace openmps::softgpu
