// SPDX-License-Identifier: Apache-2.0
#include "cupti/recorder.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "cupti/driver.h"
#include "cupti/external_ids.h"

namespace openmps::cupti {
namespace {

enum class Support {
  kRecorded,
  // There are no such records, and asking for them is no error: XLA gives up all that it had not
  // yet asked for at the first error, and it asks for OVERHEAD before MEMSET; Kineto warns.
  kSilent,
  kCounters,  // counters and samples of the device's units, which nobody here reads
  kInvalid,
};

Support support_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
    case CUPTI_ACTIVITY_KIND_MEMSET:
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return Support::kRecorded;
    case CUPTI_ACTIVITY_KIND_EVENT:
    case CUPTI_ACTIVITY_KIND_METRIC:
    case CUPTI_ACTIVITY_KIND_EVENT_INSTANCE:
    case CUPTI_ACTIVITY_KIND_METRIC_INSTANCE:
    case CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT:
    case CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT_INSTANCE:
    case CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC:
    case CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC_INSTANCE:
    case CUPTI_ACTIVITY_KIND_SOURCE_LOCATOR:
    case CUPTI_ACTIVITY_KIND_GLOBAL_ACCESS:
    case CUPTI_ACTIVITY_KIND_BRANCH:
    case CUPTI_ACTIVITY_KIND_SHARED_ACCESS:
    case CUPTI_ACTIVITY_KIND_INSTRUCTION_EXECUTION:
    case CUPTI_ACTIVITY_KIND_INSTRUCTION_CORRELATION:
    case CUPTI_ACTIVITY_KIND_PC_SAMPLING:
    case CUPTI_ACTIVITY_KIND_PC_SAMPLING_RECORD_INFO: return Support::kCounters;
    default: break;
  }
  return kind > CUPTI_ACTIVITY_KIND_INVALID && kind < CUPTI_ACTIVITY_KIND_COUNT ? Support::kSilent
                                                                                : Support::kInvalid;
}

constexpr uint64_t bit(CUpti_ActivityKind kind) { return uint64_t{1} << kind; }

constexpr CallKind kCalls[] = {CallKind::kFill, CallKind::kCopy, CallKind::kLaunch,
                               CallKind::kGraphLaunch};
constexpr uint32_t kAllCalls = (1u << std::size(kCalls)) - 1;

uint32_t bit(CallKind call) {
  const auto* const found = std::find(std::begin(kCalls), std::end(kCalls), call);
  return found == std::end(kCalls) ? 0 : 1u << (found - std::begin(kCalls));
}

// A profiler starts where it can't tell its user why it has nothing: Kineto logs a number.
void explain_once(const char* why) {
  static std::atomic<bool> explained{false};
  if (!explained.exchange(true)) fprintf(stderr, "openmps: %s\n", why);
}

}  // namespace

Recorder& recorder() {
  static auto* const one = new Recorder;  // threads of the driver may outlive a destructor
  return *one;
}

// ---- What the profiler asks for ---------------------------------------------------------------

