// SPDX-License-Identifier: Apache-2.0
// See executor.h.
#include "worker/session/executor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/text.h"
#include "wire/command_info.h"
#include "worker/device/driver_check.h"
#include "worker/device/log.h"
#include "worker/session/dispatch.h"

namespace openmps::worker {
namespace {

// An executor looks at the session's work at least this often. An executor that has slept for so
// long and finds the session idle sleeps until it is woken.
constexpr uint64_t kLongestSleepNs = 1'000'000'000;
// A release that other sessions' work prevents is tried again after twice as long, up to this.
constexpr uint64_t kLongestIdleSleepNs = 600'000'000'000;
// Between two looks at values that held work waits for, while no command comes: from a few wake-ups
// of a thread to a look each millisecond (decision 17).
constexpr NapLength kHeldPause{20'000, 1'000'000, 16};
// While cores are short the executor naps in a pause of the program, and only a thread that waits
// for a reply, for the GPU or for ring space wakes it: no launch pays for a wake. Longer naps leave
// the GPU idle (decision 24: 0.2 ms and 0.5 ms are slower). After so long without a command the
// executor sleeps until one comes.
constexpr uint64_t kNapNs = 100'000;
constexpr uint64_t kNapUntilNs = 2'000'000;
// Looks at held work take at most one part in kAdvanceShare + 1 of the thread's time.
constexpr uint64_t kAdvanceShare = 4;
// Between two looks whether a full backlog has space again.
constexpr uint64_t kBacklogFullPauseNs = 100'000;
// Between two looks whether the session is handed over, whose command has found the context lost,
// or whether one that is to leave has nothing under way any more.
constexpr uint64_t kLeftPauseNs = 20'000;
// Between two looks how long work of the session has run, if there is a limit, which is 100 ms or
// more.
constexpr uint64_t kWorkTimeLookNs = 20'000'000;
// Between two looks of a session that is suspended.
constexpr uint64_t kSuspendedPauseNs = 20'000'000;
// Of one session, so that a client can't fill the disk with failures.
constexpr uint32_t kMostErrorsLogged = 16;

// The result answers a question of the program's and is no failure.
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

Executor::Executor(SessionParts& session, wire::RingConsumer& ring, SpinLimits& spins,
                   FaultListener& faults, wire::Trace* trace, bool looks_for_values)
    : session_(session),
      ring_(ring),
      spins_(spins),
      clock_(session.core.clock),
      history_(spins.spin_ns),
      idle_sleep_ns_(kLongestSleepNs),
      looks_for_values_(looks_for_values),
      faults_(faults),
      state_(session.core.view.executor()),
      trace_(trace),
      actor_{"session " + std::to_string(session.core.info.id),
             "session " + std::to_string(session.core.info.id) + " "} {
  session_.faults = &faults_;
  for (GateClient* gate_client : {&session_.core.gate_client, &session_.core.cold_gate_client}) {
    gate_client->shown = &state_;
    gate_client->meanwhile = advance_meanwhile;
    gate_client->meanwhile_context = this;
  }
}

Executor::~Executor() {
  session_.faults = nullptr;
  for (GateClient* gate_client : {&session_.core.gate_client, &session_.core.cold_gate_client}) {
    gate_client->shown = nullptr;
    gate_client->meanwhile = nullptr;
  }
}

Status Executor::run() {
  OPENMPS_RETURN_IF_ERROR(execute_pending());
  while (!session_.stop.load(std::memory_order_acquire) && !hands_over()) {
    if (is_left_) {  // the session is about to be handed over
      clock_.sleep(kLeftPauseNs);
      continue;
    }
    if (session_.core.bell->rung().load(std::memory_order_relaxed)) {
      OPENMPS_RETURN_IF_ERROR(finish_late());
    }
    if (session_.leaves_by_ns.load(std::memory_order_acquire) != 0) [[unlikely]] {
      if (try_to_leave()) return Status();
      continue;  // no command is taken while it waits
    }
    if (session_.has_wish.load(std::memory_order_acquire)) [[unlikely]] {
      if (settle_wish()) continue;
    }
    if (is_asked()) [[unlikely]] {
      OPENMPS_RETURN_IF_ERROR(answer_pressure());
    }
    if (is_suspended_) [[unlikely]] {
      wait_suspended();
      continue;
    }
    if (session_.memory.is_away() && !ring_.empty()) [[unlikely]] {
      const Result<bool> is_back = bring_back();
      if (!is_back.ok()) return is_back.status();
      continue;
    }
    if (const float limit_s = session_.core.work_time_s.load(std::memory_order_relaxed);
        limit_s > 0) [[unlikely]] {
      OPENMPS_RETURN_IF_ERROR(check_work_time(limit_s));
    }
    // No command is taken while the backlog is full.
    if (session_.backlog.is_full()) [[unlikely]] {
      advance(clock_.now_ns());
      if (session_.backlog.is_full()) clock_.sleep(kBacklogFullPauseNs);
      continue;
    }
    wire::Record record;
    const Result<bool> taken = ring_.take(&record);
    if (!taken.ok()) return taken.status();
    if (!taken.value()) {
      idle();
      continue;
    }
    end_pause();
    if (session_.memory.member.idle_since_ns.load(std::memory_order_relaxed) != 0) {
      session_.memory.member.idle_since_ns.store(0, std::memory_order_relaxed);
    }
    session_.submitter.note_ahead(ring_.ahead(Submitter::kBatchBytes));
    OPENMPS_RETURN_IF_ERROR(execute(record));
    if (is_left_) continue;
    ring_.conclude();
    if (ring_.empty()) session_.submitter.end_batch();
    note_progress();
    if (session_.backlog.empty()) continue;
    // A look at thousands of waiting streams takes longer than most commands.
    if (const uint64_t now = clock_.now_ns(); now >= next_advance_ns_) advance(now);
  }
  return Status();
}

Status Executor::execute_pending() {
  // What is left when the session is handed over stays pending.
  for (; !session_.pending.empty() && !hands_over() && !is_left_; session_.pending.pop_front()) {
    const SessionParts::PendingCommand& command = session_.pending.front();
    const wire::Record record{.opcode = command.opcode,
                              .reply_slot = command.reply_slot,
                              .payload = command.payload.data(),
                              .payload_bytes = static_cast<uint32_t>(command.payload.size())};
    // An image that the command loads is the server's.
    const bool has_image = command.notes.kept != 0;
    if (has_image) session_.core.journal.begin_pending(command.notes);
    const Status status = execute(record);
    if (has_image) session_.core.journal.end_pending();
    OPENMPS_RETURN_IF_ERROR(status);
    if (is_left_) break;  // before it is dropped
    session_.core.journal.drop_pending(command.entry);
  }
  return Status();
}

bool Executor::try_to_leave() {
  // What is on the host is in a file of this worker's.
  if (session_.memory.is_away()) {
    const Result<bool> is_back = bring_back();
    if (!is_back.ok() || !*is_back) session_.stay("its memory is on the host");
    if (session_.leaves_by_ns.load(std::memory_order_relaxed) == 0) return false;
  }
  session_.submitter.end_batch();
  const std::string_view why = late_.empty() ? session_.keeps_from_leaving() : SessionParts::kBusy;
  if (why.empty()) return true;
  const uint64_t now = clock_.now_ns();
  if (why != SessionParts::kBusy || now >= session_.leaves_by_ns.load(std::memory_order_relaxed)) {
    session_.stay(why);
    return false;
  }
  if (has_held_work()) advance(now);
  clock_.sleep(kLeftPauseNs);
  return false;
}

// ---- Memory on the host -------------------------------------------------------------------------

// A session that is not to be held goes on as long as it has commands: it would come back at once.
bool Executor::settle_wish() {
  const SessionParts::Wish wish = session_.wish();
  const uint64_t now = clock_.now_ns();
  const bool goes = wish.residence != wire::Residence::kDevice;
  const bool goes_on = wish.residence == wire::Residence::kHost && !ring_.empty();
  if (!goes_on) session_.submitter.end_batch();
  if (goes && (goes_on || !late_.empty() || !session_.is_quiet())) {
    if (now >= wish.until_ns) {
      session_.has_wish.store(false, std::memory_order_release);
      session_.on_suspended(Status(CUDA_ERROR_NOT_READY, "its work has not ended"), {});
      return true;
    }
    if (goes_on) return false;
    if (has_held_work()) advance(now);
    clock_.sleep(kLeftPauseNs);
    return true;
  }
  session_.has_wish.store(false, std::memory_order_release);
  is_suspended_ = wish.residence == wire::Residence::kHeld;
  SessionMemory::Moved moved;
  Status status;
  for (const uint32_t device : session_.core.devices.used()) {
    if (!goes || !status.ok()) break;
    status = session_.memory.move_to_host(
        device, [](uint64_t) { return true; }, &moved);
  }
  if (!status.ok()) {
    is_suspended_ = false;
    if (has_lost(status)) return true;
  }
  session_.on_suspended(status, moved);
  return true;
}

void Executor::wait_suspended() {
  session_.service();
  clock_.sleep(kSuspendedPauseNs);
}

Status Executor::answer_pressure() {
  MemoryPressure::Member& member = session_.memory.member;
  if (member.is_ended.load(std::memory_order_relaxed)) {
    return Status(CUDA_ERROR_MPS_CLIENT_TERMINATED,
                  "others need the memory that it has beyond what is guaranteed to it "
                  "(on_pressure)");
  }
  const uint64_t since = member.idle_since_ns.load(std::memory_order_relaxed);
  const bool is_idle = is_suspended_ || (since != 0 && ring_.empty());
  const uint64_t until = clock_.now_ns() + (is_idle ? 0 : kMemoryTurnEndNs);
  const bool may = is_idle || member.is_turn_over.load(std::memory_order_relaxed);
  session_.submitter.end_batch();
  while (may && (!late_.empty() || !session_.is_quiet()) && clock_.now_ns() < until &&
         !session_.stop.load(std::memory_order_relaxed) && !hands_over()) {
    if (has_held_work()) advance(clock_.now_ns());
    if (session_.core.bell->rung().load(std::memory_order_relaxed)) {
      OPENMPS_RETURN_IF_ERROR(finish_late());
    }
    clock_.sleep(kLeftPauseNs);
  }
  if (may && late_.empty() && session_.is_quiet()) {
    for (const uint32_t device : session_.core.devices.used()) {
      if ((member.asked.load(std::memory_order_relaxed) >> device & 1) != 0) give_memory(device);
    }
  } else {
    member.declined_ns.store(clock_.now_ns(), std::memory_order_relaxed);
  }
  member.is_turn_over.store(false, std::memory_order_relaxed);
  member.asked.store(0, std::memory_order_release);
  session_.pressure.note_change();
  return Status();
}

void Executor::give_memory(uint32_t device) {
  MemoryPressure& pressure = session_.pressure;
  SessionMemory& memory = session_.memory;
  const auto wants_more = [&](uint64_t under_way) {
    if (memory.borrowed(device) <= under_way) return false;
    size_t free = 0;
    size_t total = 0;
    if (session_.core.driver.cuMemGetInfo_v2(&free, &total) != CUDA_SUCCESS) return false;
    return pressure.needed(device) > free + under_way;
  };
  SessionMemory::Moved moved;
  const Status status = memory.move_to_host(device, wants_more, &moved);
  if (!status.ok() && !has_lost(status)) log_error("MoveToHost", status);
  if (moved.moved == 0) memory.member.declined_ns.store(clock_.now_ns(), std::memory_order_relaxed);
}

// While it waits for its turn others may take what it still has on the devices.
Result<bool> Executor::bring_back() {
  MemoryPressure& pressure = session_.pressure;
  SessionMemory& memory = session_.memory;
  end_pause();
  memory.member.idle_since_ns.store(0, std::memory_order_relaxed);
  memory.member.waits.store(true);
  std::vector<std::pair<uint32_t, std::unique_ptr<MemoryPressure::Need>>> needs;
  for (const uint32_t device : session_.core.devices.used()) {
    needs.emplace_back(device, std::make_unique<MemoryPressure::Need>(
                                   pressure, &memory.member, device, memory.on_host(device)));
  }
  const auto is_first = [&] {
    return std::ranges::all_of(needs, [](const auto& need) { return need.second->is_first(); });
  };
  while (!is_first() && !memory.gives_up()) {
    const uint64_t seen = pressure.changes();
    for (const uint32_t device : session_.core.devices.used()) {
      if ((memory.member.asked.load() >> device & 1) != 0) give_memory(device);
    }
    if (memory.member.asked.exchange(0) != 0) pressure.note_change();
    for (const auto& [device, need] : needs) need->set_bytes(memory.on_host(device));
    pressure.wait(seen);
  }
  memory.member.asked.store(0);
  const Status status = memory.gives_up() ? Status(CUDA_ERROR_NOT_READY, "it ends, or moves")
                                          : memory.move_back([&](uint32_t device, uint64_t bytes) {
                                              for (auto& [of, need] : needs) {
                                                if (of == device) need->found(bytes);
                                              }
                                            });
  memory.member.waits.store(false);
  memory.member.resident_since_ns.store(clock_.now_ns(), std::memory_order_relaxed);
  if (status.ok()) return true;
  if (status.code() == CUDA_ERROR_NOT_READY || has_lost(status)) return false;
  return status;
}

Status Executor::check_work_time(float limit_s) {
  const uint64_t now = clock_.now_ns();
  if (now < next_work_time_ns_) return Status();
  next_work_time_ns_ = now + kWorkTimeLookNs;
  const double worked_s = static_cast<double>(session_.streams.longest_work_ns(now)) * 1e-9;
  if (worked_s <= limit_s) return Status();
  return Status(CUDA_ERROR_LAUNCH_TIMEOUT,
                format_text("its work has run for %.2f s, and may run for %g (work_time_limit)",
                            worked_s, static_cast<double>(limit_s)));
}

// Called while a command waits for quiescence: the work that it waits for may itself wait for held
// work, of this session as well. The context that was current is current again afterwards.
void Executor::advance_meanwhile(void* executor) noexcept {
  auto& self = *static_cast<Executor*>(executor);
  if (!self.session_.submitter.may_advance()) return;
  const Placement before = self.session_.core.current();
  try {
    self.advance(self.clock_.now_ns());
  } catch (const std::bad_alloc&) {
    // The gate calls again.
  }
  self.session_.submitter.prepare_to_wait();
  static_cast<void>(self.session_.core.use(before).ok());
}

// Held work has failed when it was submitted.
void Executor::fail(wire::Opcode opcode, const Status& status) {
  // Its stream has lost work then, which its program is told of in the next worker.
  if (is_sticky(status.code()) && has_lost(status)) return;
  log_error(wire::name_of(opcode) + std::string(", held back until now,"), status);
  report(opcode, status);
}

// Submits the held work that is admitted by now.
void Executor::advance(uint64_t now) {
  const bool is_look = !session_.backlog.empty();
  try {
    if (session_.streams.has_streams_to_look_at()) session_.streams.look_at_streams(now);
    if (!session_.backlog.empty()) session_.submitter.advance();
  } catch (const std::bad_alloc&) {
    fail(wire::Opcode::kStreamBatch,
         Status(CUDA_ERROR_OUT_OF_MEMORY, "the worker is out of memory"));
  }
  const bool went = session_.submitter.has_progress();
  note_progress();
  if (!is_look) return;
  const uint64_t end = went ? now : clock_.now_ns();  // a submission is more than a look
  least_pause_ns_ = kAdvanceShare * (end - now);
  next_advance_ns_ = end + least_pause_ns_;
}

void Executor::note_progress() {
  if (session_.submitter.has_progress()) [[unlikely]] {
    const Submitter::Progress progress = session_.submitter.take_progress();
    if (!progress.status.ok()) fail(progress.failed, progress.status);
    faults_.fence_promised();
    held_since_ns_ = 0;
    interrupt_pause();
  }
}

// For how long the executor need not look at held work: the longer the work has waited, the less a
// delay matters.
uint64_t Executor::held_pause(uint64_t now) {
  const Backlog& backlog = session_.backlog;
  uint64_t longest = kLongestSleepNs;
  const auto until = [now](uint64_t time_ns) { return time_ns <= now ? 1 : time_ns - now; };
  if (session_.streams.has_streams_to_look_at()) {
    longest = std::min(longest, until(session_.streams.next_look_ns()));
  }
  if (!backlog.awaits_value()) {
    held_since_ns_ = 0;
  } else {
    if (held_since_ns_ == 0) held_since_ns_ = now;
    session_.core.shown_values.seen(now);
    if (looks_for_values_) {
      longest = std::min(longest, kHeldPause.after(now - held_since_ns_));
    }
  }
  if (backlog.empty()) return longest;
  return std::max(std::min(longest, until(backlog.next_look_ns())), least_pause_ns_);
}

Status Executor::execute(const wire::Record& record) {
  if (record.reply_slot != wire::kNoReply && record.reply_slot >= wire::kReplySlots) {
    return violation("there is no reply slot " + std::to_string(record.reply_slot));
  }
  idle_sleep_ns_ = kLongestSleepNs;
  reply_.clear();
  session_.core.command_end = record.end;
  state_.opcode.store(static_cast<uint32_t>(record.opcode), std::memory_order_relaxed);
  const uint64_t begin_ns = trace_ == nullptr ? 0 : clock_.now_ns();
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
    const Journal::Notes notes = session_.core.journal.notes();
    const Journal::Number entry =
        session_.core.journal.add_pending(record.opcode, payload, record.reply_slot, notes);
    late_.push_back(
        {record, std::move(pending), {payload.begin(), payload.end()}, notes, entry, begin_ns});
    late_.back().record.payload = late_.back().payload.data();
    late_.back().record.end = 0;
    state_.later.store(static_cast<uint32_t>(late_.size()), std::memory_order_relaxed);
    return Status();
  }
  return conclude(record, status, begin_ns);
}

// In any order: a thread of the client waits for each.
Status Executor::finish_late() {
  session_.core.bell->answer();
  idle_sleep_ns_ = kLongestSleepNs;
  interrupt_pause();
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
    session_.core.journal.resume(done.notes);
    const Status status = done.pending->finish(reply_);
    if (status.ok() || !has_lost(status)) note_late(session_, done.record, status, reply_);
    session_.submitter.end_waiting();
    OPENMPS_RETURN_IF_ERROR(conclude(done.record, status, done.begin_ns));
    if (is_left_) return Status();
    session_.core.journal.drop_pending(done.entry);
  }
  return Status();
}

// The contexts are lost, and the session goes on in another worker: what fails now is executed
// there.
bool Executor::has_lost(const Status& status) {
  if (is_sticky(status.code())) faults_.context_lost(status.code(), status.message());
  return faults_.hands_over();
}

Status Executor::conclude(const wire::Record& record, const Status& status, uint64_t begin_ns) {
  if (trace_ != nullptr) {
    const size_t answered = record.reply_slot == wire::kNoReply ? 0 : reply_.size();
    trace_->command(actor_, record.opcode, payload_of(record), status.code(),
                    {reply_.data(), answered}, begin_ns);
  }
  if (!status.ok() && has_lost(status)) {
    session_.has_failed_launch |=
        record.opcode == wire::Opcode::kLaunch || record.opcode == wire::Opcode::kGraphLaunch;
    is_left_ = true;
    return Status();
  }
  if (is_violation(status)) {
    return violation(std::string(wire::name_of(record.opcode)) + ": " + status.message());
  }
  if (!status.ok()) log_error(wire::describe(record.opcode, payload_of(record)), status);
  if (promises_fence(record.opcode)) {
    faults_.fence_promised();
  }
  answer(record, status);
  return Status();
}

// An error of a command without a reply: a later call of the client's returns the first one.
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
  // Pairs with the client's acquire load, before the loads of result and payload.
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

// The ring is empty. Called again until a command comes. What can be done without a command is done
// here, not between finding a command and giving it to the driver, because the client waits then.
void Executor::idle() {
  if (has_held_work()) advance(clock_.now_ns());
  if (!pause_) {
    const WaitPlan plan{.spare_spin_until_ns = history_.spin_ns(),
                        .crowded_nap_until_ns = kNapUntilNs,
                        .nap = {kNapNs, kNapNs}};
    pause_.emplace(clock_, plan, &spins_.shortage);
  }
  if (spin(spins_.brief)) return;
  if (const WaitStep step = pause_->next(); step.phase == WaitPhase::kNap) {
    return nap(step.pause_ns);
  }
  const bool is_at_rest = idle_sleep_ns_ != kLongestSleepNs;
  const uint64_t longest_ns =
      is_at_rest ? idle_sleep_ns_ : std::min(session_.service(), kLongestSleepNs);
  pause_->spin_until(std::min(history_.long_spin_ns(), pause_->waited_ns() + longest_ns));
  if (spin(spins_.extended)) return;
  if (is_at_rest) return sleep(longest_ns);
  const bool has_limit = session_.core.work_time_s.load(std::memory_order_relaxed) > 0;
  sleep(std::min(
      {longest_ns, held_pause(clock_.now_ns()), has_limit ? kWorkTimeLookNs : kLongestSleepNs}));
}

// Looks for a command, and at held work, while the pause may be spun through. False: there is no
// command yet.
bool Executor::spin(SpinBudget& budget) {
  if (!pause_->spins()) return false;
  const SpinBudget::Permit permit = budget.request();
  if (!permit) return false;
  const std::atomic<bool>& rung = session_.core.bell->rung();
  const auto found = [&] {
    return !ring_.empty() || session_.stop.load(std::memory_order_relaxed) ||
           rung.load(std::memory_order_relaxed);
  };
  while (pause_->spins()) {
    if (pause_->look(found)) return true;
    if (has_held_work()) advance(clock_.now_ns());
    if (!pause_) return true;  // held work has been submitted, and another pause begins
  }
  return false;
}

// The length of a pause that ends during a nap is unknown, so nothing is learnt from it.
void Executor::nap(uint64_t longest_ns) {
  if (has_held_work()) longest_ns = std::min(longest_ns, held_pause(clock_.now_ns()));
  ring_.nap(longest_ns, session_.stop, &session_.core.bell->rung());
  if (!ring_.empty()) pause_.reset();
}

void Executor::sleep(uint64_t longest_ns) {
  const uint64_t begin = clock_.now_ns();
  if (session_.memory.member.idle_since_ns.load(std::memory_order_relaxed) == 0) {
    session_.memory.member.idle_since_ns.store(begin, std::memory_order_relaxed);
  }
  ring_.sleep(longest_ns, session_.stop, &session_.core.bell->rung());
  const bool slept =
      longest_ns != 0 && longest_ns == idle_sleep_ns_ && clock_.now_ns() - begin >= longest_ns;
  if (!slept || !ring_.empty()) return;
  if (!session_.is_idle()) {
    idle_sleep_ns_ = kLongestSleepNs;
  } else {
    idle_sleep_ns_ =
        session_.release_idle() ? 0 : std::min(2 * idle_sleep_ns_, kLongestIdleSleepNs);
  }
}

// A command has come.
void Executor::end_pause() {
  if (!pause_) return;
  history_.note(pause_->waited_ns());
  pause_.reset();
}

// The executor has done something without a command.
void Executor::interrupt_pause() {
  if (!pause_) return;
  history_.note_interruption();
  pause_.reset();
}

}  // namespace openmps::worker
