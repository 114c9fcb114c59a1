// SPDX-License-Identifier: Apache-2.0
// The executor of a session. See executor.h.
#include "worker/session/executor.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "wire/command_info.h"
#include "worker/device/driver_check.h"
#include "worker/device/log.h"
#include "worker/session/dispatch.h"

namespace openmps::worker {
namespace {

// What is under way is looked at this often, if nothing else wakes the executor. One that has slept
// so long and has nothing under way sleeps until somebody wakes it.
constexpr uint64_t kLongestSleepNs = 1'000'000'000;
// What can't be given back while others work is tried again after twice as long, up to this.
constexpr uint64_t kLongestRestNs = 600'000'000'000;
// Below a futex wake and the switch to the thread (about 5 us together) spinning gains nothing.
constexpr uint64_t kShortestSpinNs = 5'000;
constexpr int kLooksPerClock = 32;
// Between two looks at held work, beside commands: a sixteenth of the time that it has waited, from
// a few wake-ups of a thread to a look each millisecond (decision 17).
constexpr uint64_t kHeldPauseShare = 16;
constexpr uint64_t kShortestHeldPauseNs = 20'000;
constexpr uint64_t kLongestHeldPauseNs = 1'000'000;
// Looks at held work take one part in so many of a thread's time and one more, at most.
constexpr uint64_t kAdvanceShare = 4;
// Between two looks whether there is room in a backlog that is full.
constexpr long kRoomPauseNs = 100'000;
// Between two looks whether there is room for streams by now.
constexpr uint64_t kRoomLookNs = 5'000'000;
// A client can fail as often as it likes, but not fill the disk.
constexpr uint32_t kMostErrorsLogged = 16;

// What programs ask to learn, not what went wrong.
bool is_answer(CUresult result) {
  return result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_NOT_FOUND;
}

bool promises_fence(wire::Opcode opcode) {
  return opcode == wire::Opcode::kFence || opcode == wire::Opcode::kEventRecord ||
         opcode == wire::Opcode::kHostFunction;
}

std::span<const unsigned char> payload_of(const wire::Record& record) {
  return {record.payload, record.payload_bytes};
}

}  // namespace

Executor::Executor(SessionParts& session, wire::RingConsumer& ring, Spinning& spinning,
                   FaultListener& faults, wire::Trace* trace, bool looks_for_values)
    : session_(session),
      ring_(ring),
      spinning_(spinning),
      rest_ns_(kLongestSleepNs),
      looks_for_values_(looks_for_values),
      faults_(faults),
      state_(session.core.view.executor()),
      trace_(trace),
      actor_{"session " + std::to_string(session.core.info.id),
             "session " + std::to_string(session.core.info.id) + " "} {
  for (GateClient* gate_client : {&session_.core.gate_client, &session_.core.cold_gate_client}) {
    gate_client->shown = &state_;
    gate_client->meanwhile = advance_meanwhile;
    gate_client->meanwhile_context = this;
  }
}

Executor::~Executor() {
  for (GateClient* gate_client : {&session_.core.gate_client, &session_.core.cold_gate_client}) {
    gate_client->shown = nullptr;
    gate_client->meanwhile = nullptr;
  }
}

Status Executor::run() {
  spin_ns_ = spinning_.brief_ns;
  while (!session_.stop.load(std::memory_order_acquire)) {
    if (session_.core.bell->rung().load(std::memory_order_relaxed)) {
      OPENMPS_RETURN_IF_ERROR(finish_late());
    }
    if (session_.backlog.is_full()) [[unlikely]] {
      await_room();
      continue;
    }
    wire::Record record;
    const Result<bool> taken = ring_.take(&record);
    if (!taken.ok()) return taken.status();
    if (!taken.value()) {
      idle();
      continue;
    }
    session_.submitter.note_ahead(ring_.ahead(Submitter::kBatchBytes));
    OPENMPS_RETURN_IF_ERROR(execute(record));
    if (ring_.empty()) session_.submitter.end_batch();
    note_progress();
    if (!session_.backlog.empty()) advance_between(now_ns());
  }
  return Status();
}

// A command waits for a quiet moment. Who is waited for may wait for what is held, be it the
// session itself. The context that was current is when the call is made.
void Executor::advance_meanwhile(void* executor) noexcept {
  auto& self = *static_cast<Executor*>(executor);
  if (!self.session_.submitter.may_advance()) return;
  const Placement before = self.session_.core.current();
  try {
    self.advance(now_ns());
  } catch (const std::bad_alloc&) {
    // It is tried again.
  }
  self.session_.submitter.prepare_to_wait();
  static_cast<void>(self.session_.core.use(before).ok());
}

// The session has given as much that waits as there is room for: nothing more is read before some
// of it has gone.
void Executor::await_room() {
  advance(now_ns());
  if (!session_.backlog.is_full()) return;
  const timespec pause{0, kRoomPauseNs};
  nanosleep(&pause, nullptr);
}

// Where thousands of streams wait a look at them takes longer than most commands.
void Executor::advance_between(uint64_t now) {
  if (now >= next_advance_ns_) advance(now);
}

// Held work that failed when it was submitted.
void Executor::fail(wire::Opcode opcode, const Status& status) {
  log_error(wire::name_of(opcode) + std::string(", held back until now,"), status);
  if (is_sticky(status.code())) faults_.context_lost(status.code(), status.message());
  report(opcode, status);
}

// Held work that can go goes.
void Executor::advance(uint64_t now) {
  const bool is_look = !session_.backlog.empty();
  try {
    if (session_.streams.looks_after_some()) session_.streams.look_after(now);
    if (!session_.backlog.empty()) session_.submitter.advance();
  } catch (const std::bad_alloc&) {
    fail(wire::Opcode::kStreamBatch,
         Status(CUDA_ERROR_OUT_OF_MEMORY, "the worker is out of memory"));
  }
  const bool went = session_.submitter.has_progress();
  note_progress();
  if (!is_look) return;
  const uint64_t end = went ? now : now_ns();  // what has gone was more than a look
  least_pause_ns_ = kAdvanceShare * (end - now);
  next_advance_ns_ = end + least_pause_ns_;
}

void Executor::note_progress() {
  if (session_.submitter.has_progress()) [[unlikely]] {
    const Submitter::Progress progress = session_.submitter.take_progress();
    if (!progress.status.ok()) fail(progress.failed, progress.status);
    faults_.fence_promised();
    held_since_ns_ = 0;
  }
}

// How long nobody need look at what is held: the longer it has waited, the less does it matter.
uint64_t Executor::held_pause(uint64_t now) {
  const Backlog& backlog = session_.backlog;
  uint64_t longest = kLongestSleepNs;
  const auto until = [now](uint64_t time_ns) { return time_ns <= now ? 1 : time_ns - now; };
  if (session_.streams.looks_after_some()) {
    longest = std::min(longest, until(session_.streams.next_look_ns()));
  }
  if (!backlog.awaits_value()) {
    held_since_ns_ = 0;
  } else {
    if (held_since_ns_ == 0) held_since_ns_ = now;
    session_.core.shown_values.seen(now);
    if (looks_for_values_) {
      longest = std::min(longest, std::clamp((now - held_since_ns_) / kHeldPauseShare,
                                             kShortestHeldPauseNs, kLongestHeldPauseNs));
    }
  }
  if (backlog.empty()) return longest;
  if (backlog.awaits_stream_slot()) longest = std::min(longest, kRoomLookNs);
  return std::max(std::min(longest, until(backlog.next_look_ns())), least_pause_ns_);
}

Status Executor::execute(const wire::Record& record) {
  if (record.reply_slot != wire::kNoReply && record.reply_slot >= wire::kReplySlots) {
    return violation("there is no reply slot " + std::to_string(record.reply_slot));
  }
  rest_ns_ = kLongestSleepNs;
  reply_.clear();
  state_.opcode.store(static_cast<uint32_t>(record.opcode), std::memory_order_relaxed);
  const uint64_t begin_ns = trace_ == nullptr ? 0 : now_ns();
  Status status;
  try {
    status = dispatch(session_, record, reply_);
  } catch (const std::bad_alloc&) {
    status = Status(CUDA_ERROR_OUT_OF_MEMORY, "the worker is out of memory");
  }
  session_.submitter.end_waiting();
  state_.opcode.store(0, std::memory_order_relaxed);
  state_.executed.store(++executed_, std::memory_order_relaxed);
  if (std::unique_ptr<Pending> pending = reply_.take_pending(); pending != nullptr) {
    const std::span payload = payload_of(record);
    late_.push_back({record, std::move(pending), {payload.begin(), payload.end()}, begin_ns});
    late_.back().record.payload = late_.back().payload.data();
    state_.later.store(static_cast<uint32_t>(late_.size()), std::memory_order_relaxed);
    return Status();
  }
  return conclude(record, status, begin_ns);
}

// In any order: each has a thread of the client that waits for it.
Status Executor::finish_late() {
  session_.core.bell->answer();
  rest_ns_ = kLongestSleepNs;
  for (size_t i = 0; i < late_.size();) {
    if (!late_[i].pending->ready()) {
      ++i;
      continue;
    }
    const Late done = std::move(late_[i]);
    late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
    state_.later.store(static_cast<uint32_t>(late_.size()), std::memory_order_relaxed);
    reply_.clear();
    session_.submitter.prepare_to_wait();  // code that has been compiled is loaded
    const Status status = done.pending->finish(reply_);
    session_.submitter.end_waiting();
    OPENMPS_RETURN_IF_ERROR(conclude(done.record, status, done.begin_ns));
  }
  return Status();
}

Status Executor::conclude(const wire::Record& record, const Status& status, uint64_t begin_ns) {
  if (trace_ != nullptr) {
    const size_t answered = record.reply_slot == wire::kNoReply ? 0 : reply_.size();
    trace_->command(actor_, record.opcode, payload_of(record), status.code(),
                    {reply_.data(), answered}, begin_ns);
  }
  if (is_violation(status)) {
    return violation(std::string(wire::name_of(record.opcode)) + ": " + status.message());
  }
  if (!status.ok()) log_error(wire::describe(record.opcode, payload_of(record)), status);
  if (is_sticky(status.code())) faults_.context_lost(status.code(), status.message());
  if (promises_fence(record.opcode)) {
    faults_.fence_promised();
  }
  answer(record, status);
  return Status();
}

// An error that nobody waits for: the first is told by a later call.
void Executor::report(wire::Opcode opcode, const Status& status) {
  wire::ChannelHeader& header = session_.core.view.header();
  if (header.async_error.load(std::memory_order_acquire) != 0) return;
  header.async_error_opcode.store(static_cast<uint32_t>(opcode), std::memory_order_relaxed);
  header.async_error.store(status.code(), std::memory_order_release);
}

void Executor::answer(const wire::Record& record, const Status& status) {
  const wire::ChannelView& view = session_.core.view;
  if (record.reply_slot == wire::kNoReply) {
    if (!status.ok()) report(record.opcode, status);
    return;
  }
  wire::ReplySlot& slot = view.reply(record.reply_slot);
  slot.result = status.code();
  slot.bytes = static_cast<uint32_t>(reply_.size());
  memcpy(slot.payload, reply_.data(), reply_.size());
  // Pairs with the client's acquire load: the payload comes first.
  slot.state.store(wire::ReplySlot::kDone, std::memory_order_release);
  wake_client(view.header());
}

void Executor::log_error(const std::string& command, const Status& status) {
  if (is_answer(status.code()) || errors_logged_ == kMostErrorsLogged) return;
  ++errors_logged_;
  log("Session " + std::to_string(session_.core.info.id) + " (client " +
      std::to_string(session_.core.info.client_pid) + "): " + command + " failed with CUDA error " +
      std::to_string(status.code()) + ": " + status.message() +
      (errors_logged_ == kMostErrorsLogged ? " (further errors are not logged)" : ""));
}

// Nothing is done between finding a command and giving it to the driver that can be done before:
// somebody waits for it. What is held is looked at first, while the client waits for the GPU.
void Executor::idle() {
  const uint64_t start = now_ns();
  const bool resumes = paused_since_ns_ != 0;
  if (!resumes) paused_since_ns_ = start;
  const bool holds = looks();
  if (holds) advance(start);
  const uint64_t longest_spin_ns = spinning_.brief_ns;
  if (spin_ns_ != 0 && spin(spinning_.brief, holds ? now_ns() : start, start + spin_ns_)) {
    if (resumes) {
      end_pause(now_ns());
    } else if (!ring_.empty()) {
      paused_since_ns_ = 0;  // no longer than a brief spin
    }
    spin_ns_ = longest_spin_ns;
    return;
  }
  if (nap(start, holds)) return;
  const bool settled = rest_ns_ != kLongestSleepNs;
  const uint64_t tended_ns = settled ? rest_ns_ : session_.service();
  const uint64_t tended_until = start + std::min(kLingerNs, tended_ns);
  const uint64_t linger_end = std::min(pauses_.linger_end_ns(paused_since_ns_), tended_until);
  if (linger_end <= start || !spin(spinning_.lingering, now_ns(), linger_end)) {
    const uint64_t begin = now_ns();
    const uint64_t longest = settled ? rest_ns_ : std::min(held_pause(begin), tended_ns);
    ring_.sleep(longest, session_.stop, &session_.core.bell->rung());
    const bool slept = longest != 0 && longest == rest_ns_ && now_ns() - begin >= longest;
    if (slept && ring_.empty()) rest_ns_ = next_rest();
  }
  const uint64_t now = now_ns();
  end_pause(now);
  // Spinning pays if the next command comes within the longest spin, found spinning or not.
  // Who looks at held work comes here each millisecond, and would only burn cores.
  const bool woken = !holds || !ring_.empty();
  const bool soon = woken && now - start < longest_spin_ns;
  const uint64_t least = holds ? 0 : std::min(kShortestSpinNs, longest_spin_ns);
  spin_ns_ = soon ? longest_spin_ns : std::max(spin_ns_ / 2, least);
}

// While cores are short: a sleep that ends by itself, or when the program waits for something. So
// no launch pays for waking us.
bool Executor::nap(uint64_t start, bool holds) {
  if (!spinning_.naps(paused_since_ns_, start)) return false;
  const uint64_t longest = holds ? std::min(kNapNs, held_pause(now_ns())) : kNapNs;
  ring_.nap(longest, session_.stop, &session_.core.bell->rung());
  if (!ring_.empty()) paused_since_ns_ = 0;  // nobody knows how long the program's pause was
  return true;
}

// If a command has come.
void Executor::end_pause(uint64_t now) {
  if (ring_.empty()) return;
  const uint64_t pause_ns = now - std::exchange(paused_since_ns_, 0);
  if (pause_ns > spinning_.brief_ns) pauses_.note(pause_ns);
}

// Nothing has come for rest_ns_.
uint64_t Executor::next_rest() {
  if (!session_.is_idle()) return kLongestSleepNs;
  return session_.release_idle() ? 0 : std::min(2 * rest_ns_, kLongestRestNs);
}

// Look for a command from now to `end`, if the budget allows it and there are cores to spare.
bool Executor::spin(SpinBudget& budget, uint64_t now, uint64_t end) {
  if (spinning_.shortage.lasts(now) || !budget.enter()) return false;
  bool found = false;
  do {
    const uint64_t before = now;
    for (int i = 0; i < kLooksPerClock; ++i) {
      found = !ring_.empty() || session_.stop.load(std::memory_order_relaxed) ||
              session_.core.bell->rung().load(std::memory_order_relaxed);
      if (found) break;
      cpu_relax();
    }
    now = now_ns();
    if (spinning_.shortage.note_look(before, now)) break;
    if (!found && looks()) {
      advance(now);
      now = now_ns();
    }
  } while (!found && now < end);
  budget.leave();
  return found;
}

}  // namespace openmps::worker
