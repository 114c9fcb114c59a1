// SPDX-License-Identifier: Apache-2.0
// See recorder.h.
#include "softgpu/device/schedule/recorder.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "softgpu/device/schedule/thread.h"

namespace openmps::softgpu {
namespace {

// The thread tells of work in batches: to wake it for each piece costs more than a launch.
constexpr uint64_t kGatherNs = 5'000'000;

std::atomic<uint32_t> last_recording{0};
std::atomic<uint32_t> last_correlation{0};
std::atomic<uint64_t> lost{0};

thread_local RecordedCall* current_call = nullptr;

// The next of the numbers, which come round after 2^32 and are never 0.
uint32_t next_number(std::atomic<uint32_t>& last) {
  uint32_t number = 0;
  while (number == 0) number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

class Recorder {
 public:
  CUresult start(const cupti::ActivitySink& sink);
  void stop();
  // Tells of all work that is in the list now.
  void flush();
  void add_ended(std::unique_ptr<WorkRecord> record);
  void tell_call(uint32_t recording, const cupti::Activity& call);

 private:
  void flush_locked() REQUIRES(delivery_mutex_);
  // All of the list.
  std::unique_ptr<WorkRecord> take_ended();
  [[noreturn]] void thread_main();

  // Held by the one that tells of work, and while a recording starts or stops.
  Mutex delivery_mutex_{LockRank::kSoftRecordingDelivery};
  bool thread_started_ GUARDED_BY(delivery_mutex_) = false;

  // Held for reading by all that tell.
  SharedMutex sink_mutex_{LockRank::kSoftRecordingSink};
  cupti::ActivitySink sink_ GUARDED_BY(sink_mutex_);
  uint32_t recording_ GUARDED_BY(sink_mutex_) = 0;  // 0: no sink

  Mutex ended_mutex_{LockRank::kSoftRecordingEnded};
  CondVar more_;
  std::unique_ptr<WorkRecord> first_ GUARDED_BY(ended_mutex_);
  WorkRecord* last_ GUARDED_BY(ended_mutex_) = nullptr;  // null: the list is empty
};

CUresult Recorder::start(const cupti::ActivitySink& sink) {
  const MutexLock delivery(delivery_mutex_);
  const WriterLock lock(sink_mutex_);
  if (recording_ != 0) return CUDA_ERROR_ALREADY_ACQUIRED;
  if (!thread_started_) {
    start_helper_thread("softgpu-record", [this] { thread_main(); });
    thread_started_ = true;
  }
  sink_ = sink;
  recording_ = next_number(last_recording);
  lost.store(0, std::memory_order_relaxed);
  open_recording.store(recording_, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

void Recorder::stop() {
  const MutexLock delivery(delivery_mutex_);
  open_recording.store(0, std::memory_order_relaxed);
  flush_locked();
  const WriterLock lock(sink_mutex_);
  sink_ = {};
  recording_ = 0;
}

void Recorder::flush() {
  const MutexLock delivery(delivery_mutex_);
  flush_locked();
}

void Recorder::flush_locked() {
  std::unique_ptr<WorkRecord> record = take_ended();
  const ReaderLock lock(sink_mutex_);
  for (; record != nullptr; record = std::move(record->next)) {
    // Work of a recording that is over may end in the next one.
    if (record->recording != recording_) continue;
    const bool is_kernel = record->activity.kind == cupti::ActivityKind::kKernel;
    sink_.take(sink_.self, &record->activity, is_kernel ? record->name.c_str() : nullptr);
  }
}

void Recorder::add_ended(std::unique_ptr<WorkRecord> record) {
  const MutexLock lock(ended_mutex_);
  const bool was_empty = last_ == nullptr;
  std::unique_ptr<WorkRecord>& place = was_empty ? first_ : last_->next;
  place = std::move(record);
  last_ = place.get();
  if (was_empty) more_.notify_one();
}

std::unique_ptr<WorkRecord> Recorder::take_ended() {
  const MutexLock lock(ended_mutex_);
  last_ = nullptr;
  return std::move(first_);
}

void Recorder::tell_call(uint32_t recording, const cupti::Activity& call) {
  const ReaderLock lock(sink_mutex_);
  if (recording == recording_) sink_.take(sink_.self, &call, nullptr);
}

void Recorder::thread_main() {
  for (;;) {
    {
      const MutexLock lock(ended_mutex_);
      while (last_ == nullptr) more_.wait(ended_mutex_);
    }
    monotonic_clock().sleep(kGatherNs);
    flush();
  }
}

// Made by the first recording, and never destroyed: its thread runs until the process ends.
std::atomic<Recorder*> the_recorder{nullptr};
// The parent's in a forked child, where neither its thread nor the owners of its locks are.
std::atomic<Recorder*> abandoned_recorder{nullptr};

void after_fork_in_child() {
  open_recording = 0;
  if (Recorder* recorder = the_recorder.exchange(nullptr)) abandoned_recorder = recorder;
}

Recorder& recorder() {
  if (Recorder* made = the_recorder.load(std::memory_order_acquire)) return *made;
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, after_fork_in_child);
  auto mine = std::make_unique<Recorder>();
  Recorder* other = nullptr;
  return the_recorder.compare_exchange_strong(other, mine.get()) ? *mine.release() : *other;
}

}  // namespace

// ---- Work -------------------------------------------------------------------------------------

std::unique_ptr<WorkRecord> make_record(const WorkOrigin& origin, cupti::ActivityKind kind,
                                        int device, uint64_t stream, std::string_view name) {
  if (origin.recording == 0 || origin.recording != open_recording.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  try {
    auto record = std::make_unique<WorkRecord>();
    record->recording = origin.recording;
    record->name = name;
    cupti::Activity& activity = record->activity;
    activity.kind = kind;
    activity.device = static_cast<uint32_t>(device);
    activity.context = origin.context;
    activity.stream = static_cast<uint32_t>(stream);
    activity.correlation = origin.correlation;
    activity.graph = origin.graph;
    activity.graph_node = origin.graph_node;
    return record;
  } catch (const std::bad_alloc&) {
    lost.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
}

void end_record(std::unique_ptr<WorkRecord> record) {
  if (record->activity.begin_ns != 0) recorder().add_ended(std::move(record));
}

// ---- Calls ------------------------------------------------------------------------------------

RecordedCall::RecordedCall(cupti::CallKind kind)
    : recording_(open_recording.load(std::memory_order_relaxed)) {
  activity_.kind = cupti::ActivityKind::kCall;
  activity_.call = kind;
  activity_.correlation = next_number(last_correlation);
  activity_.thread = static_cast<uint32_t>(syscall(SYS_gettid));
  activity_.begin_ns = now_ns();
  current_call = this;
}

RecordedCall::~RecordedCall() { current_call = nullptr; }

RecordedCall* RecordedCall::current() { return current_call; }

WorkOrigin RecordedCall::give(int device, uint64_t context, uint64_t stream) {
  gave_work_ = true;
  activity_.device = static_cast<uint32_t>(device);
  activity_.context = static_cast<uint32_t>(context);
  activity_.stream = static_cast<uint32_t>(stream);
  return {recording_, activity_.correlation, activity_.context};
}

CUresult RecordedCall::end(CUresult result) {
  if (!gave_work_ || recording_ == 0) return result;
  activity_.end_ns = now_ns();
  activity_.result = result;
  recorder().tell_call(recording_, activity_);
  return result;
}

// ---- Recordings -------------------------------------------------------------------------------

CUresult start_recording(const cupti::ActivitySink& sink) {
  try {
    return recorder().start(sink);
  } catch (const std::exception&) {  // no memory, or no thread
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

void stop_recording() {
  if (Recorder* made = the_recorder.load(std::memory_order_acquire)) made->stop();
}

void flush_recording() {
  if (Recorder* made = the_recorder.load(std::memory_order_acquire)) made->flush();
}

uint64_t lost_activities() { return lost.load(std::memory_order_relaxed); }

}  // namespace openmps::softgpu
