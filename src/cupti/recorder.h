// SPDX-License-Identifier: Apache-2.0
// What a profiler has asked for, and the records that it gets: the driver's activities become
// records in buffers of the profiler, in the order in which they come. Any thread.
//
// The profiler's functions are called without a lock of this library's. A thread that the driver
// tells of an activity calls them when a buffer is needed or full: there they may ask for times,
// lost records and the records of a buffer, and must not enable, disable or flush, which wait for
// that thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cupti/abi.h"
#include "cupti/activity.h"
#include "cupti/record_times.h"
#include "cupti/records.h"

namespace openmps::cupti {

class Recorder {
 public:
  Recorder() = default;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  CUptiResult set_callbacks(CUpti_BuffersCallbackRequestFunc request,
                            CUpti_BuffersCallbackCompleteFunc complete) EXCLUDES(lock_);
  CUptiResult set_clock(RecordTimes::Source clock) EXCLUDES(lock_);
  [[nodiscard]] uint64_t timestamp() EXCLUDES(lock_);  // now, in the clock of the records
  void set_thread_ids(CUpti_ActivityThreadIdType type) EXCLUDES(lock_);
  [[nodiscard]] CUpti_ActivityThreadIdType thread_ids() EXCLUDES(lock_);

  CUptiResult enable(CUpti_ActivityKind kind) EXCLUDES(control_, lock_);
  CUptiResult disable(CUpti_ActivityKind kind) EXCLUDES(control_, lock_);
  // Whether there are DRIVER records of that function: the kind switches all of them.
  CUptiResult enable_call(CUpti_CallbackId call, bool on) EXCLUDES(control_, lock_);
  CUptiResult flush() EXCLUDES(lock_);
  // Since it was last asked.
  [[nodiscard]] uint64_t take_dropped() EXCLUDES(lock_);
  // As if nothing had ever been asked for. The profiler gets its buffers back.
  CUptiResult finalize() EXCLUDES(control_, lock_);

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    size_t size = 0;
    size_t used = 0;
    size_t records = 0;
    size_t most_records = 0;  // 0: as many as there is room for

    bool append(const Record& record);
  };
  struct Callbacks {
    CUpti_BuffersCallbackRequestFunc request = nullptr;
    CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  };
  // A call's record, and before it one for each kind of external number.
  struct Records {
    std::array<Record, CUPTI_EXTERNAL_CORRELATION_KIND_SIZE> all;
    size_t count = 0;
    void add(const Record& record) { all[count++] = record; }
  };

  // By which a name is found without a copy of it.
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };

  static void take_activity(void* self, const Activity* activity, const char* name);
  void take(const Activity& activity, const char* name) EXCLUDES(lock_);
  void read_clock_until(uint64_t ns) EXCLUDES(lock_);
  [[nodiscard]] bool wants(const Activity& activity) const REQUIRES(lock_);
  // Of one that is wanted.
  void make_records(const Activity& activity, const char* name, Records& to) REQUIRES(lock_);
  static void add_external_ids(const Activity& call, Records& to);
  const char* keep(std::string_view name) REQUIRES(lock_);
  void put(const Record& record) EXCLUDES(lock_);
  static Buffer request(Callbacks callbacks);
  static void hand_over(const std::vector<Buffer>& buffers, Callbacks callbacks);
  std::vector<Buffer> detach_buffers() REQUIRES(lock_);  // all of them

  [[nodiscard]] bool anything_wanted() const REQUIRES(lock_);
  [[nodiscard]] bool wanted(CUpti_ActivityKind kind) const REQUIRES(lock_) {
    return (kinds_ >> kind & 1) != 0;
  }
  CUptiResult flush_driver() EXCLUDES(lock_);
  void note_lost(uint64_t lost) EXCLUDES(lock_);
  CUptiResult start() REQUIRES(control_);
  CUptiResult stop_if_idle() REQUIRES(control_) EXCLUDES(lock_);

  // Held while the driver is told to start or to stop, and not while it flushes, when it may call
  // the profiler's functions.
  Mutex control_{LockRank::kCuptiControl};
  std::atomic<const ActivityTable*> running_{nullptr};  // the driver's, while it records

  Mutex lock_{LockRank::kCuptiRecords};
  Callbacks callbacks_ GUARDED_BY(lock_);
  uint64_t kinds_ GUARDED_BY(lock_) = 0;  // a bit each
  uint32_t calls_ GUARDED_BY(lock_) = 0;  // of which there are DRIVER records, a bit each
  CUpti_ActivityThreadIdType thread_ids_ GUARDED_BY(lock_) = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
  RecordTimes::Source clock_ GUARDED_BY(lock_) = nullptr;  // null: the wall clock
  RecordTimes times_ GUARDED_BY(lock_);
  Buffer current_ GUARDED_BY(lock_);
  std::vector<Buffer> set_aside_ GUARDED_BY(lock_);  // not full, but not the current one any more
  uint64_t dropped_ GUARDED_BY(lock_) = 0;           // not told yet
  uint64_t lost_told_ GUARDED_BY(lock_) = 0;         // by the driver, and part of dropped_
  // Records point to names, and a profiler keeps records: these stay as long as the program runs.
  std::unordered_set<std::string, NameHash, std::equal_to<>> names_ GUARDED_BY(lock_);
};

// The program's one.
Recorder& recorder();

}  // namespace openmps::cupti
