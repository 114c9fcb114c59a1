// SPDX-License-Identifier: Apache-2.0
// See recording.h.
#include "client/session/recording.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread_end.h"
#include "base/unix_socket.h"
#include "client/debug.h"
#include "client/link/copy_pool.h"

namespace openmps::client {
namespace {

// The worker attaches CUPTI to contexts with thousands of kernels in a second; a machine that is
// overloaded takes longer. After that nothing is recorded.
constexpr uint64_t kBeginNs = 20'000'000'000;
// An answer comes within a tenth of a second, unless the machine is overloaded.
constexpr uint64_t kAnswerNs = 10'000'000'000;
// How often the reader looks whether it is to end, and asks another worker.
constexpr int kLookMs = 100;
// Commands whose work may be under way: as many as the worker keeps (worker/recording/recorder.cc).
constexpr size_t kMostGiven = 1u << 20;

uint32_t thread_number() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

}  // namespace

CUresult Recording::start(const cupti::ActivitySink& sink, const char** why) {
  const CancellationHeld held;
  {
    const MutexLock lock(lock_);
    if (state_ != State::kOff || is_reading_) return CUDA_ERROR_ALREADY_ACQUIRED;
    sink_ = sink;
    lost_ = asked_ = answered_ = 0;
    why_ = "the worker does not answer";
    state_ = State::kBegins;
    is_reading_ = connect() && start_helper_thread(thread_main, this, "openmps-recording");
    const uint64_t until = now_ns() + kBeginNs;
    while (is_reading_ && state_ == State::kBegins && changed_.wait_until(lock_, until)) {
    }
    if (state_ != State::kOn) {
      end();
      *why = why_;
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  channel_.observe_work(this);
  return CUDA_SUCCESS;
}

bool Recording::connect() {
  auto ends = make_socket_pair();
  if (!ends.ok() || passage_.record_into(ends->second.get()) != CUDA_SUCCESS) return false;
  connection_ = std::move(ends->first);
  return true;
}

CUresult Recording::stop() {
  const CancellationHeld held;
  channel_.observe_work(nullptr);
  {
    // Whoever is told of a command has the order of the commands: nobody is any more.
    const Channel::Order order = channel_.order();
  }
  {
    const MutexLock lock(given_lock_);
    while (telling_ != 0) told_.wait(given_lock_);
    untold_.clear();
  }
  const CUresult flushed = flush();
  const MutexLock lock(lock_);
  if (state_ == State::kOff) return CUDA_ERROR_INVALID_VALUE;
  end();
  const MutexLock given(given_lock_);
  given_.clear();
  return flushed;
}

void Recording::end() {
  state_ = State::kOff;
  while (is_reading_) changed_.wait(lock_);
  connection_.reset();
}

CUresult Recording::flush() {
  const CancellationHeld held;
  const MutexLock lock(lock_);
  if (state_ == State::kOff) return CUDA_ERROR_INVALID_VALUE;
  if (state_ != State::kOn) return CUDA_SUCCESS;  // nothing comes any more
  const uint64_t question = ++asked_;
  if (send(connection_.get(), &question, sizeof(question), MSG_NOSIGNAL) < 0) return CUDA_SUCCESS;
  const uint64_t until = now_ns() + kAnswerNs;
  while (state_ == State::kOn && answered_ < question) {
    if (!changed_.wait_until(lock_, until)) return CUDA_ERROR_TIMEOUT;
  }
  return CUDA_SUCCESS;
}

uint64_t Recording::lost() {
  const MutexLock lock(lock_);
  return lost_;
}

// ---- The program's threads ----------------------------------------------------------------------

void Recording::given(cupti::CallKind kind, wire::Id stream_id, uint64_t end,
                      uint64_t begin_ns) try {
  const Stream& stream = streams_.of_id(stream_id);
  const Context* const context = stream.context;
  Given given{.end = end,
              .stream = static_cast<uint32_t>(stream.unique_id),
              .context = context == nullptr ? 0 : static_cast<uint32_t>(context->unique_id),
              .device = context == nullptr ? 0 : context->device};
  const MutexLock lock(given_lock_);
  if (++last_correlation_ == 0) ++last_correlation_;
  given.correlation = last_correlation_;
  given_.push_back(given);
  if (given_.size() > kMostGiven) given_.pop_front();
  untold_.push_back({.kind = cupti::ActivityKind::kCall,
                     .device = given.device,
                     .context = given.context,
                     .stream = given.stream,
                     .correlation = given.correlation,
                     .begin_ns = begin_ns,
                     .end_ns = now_ns(),
                     .call = kind,
                     .thread = thread_number()});
} catch (const std::bad_alloc&) {  // this command's work is not recorded
}

void Recording::order_left() try {
  std::vector<cupti::Activity> calls;
  {
    const MutexLock lock(given_lock_);
    const auto is_own = [thread = thread_number()](const cupti::Activity& call) {
      return call.thread == thread;
    };
    std::ranges::copy_if(untold_, std::back_inserter(calls), is_own);
    if (calls.empty()) return;
    std::erase_if(untold_, is_own);
    ++telling_;
  }
  for (const cupti::Activity& call : calls) sink_.take(sink_.self, &call, nullptr);
  const MutexLock lock(given_lock_);
  if (--telling_ == 0) told_.notify_all();
} catch (const std::bad_alloc&) {  // it is told with the next ones
}

// ---- The reader ---------------------------------------------------------------------------------

void* Recording::thread_main(void* self) {
  static_cast<Recording*>(self)->read();
  return nullptr;
}

void Recording::read() {
  cupti::RecordingReader reader;
  for (;;) {
    int connection = -1;
    {
      const MutexLock lock(lock_);
      if (state_ == State::kOff || state_ == State::kFailed) break;
      connection = connection_.get();
    }
    pollfd wait{connection, POLLIN, 0};
    poll(&wait, 1, kLookMs);
    if (wait.revents == 0) continue;
    Result<Packet> packet = receive_packet(connection, 2 * cupti::kMostPacketBytes, 0);
    if (packet.status().code() == kNoBufferNow || packet.status().code() == CUDA_ERROR_TIMEOUT) {
      continue;
    }
    if (packet.ok() && !packet->closed && take(packet->data, reader)) continue;
    // The worker has gone, and the session has another one, or will have.
    poll(nullptr, 0, kLookMs);
    const MutexLock lock(lock_);
    if (state_ == State::kFailed) break;
    answered_ = asked_;
    if (channel_.status() != CUDA_SUCCESS || !connect()) state_ = State::kFailed;
    changed_.notify_all();
  }
  const MutexLock lock(lock_);
  is_reading_ = false;
  changed_.notify_all();
}

bool Recording::take(std::span<const std::byte> packet, cupti::RecordingReader& reader) {
  using Kind = cupti::RecordingReader::Item::Kind;
  std::vector<cupti::RecordingReader::Item> items;
  if (!reader.read(packet, &items).ok()) return false;
  for (const cupti::RecordingReader::Item& item : items) {
    if (item.kind == Kind::kActivity) tell(item);
    if (item.kind != Kind::kAnswer && item.kind != Kind::kFailure) continue;
    const MutexLock lock(lock_);
    if (item.kind == Kind::kFailure) {
      debug_line("nothing can be recorded: %s", item.text->c_str());
      static char text[512];  // ActivityTable::start() returns it
      snprintf(text, sizeof(text), "%s", item.text->c_str());
      why_ = text;
      state_ = State::kFailed;
    } else if (item.answer != cupti::kBegun) {
      answered_ = std::max(answered_, item.answer);
    } else if (state_ == State::kBegins) {
      state_ = State::kOn;
    }
    changed_.notify_all();
  }
  const MutexLock lock(lock_);
  lost_ = reader.lost();
  return state_ != State::kFailed;
}

void Recording::tell(const cupti::RecordingReader::Item& item) {
  cupti::Activity activity = item.recorded.activity;
  const Given given = find_given(item.recorded.command);
  if (given.correlation == 0) return;  // given before the recording, or again by another worker
  activity.correlation = given.correlation;
  activity.stream = given.stream;
  activity.context = given.context;
  activity.device = devices_.ordinal_of(activity.device).value_or(given.device);
  if (activity.is_peer != 0) activity.peer = devices_.ordinal_of(activity.peer).value_or(0);
  sink_.take(sink_.self, &activity, item.text == nullptr ? nullptr : item.text->c_str());
}

Recording::Given Recording::find_given(uint64_t end) {
  const MutexLock lock(given_lock_);
  const auto found = std::ranges::lower_bound(given_, end, {}, &Given::end);
  return found == given_.end() || found->end != end ? Given{} : *found;
}

}  // namespace openmps::client
