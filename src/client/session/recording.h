// SPDX-License-Identifier: Apache-2.0
// Learns from the worker when the session's kernels, copies and fills have run, for a profiler in
// the program (cupti/activity.h). Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "base/unique_fd.h"
#include "client/context/stream.h"
#include "client/devices.h"
#include "client/link/channel.h"
#include "client/link/passage.h"
#include "cuda/abi.h"
#include "cupti/activity.h"
#include "cupti/recording.h"

namespace openmps::client {

class Recording final : WorkObserver {
 public:
  Recording(Channel& channel, Passage& passage, const Streams& streams, const Devices& devices)
      : channel_(channel), passage_(passage), streams_(streams), devices_(devices) {}

  // As the functions of ActivityTable, of the same names.
  [[nodiscard]] CUresult start(const cupti::ActivitySink& sink, const char** why);
  [[nodiscard]] CUresult stop();
  [[nodiscard]] CUresult flush();
  [[nodiscard]] uint64_t lost();

 private:
  enum class State { kOff, kBegins, kOn, kFailed };
  // A command that has given work, as the program names it.
  struct Given {
    uint64_t end = 0;
    uint32_t correlation = 0;
    uint32_t stream = 0;
    uint32_t context = 0;
    uint32_t device = 0;
  };

  void given(cupti::CallKind kind, wire::Id stream, uint64_t end, uint64_t begin_ns) override;
  // Tells of this thread's calls.
  void order_left() override;
  // Connects with the session's worker. False: it does not go.
  bool connect() REQUIRES(lock_);
  // Waits for the end of the reader.
  void end() REQUIRES(lock_);
  static void* thread_main(void* self);
  void read();
  // What came from the worker. False: the connection is of no use any more.
  bool take(std::span<const std::byte> packet, cupti::RecordingReader& reader);
  void tell(const cupti::RecordingReader::Item& item);
  // What the program calls the command that ends there; `correlation` 0: it is not known.
  [[nodiscard]] Given find_given(uint64_t end);

  Channel& channel_;
  Passage& passage_;
  const Streams& streams_;
  const Devices& devices_;
  Mutex lock_{LockRank::kClientRecording};
  CondVar changed_;
  State state_ GUARDED_BY(lock_) = State::kOff;
  bool is_reading_ GUARDED_BY(lock_) = false;  // the thread has not ended
  UniqueFd connection_ GUARDED_BY(lock_);      // read by the thread
  uint64_t asked_ GUARDED_BY(lock_) = 0;       // the last question, and
  uint64_t answered_ GUARDED_BY(lock_) = 0;    // the last answer
  uint64_t lost_ GUARDED_BY(lock_) = 0;
  const char* why_ GUARDED_BY(lock_) = nullptr;
  cupti::ActivitySink sink_;  // constant while something is recorded
  // Taken with the order of the commands held.
  Mutex given_lock_{LockRank::kClientRecorded};
  std::deque<Given> given_ GUARDED_BY(given_lock_);  // in the order of the ring
  // Calls whose threads have still to tell of them, and how many threads do that now.
  std::vector<cupti::Activity> untold_ GUARDED_BY(given_lock_);
  uint32_t telling_ GUARDED_BY(given_lock_) = 0;
  CondVar told_;
  uint32_t last_correlation_ GUARDED_BY(given_lock_) = 0;
};

}  // namespace openmps::client
