// SPDX-License-Identifier: Apache-2.0
// Records when the work of sessions runs on the devices, for those who have asked for it: a
// program's profiler, `openmps trace`, or the worker's trace file. While nobody asks it costs a
// look at a flag for each piece of work, and the driver works as it does without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "cupti/recording.h"
#include "wire/trace.h"
#include "worker/recording/source.h"

namespace openmps::worker {

// What waits for a reader that is slow, of one recording: a second of 300,000 launches. Beyond it
// activities are lost, and counted.
inline constexpr size_t kMostUnsentBytes = 64ull << 20;

// Readers of one worker. Those of a server's traces (server/server.h) are recordings of each
// session.
inline constexpr size_t kMostRecordings = 1024;

class Recorder final : ActivitySource::Listener {
 public:
  // RecordedCalls a function while nothing runs on the devices and nothing is given to them. False:
  // there was no such moment.
  using WhenQuiet = std::function<bool(const std::function<void()>&)>;
  // Profilers record some steps of a loop, again and again: for so long the source stays.
  static constexpr uint64_t kLingerNs = 3'000'000'000;

  Recorder(const Clock& clock, std::unique_ptr<ActivitySource> source, WhenQuiet when_quiet,
           uint64_t linger_ns = kLingerNs);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // A session that can be recorded: from its first work to its last.
  class Member {
   public:
    // `pid`, `command`: of its program.
    Member(Recorder& recorder, uint32_t session, uint32_t pid, std::string command);
    // What was recorded of it is still sent.
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // The session is being recorded. Any thread.
    [[nodiscard]] bool is_on() const { return recordings_.load(std::memory_order_relaxed) != 0; }

   private:
    friend class Recorder;
    Recorder& recorder_;
    const uint32_t session_;
    const uint32_t pid_;
    const std::string command_;
    std::atomic<uint32_t> recordings_{0};  // written under the recorder's lock
  };
  // While it exists the calling thread gives the driver what one command of the session asks for.
  class Giving {
   public:
    // `member` null, or not on: nothing is noted. `stream`: the client's number. `command`: where
    // the command ends in the session's ring.
    Giving(Member* member, uint32_t stream, uint64_t command)
        : recorder_(member != nullptr && member->is_on() ? &member->recorder_ : nullptr) {
      if (recorder_ != nullptr) [[unlikely]]
        current_work = {member->session_, stream, command, recorder_->clock_.now_ns()};
    }
    ~Giving() {
      if (recorder_ != nullptr) [[unlikely]]
        current_work.session = 0;
    }
    Giving(const Giving&) = delete;
    Giving& operator=(const Giving&) = delete;

   private:
    Recorder* const recorder_;
  };

  // Record what the session gives from now on, until it ends or the reader at the other end of
  // `to`, a SOCK_SEQPACKET connection, goes. The first thing sent is the answer kBegun or why not.
  // Packets of eight bytes that come from there are questions: each has an answer behind what had
  // ended when it came. A reader that shuts down its side for writing gets what has ended so far,
  // and then this end is closed. Returns at once. Any thread.
  void record(uint32_t session, UniqueFd to);
  // Record all sessions, for as long as this object exists, into the trace file. Before there are
  // sessions.
  void trace_into(std::shared_ptr<wire::Trace> trace);

 private:
  struct Recording {
    Recording(uint32_t session, UniqueFd to, uint64_t writer)
        : session(session), to(std::move(to)), writer(writer) {}
    // Nothing comes but the reason.
    void fail(std::string_view why) {
      writer.add_failure(why);
      is_new = false;
      is_ending = true;
    }
    const uint32_t session;
    const UniqueFd to;
    cupti::RecordingWriter writer;
    std::deque<std::vector<std::byte>> unsent;
    size_t unsent_bytes = 0;
    uint64_t lost = 0;
    std::vector<uint64_t> questions;
    bool is_new = true;
    bool is_counted = false;  // its session is recorded because of it
    bool is_ending = false;   // its session has ended
    bool was_ending = false;  // before the last flush
    bool is_over = false;     // it is not to be written to any more
  };

  void take(std::span<const ActivitySource::Ended> ended) override;
  void write_trace(const cupti::Recorded& recorded, std::string_view name) REQUIRES(mutex_);
  void start_thread() REQUIRES(mutex_);
  void wake();
  void run();
  // Waits for something to do.
  void rest();
  // Attaches the source if there are recordings, and takes it away some time after the last one.
  void settle_source();
  void begin_source();
  void end_source();
  void flush();
  static void read_questions(Recording& recording);
  static void send(Recording& recording);
  void remove_over() REQUIRES(mutex_);

  const Clock& clock_;
  const std::unique_ptr<ActivitySource> source_;
  const WhenQuiet when_quiet_;
  const uint64_t linger_ns_;
  Mutex mutex_{LockRank::kRecorder};
  std::map<uint32_t, Member*> members_ GUARDED_BY(mutex_);
  std::list<Recording> recordings_ GUARDED_BY(mutex_);
  std::shared_ptr<wire::Trace> trace_ GUARDED_BY(mutex_);
  const UniqueFd wake_;  // eventfd: the thread has something to do
  std::atomic<bool> ends_{false};
  std::atomic<bool> is_attached_{false};  // written by the thread
  uint64_t unwanted_since_ns_ = 0;        // the thread's; 0: the source is wanted
  uint64_t lost_before_ = 0;              // the thread's: what the source had lost at the last look
  std::thread thread_ GUARDED_BY(mutex_);
};

}  // namespace openmps::worker
