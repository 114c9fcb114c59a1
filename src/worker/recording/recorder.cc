// SPDX-License-Identifier: Apache-2.0
// See recorder.h.
#include "worker/recording/recorder.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "cupti/describe.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// How often what has ended is asked for and sent on: a fraction of a second, in which the fastest
// launchers fill some tens of MiB.
constexpr int kFlushPeriodMs = 100;

// Of all recordings of this process, for RecordingWriter.
uint64_t next_writer() {
  static std::atomic<uint32_t> last{0};
  return static_cast<uint64_t>(getpid()) << 32 | ++last;
}

}  // namespace

Recorder::Recorder(const Clock& clock, std::unique_ptr<ActivitySource> source, WhenQuiet when_quiet,
                   uint64_t linger_ns)
    : clock_(clock),
      source_(std::move(source)),
      when_quiet_(std::move(when_quiet)),
      linger_ns_(linger_ns),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Recorder::~Recorder() {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
  ends_ = true;
  wake();
  if (thread.joinable()) thread.join();
}

void Recorder::wake() { eventfd_write(wake_.get(), 1); }

Recorder::Member::Member(Recorder& recorder, uint32_t session, uint32_t pid, std::string command)
    : recorder_(recorder), session_(session), pid_(pid), command_(std::move(command)) {
  const MutexLock lock(recorder_.mutex_);
  recorder_.members_[session_] = this;
  if (recorder_.trace_ != nullptr) recordings_ = 1;
}

Recorder::Member::~Member() {
  const MutexLock lock(recorder_.mutex_);
  recorder_.members_.erase(session_);
  for (Recording& recording : recorder_.recordings_) {
    if (recording.session == session_) recording.is_ending = true;
  }
  recorder_.wake();
}

void Recorder::record(uint32_t session, UniqueFd to) try {
  {
    const MutexLock lock(mutex_);
    Recording& recording = recordings_.emplace_back(session, std::move(to), next_writer());
    const auto found = members_.find(session);
    if (found == members_.end()) {
      recording.is_ending = true;
    } else if (recordings_.size() > kMostRecordings) {
      recording.fail("this worker has as many recordings as it may have");
    } else {
      const Member& member = *found->second;
      found->second->recordings_.fetch_add(1, std::memory_order_relaxed);
      recording.is_counted = true;
      recording.writer.add_session(session, member.pid_, member.command_);
    }
    start_thread();
  }
  wake();
} catch (const std::exception& error) {  // the reader sees that nobody writes
  log("Session " + std::to_string(session) + " can't be recorded: " + error.what());
}

void Recorder::trace_into(std::shared_ptr<wire::Trace> trace) {
  {
    const MutexLock lock(mutex_);
    trace_ = std::move(trace);
    start_thread();
  }
  wake();
}

void Recorder::start_thread() {
  if (thread_.joinable()) return;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "recorder");
}

// ---- The source's threads -----------------------------------------------------------------------

void Recorder::take(std::span<const ActivitySource::Ended> ended) {
  const MutexLock lock(mutex_);
  for (const auto& [work, activity, name] : ended) {
    const cupti::Recorded recorded{.session = work.session,
                                   .stream = work.stream,
                                   .command = work.command,
                                   .given_ns = work.given_ns,
                                   .activity = activity};
    const std::string_view text = name == nullptr ? "" : name;
    if (trace_ != nullptr) write_trace(recorded, text);
    for (Recording& recording : recordings_) {
      if (recording.session != work.session || recording.is_over) continue;
      if (recording.unsent_bytes + recording.writer.bytes() > kMostUnsentBytes) {
        ++recording.lost;
        continue;
      }
      try {
        recording.writer.add(recorded, text);
      } catch (const std::bad_alloc&) {
        ++recording.lost;
      }
    }
  }
}

// ---- The thread ---------------------------------------------------------------------------------

void Recorder::run() {
  while (!ends_.load()) {
    try {
      rest();
      settle_source();
      flush();
    } catch (const std::bad_alloc&) {  // it is tried again
      clock_.sleep(kFlushPeriodMs * kNsPerMs);
    }
  }
  if (is_attached_) source_->stop();
}

void Recorder::rest() {
  std::vector<pollfd> wait{{wake_.get(), POLLIN, 0}};
  bool is_idle = false;
  {
    const MutexLock lock(mutex_);
    is_idle = recordings_.empty() && trace_ == nullptr && !is_attached_;
    for (const Recording& recording : recordings_) {
      // From a reader that wants the rest nothing more comes, but the end of what it sends.
      const int from = recording.is_ending ? 0 : POLLIN;
      const int to = recording.unsent.empty() ? 0 : POLLOUT;
      wait.push_back({recording.to.get(), static_cast<short>(from | to), 0});
    }
  }
  poll(wait.data(), wait.size(), is_idle ? -1 : kFlushPeriodMs);
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
}