CUptiResult Recorder::set_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                    CUpti_BuffersCallbackCompleteFunc complete) {
  if (request == nullptr || complete == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const MutexLock guard(lock_);
  callbacks_ = {request, complete};
  return CUPTI_SUCCESS;
}

CUptiResult Recorder::set_clock(RecordTimes::Source clock) {
  if (clock == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  {
    const MutexLock guard(lock_);
    clock_ = clock;
    times_.clear();
  }
  read_clock_until(now_ns());
  return CUPTI_SUCCESS;
}

uint64_t Recorder::timestamp() {
  RecordTimes::Source clock = nullptr;
  {
    const MutexLock guard(lock_);
    clock = clock_;
  }
  return clock == nullptr ? wall_clock_ns() : clock();
}

void Recorder::set_thread_ids(CUpti_ActivityThreadIdType type) {
  const MutexLock guard(lock_);
  thread_ids_ = type;
}

CUpti_ActivityThreadIdType Recorder::thread_ids() {
  const MutexLock guard(lock_);
  return thread_ids_;
}

bool Recorder::anything_wanted() const {
  constexpr uint64_t kOthers =
      bit(CUPTI_ACTIVITY_KIND_KERNEL) | bit(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) |
      bit(CUPTI_ACTIVITY_KIND_MEMCPY) | bit(CUPTI_ACTIVITY_KIND_MEMCPY2) |
      bit(CUPTI_ACTIVITY_KIND_MEMSET) | bit(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  return calls_ != 0 || (kinds_ & kOthers) != 0;
}

CUptiResult Recorder::enable(CUpti_ActivityKind kind) {
  const Support support = support_of(kind);
  // These two errors are NVIDIA's (seen with CUPTI 13.0).
  if (support == Support::kInvalid) return CUPTI_ERROR_NOT_COMPATIBLE;
  if (support == Support::kCounters) return CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED;
  if (support == Support::kSilent) return CUPTI_SUCCESS;
  read_clock_until(now_ns());
  const MutexLock control(control_);
  {
    const MutexLock guard(lock_);
    // A kernel has one record.
    const bool serial = kind == CUPTI_ACTIVITY_KIND_KERNEL;
    const bool concurrent = kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    if ((serial && wanted(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) ||
        (concurrent && wanted(CUPTI_ACTIVITY_KIND_KERNEL))) {
      return CUPTI_ERROR_NOT_COMPATIBLE;
    }
  }
  const CUptiResult started = start();
  if (started != CUPTI_SUCCESS) return started;
  const MutexLock guard(lock_);
  kinds_ |= bit(kind);
  if (kind == CUPTI_ACTIVITY_KIND_DRIVER) calls_ = kAllCalls;
  return CUPTI_SUCCESS;
}

CUptiResult Recorder::disable(CUpti_ActivityKind kind) {
  const Support support = support_of(kind);
  if (support == Support::kInvalid) return CUPTI_ERROR_INVALID_KIND;
  if (support != Support::kRecorded) return CUPTI_SUCCESS;
  // What has ended is still of this kind. The buffer stays here until a flush, as with NVIDIA's:
  // older Kinetos come for the records later, and only if one of their buffers is still away.
  const CUptiResult flushed = flush_driver();
  const MutexLock control(control_);
  {
    const MutexLock guard(lock_);
    kinds_ &= ~bit(kind);
    if (kind == CUPTI_ACTIVITY_KIND_DRIVER) calls_ = 0;
  }
  const CUptiResult stopped = stop_if_idle();
  return flushed != CUPTI_SUCCESS ? flushed : stopped;
}

CUptiResult Recorder::enable_call(CUpti_CallbackId call, bool on) {
  const uint32_t wanted = bit(static_cast<CallKind>(call));
  if (wanted == 0) return CUPTI_SUCCESS;  // of which there is no record
  if (on) read_clock_until(now_ns());
  const MutexLock control(control_);
  if (on) {
    const CUptiResult started = start();
    if (started != CUPTI_SUCCESS) return started;
  }
  {
    const MutexLock guard(lock_);
    calls_ = on ? calls_ | wanted : calls_ & ~wanted;
  }
  return stop_if_idle();
}

CUptiResult Recorder::start() {
  if (running_ != nullptr) return CUPTI_SUCCESS;
  const ActivityTable* const table = activity_table();
  if (table == nullptr) {
    explain_once(
        "this libcupti records programs that run behind OpenMPS, and this one does not: run it "
        "without --profile");
    return CUPTI_ERROR_NOT_INITIALIZED;
  }
  {
    const MutexLock guard(lock_);
    lost_told_ = 0;
  }
  const ActivitySink sink{&Recorder::take_activity, this};
  const char* why = nullptr;
  const CUresult result = table->start(&sink, &why);
  if (result == CUDA_ERROR_ALREADY_ACQUIRED) return CUPTI_ERROR_DISABLED;
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    explain_once(why != nullptr ? why : "nothing can be recorded here");
    return CUPTI_ERROR_NOT_SUPPORTED;
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return CUPTI_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) return CUPTI_ERROR_UNKNOWN;
  running_ = table;
  return CUPTI_SUCCESS;
}

// What stop() flushes finds no kind wanted, and so calls nothing of the profiler's.
CUptiResult Recorder::stop_if_idle() {
  {
    const MutexLock guard(lock_);
    if (running_ == nullptr || anything_wanted()) return CUPTI_SUCCESS;
  }
  const ActivityTable* const table = running_.exchange(nullptr);
  note_lost(table->lost());
  return table->stop() == CUDA_SUCCESS ? CUPTI_SUCCESS : CUPTI_ERROR_UNKNOWN;
}

CUptiResult Recorder::flush_driver() {
  const ActivityTable* const table = running_;
  return table == nullptr || table->flush() == CUDA_SUCCESS ? CUPTI_SUCCESS : CUPTI_ERROR_UNKNOWN;
}

CUptiResult Recorder::flush() {
  const CUptiResult flushed = flush_driver();
  std::vector<Buffer> buffers;
  Callbacks callbacks;
  {
    const MutexLock guard(lock_);
    buffers = detach_buffers();
    callbacks = callbacks_;
  }
  hand_over(buffers, callbacks);
  return flushed;
}

// So many have been lost in the driver since it began to record.
void Recorder::note_lost(uint64_t lost) {
  const MutexLock guard(lock_);
  if (lost <= lost_told_) return;
  dropped_ += lost - std::exchange(lost_told_, lost);
}

uint64_t Recorder::take_dropped() {
  if (const ActivityTable* const table = running_; table != nullptr) note_lost(table->lost());
  const MutexLock guard(lock_);
  return std::exchange(dropped_, 0);
}

CUptiResult Recorder::finalize() {
  CUptiResult result = flush_driver();
  {
    const MutexLock control(control_);
    {
      const MutexLock guard(lock_);
      kinds_ = 0;
      calls_ = 0;
    }
    const CUptiResult stopped = stop_if_idle();
    if (result == CUPTI_SUCCESS) result = stopped;
  }
  std::vector<Buffer> buffers;
  Callbacks callbacks;
  {
    const MutexLock guard(lock_);
    buffers = detach_buffers();
    callbacks = std::exchange(callbacks_, {});
    clock_ = nullptr;
    times_.clear();
    thread_ids_ = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
    dropped_ = 0;
  }
  hand_over(buffers, callbacks);
  return result;
}

// ---- What the driver tells --------------------------------------------------------------------

void Recorder::take_activity(void* self, const Activity* activity, const char* name) {
  auto& recorder = *static_cast<Recorder*>(self);
  try {
    recorder.take(*activity, name);
  } catch (const std::bad_alloc&) {
    const MutexLock guard(recorder.lock_);
    ++recorder.dropped_;
  }
}

bool Recorder::wants(const Activity& activity) const {
  switch (activity.kind) {
    case ActivityKind::kKernel:
      return wanted(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) || wanted(CUPTI_ACTIVITY_KIND_KERNEL);
    case ActivityKind::kCopy:
      return wanted(CUPTI_ACTIVITY_KIND_MEMCPY) ||
             (activity.is_peer != 0 && wanted(CUPTI_ACTIVITY_KIND_MEMCPY2));
    case ActivityKind::kFill: return wanted(CUPTI_ACTIVITY_KIND_MEMSET);
    case ActivityKind::kCall:
      return (calls_ & bit(activity.call)) != 0 || wanted(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  }
  return false;
}

void Recorder::take(const Activity& activity, const char* name) {
  {
    const MutexLock guard(lock_);
    if (!wants(activity)) return;
  }
  read_clock_until(std::max(activity.begin_ns, activity.end_ns));
  Records records;
  {
    const MutexLock guard(lock_);
    if (!wants(activity)) return;  // any more
    make_records(activity, name, records);
  }
  for (size_t i = 0; i < records.count; ++i) put(records.all[i]);
}

void Recorder::read_clock_until(uint64_t ns) {
  RecordTimes::Source clock = nullptr;
  {
    const MutexLock guard(lock_);
    if (times_.covers(ns)) return;
    clock = clock_;
  }
  const auto reading = RecordTimes::read(clock == nullptr ? &wall_clock_ns : clock);
  const MutexLock guard(lock_);
  if (clock == clock_) times_.add(reading);
}

const char* Recorder::keep(std::string_view name) {
  auto found = names_.find(name);
  if (found == names_.end()) found = names_.emplace(name).first;
  return found->c_str();
}

void Recorder::make_records(const Activity& activity, const char* name, Records& to) {
  const Span span{times_.at(activity.begin_ns), times_.at(activity.end_ns)};
  switch (activity.kind) {
    case ActivityKind::kKernel:
      to.add(kernel_record(wanted(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
                               ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                               : CUPTI_ACTIVITY_KIND_KERNEL,
                           activity, span, keep(name == nullptr ? "" : name)));
      return;
    case ActivityKind::kCopy:
      to.add(activity.is_peer != 0 && wanted(CUPTI_ACTIVITY_KIND_MEMCPY2)
                 ? peer_copy_record(activity, span)
                 : copy_record(activity, span));
      return;
    case ActivityKind::kFill: to.add(fill_record(activity, span)); return;
    case ActivityKind::kCall:
      // NVIDIA's gives the numbers beside records of calls only, of which those of the runtime are
      // missing here. They are given whether there is a call's record or not.
      if (wanted(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) add_external_ids(activity, to);
      if ((calls_ & bit(activity.call)) == 0) return;
      to.add(call_record(activity, span,
                         thread_ids_ == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM
                             ? activity.thread
                             : static_cast<uint32_t>(pthread_self())));
      return;
  }
}

void Recorder::add_external_ids(const Activity& call, Records& to) {
  for (uint32_t kind = 0; kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE; ++kind) {
    const auto external = static_cast<CUpti_ExternalCorrelationKind>(kind);
    const std::optional<uint64_t> id = external_id(external);
    if (id) to.add(external_record(external, *id, call.correlation));
  }
}

// ---- Buffers ----------------------------------------------------------------------------------

bool Recorder::Buffer::append(const Record& record) {
  if (data == nullptr || record.size > size - used) return false;
  if (most_records != 0 && records >= most_records) return false;
  memcpy(data + used, record.bytes, record.size);
  used += record.size;
  ++records;
  return true;
}

Recorder::Buffer Recorder::request(Callbacks callbacks) {
  if (callbacks.request == nullptr) return {};
  Buffer buffer;
  callbacks.request(&buffer.data, &buffer.size, &buffer.most_records);
  return buffer;
}

void Recorder::hand_over(const std::vector<Buffer>& buffers, Callbacks callbacks) {
  for (const Buffer& buffer : buffers) {
    callbacks.complete(nullptr, 0, buffer.data, buffer.size, buffer.used);
  }
}

std::vector<Recorder::Buffer> Recorder::detach_buffers() {
  std::vector<Buffer> buffers = std::exchange(set_aside_, {});
  if (current_.data != nullptr) buffers.push_back(std::exchange(current_, {}));
  return buffers;
}

// At most one new buffer is asked for.
void Recorder::put(const Record& record) {
  std::vector<Buffer> full;
  Callbacks callbacks;
  {
    const MutexLock guard(lock_);
    if (current_.append(record)) return;
    if (current_.data != nullptr && current_.used == 0) {  // smaller than the record
      ++dropped_;
      return;
    }
    full = detach_buffers();
    callbacks = callbacks_;
  }
  hand_over(full, callbacks);
  const Buffer next = request(callbacks);
  const MutexLock guard(lock_);
  if (next.data != nullptr) {
    // Another thread may have got one meanwhile.
    if (current_.data != nullptr) set_aside_.push_back(current_);
    current_ = next;
  }
  if (!current_.append(record)) ++dropped_;
}

}  // namespace openmps::cupti