void Recorder::settle_source() {
  bool is_wanted = false;
  {
    const MutexLock lock(mutex_);
    is_wanted = trace_ != nullptr;
    for (const Recording& recording : recordings_) {
      is_wanted |= !recording.is_over && (is_attached_ || !recording.is_ending);
    }
  }
  if (is_wanted) {
    unwanted_since_ns_ = 0;
    if (!is_attached_) begin_source();
  } else if (is_attached_) {
    const uint64_t now = clock_.now_ns();
    if (unwanted_since_ns_ == 0) unwanted_since_ns_ = now;
    if (now - unwanted_since_ns_ >= linger_ns_) end_source();
  }
}

void Recorder::begin_source() {
  const Status started = source_->start(*this);
  is_attached_ = started.ok();
  lost_before_ = 0;
  if (started.ok()) return;
  log("Nothing can be recorded: " + started.message());
  const MutexLock lock(mutex_);
  trace_.reset();
  for (Recording& recording : recordings_) recording.fail(started.message());
}

void Recorder::end_source() {
  if (!when_quiet_([this] { source_->stop(); })) {
    log("Launches stay slower: work runs all the time, so that what records it can't be taken "
        "away");
    unwanted_since_ns_ = clock_.now_ns();  // it is tried again
    return;
  }
  is_attached_ = false;
}

void Recorder::flush() {
  // References stay valid: only this thread removes recordings.
  std::vector<Recording*> all;
  auto how = ActivitySource::Flush::kFull;
  {
    const MutexLock lock(mutex_);
    for (Recording& recording : recordings_) {
      read_questions(recording);
      if (recording.is_new && is_attached_) recording.writer.add_answer(cupti::kBegun);
      recording.is_new &= !is_attached_;
      recording.was_ending = recording.is_ending;
      if (recording.is_ending || !recording.questions.empty()) how = ActivitySource::Flush::kAll;
      all.push_back(&recording);
    }
  }
  if (is_attached_) source_->flush(how);
  const uint64_t lost = is_attached_ ? source_->lost() : lost_before_;
  const MutexLock lock(mutex_);
  for (Recording* recording : all) {
    for (const uint64_t question : std::exchange(recording->questions, {})) {
      recording->writer.add_answer(question);
    }
    recording->lost += lost - lost_before_;
    send(*recording);
    recording->is_over |= recording->was_ending && recording->unsent.empty();
  }
  lost_before_ = lost;
  remove_over();
}

void Recorder::read_questions(Recording& recording) {
  for (;;) {
    uint64_t question = 0;
    const ssize_t got = recv(recording.to.get(), &question, sizeof(question), MSG_DONTWAIT);
    if (got == sizeof(question)) {
      recording.questions.push_back(question);
    } else if (got == 0) {
      recording.is_ending = true;
      return;
    } else if (got > 0 || errno != EINTR) {
      recording.is_over = got > 0 || errno != EAGAIN;
      return;
    }
  }
}

void Recorder::send(Recording& recording) {
  recording.writer.set_lost(recording.lost);
  for (std::vector<std::byte>& packet : recording.writer.take()) {
    recording.unsent_bytes += packet.size();
    recording.unsent.push_back(std::move(packet));
  }
  while (!recording.is_over && !recording.unsent.empty()) {
    const std::vector<std::byte>& packet = recording.unsent.front();
    const ssize_t sent =
        ::send(recording.to.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      recording.is_over = errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM;
      return;
    }
    recording.unsent_bytes -= packet.size();
    recording.unsent.pop_front();
  }
}

void Recorder::remove_over() {
  for (auto recording = recordings_.begin(); recording != recordings_.end();) {
    if (!recording->is_over) {
      ++recording;
      continue;
    }
    const auto found = members_.find(recording->session);
    if (recording->is_counted && found != members_.end()) {
      found->second->recordings_.fetch_sub(1, std::memory_order_relaxed);
    }
    recording = recordings_.erase(recording);
    wake();  // the source may not be wanted any more
  }
}

// On the lane of the session's stream on its device.
void Recorder::write_trace(const cupti::Recorded& recorded, std::string_view name) {
  const cupti::Activity& activity = recorded.activity;
  const std::string lane = "session " + std::to_string(recorded.session) + " GPU " +
                           std::to_string(activity.device) + " stream " +
                           std::to_string(recorded.stream);
  wire::Fields fields{{"command", std::to_string(recorded.command)}};
  for (const auto& [field, value] : cupti::fields_of(activity)) fields.emplace_back(field, value);
  trace_->device_work(lane, cupti::title_of(activity, name), fields, activity.begin_ns,
                      activity.end_ns);
}

}  // namespace openmps::worker
