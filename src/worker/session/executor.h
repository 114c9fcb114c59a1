// SPDX-License-Identifier: Apache-2.0
// The executor of a session: takes commands from the session's ring and executes them, in order, on
// the session's own thread. No driver call that it makes waits for another session's work, except
// through ContextGate.
//
// Held work (Backlog) is tried again after each command, and at intervals while no command comes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/adaptive_wait.h"
#include "base/clock.h"
#include "base/cores.h"
#include "cuda/status.h"
#include "wire/ring.h"
#include "wire/trace.h"
#include "worker/core/reply_writer.h"
#include "worker/session/fault_listener.h"
#include "worker/session/session_parts.h"

namespace openmps::worker {

// How much the executors of a worker may spin together. To wake an executor that sleeps takes 46 us
// on an H200's host, of the 150 us that a small request takes.
struct SpinLimits {
  // `spins_long`: an executor may spin for milliseconds, if the program's pauses are that short.
  // `spares_cores`: no executor spins while cores are short.
  SpinLimits(uint32_t cores, uint64_t spin_ns, bool spins_long = true, bool spares_cores = true)
      : spin_ns(spin_ns),
        brief(std::max(1u, cores / 2)),
        extended(spins_long && spin_ns != 0 ? cores / kCoresPerLongSpin : 0),
        shortage(spares_cores) {}

  static constexpr uint32_t kCoresPerLongSpin = 8;

  const uint64_t spin_ns;  // pays whatever the program does
  SpinBudget brief;        // of executors that spin for up to spin_ns
  SpinBudget extended;     // of executors that spin for milliseconds
  CoreShortage shortage;
};

class Executor {
 public:
  // `trace`: null: no trace. `looks_for_values`: no ValueWatch does (device/value_watch.h).
  Executor(SessionParts& session, wire::RingConsumer& ring, SpinLimits& spins,
           FaultListener& faults, wire::Trace* trace, bool looks_for_values);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns success once session.stop or hands_over is set, or the session may leave
  // (leaves_by_ns), or why the client violates the protocol.
  Status run();

 private:
  // A command whose result is not there yet: another thread makes it.
  struct Late {
    wire::Record record;
    std::unique_ptr<Pending> pending;
    std::vector<unsigned char> payload;  // of the record
    Journal::Notes notes;
    Journal::Number entry;  // in the journal, until it is answered
    uint64_t begin_ns;
  };

  Status execute(const wire::Record& record);
  // What a former worker has taken and not answered.
  Status execute_pending();
  [[nodiscard]] bool hands_over() const {
    return session_.hands_over.load(std::memory_order_acquire);
  }
  bool has_lost(const Status& status);
  // The session is to leave. True: it may, now. False: its work has not ended, or it stays.
  bool try_to_leave();
  // `begin_ns`: when the command began, if it is traced.
  Status conclude(const wire::Record& record, const Status& status, uint64_t begin_ns);
  Status finish_late();
  // The executor has to look at more than the ring.
  [[nodiscard]] bool has_held_work() const {
    return !session_.backlog.empty() || session_.streams.has_streams_to_look_at();
  }
  // The session's memory is to go to the host, or it may go on. False: it has commands first.
  bool settle_wish();
  [[nodiscard]] bool is_asked() const {
    const MemoryPressure::Member& member = session_.memory.member;
    return member.asked.load(std::memory_order_relaxed) != 0 ||
           member.is_ended.load(std::memory_order_relaxed);
  }
  // Others ask for memory, or the session is to end for it.
  Status answer_pressure();
  // Move memory of a device to the host, as long as others need it.
  void give_memory(uint32_t device);
  // Move all memory back. False: the session ends, or moves, and some is still on the host.
  Result<bool> bring_back();
  // The session is suspended, and executes nothing.
  void wait_suspended();
  // Whether work of the session has run for longer than it may. Looks each kWorkTimeLookNs.
  Status check_work_time(float limit_s);
  void advance(uint64_t now);
  static void advance_meanwhile(void* executor) noexcept;
  void note_progress();
  uint64_t held_pause(uint64_t now);
  void fail(wire::Opcode opcode, const Status& status);
  void report(wire::Opcode opcode, const Status& status);
  void answer(const wire::Record& record, const Status& status);
  void log_error(const std::string& command, const Status& status);
  void idle();
  bool spin(SpinBudget& budget);
  void nap(uint64_t longest_ns);
  void sleep(uint64_t longest_ns);
  void end_pause();
  void interrupt_pause();

  SessionParts& session_;
  wire::RingConsumer& ring_;
  SpinLimits& spins_;
  const Clock& clock_;
  SpinHistory history_;                // of the pauses
  std::optional<AdaptiveWait> pause_;  // while no command comes and no held work is admitted
  // The longest sleep without a command: kLongestSleepNs until the session is idle, then longer and
  // longer until all that it can release is released; 0: no limit.
  uint64_t idle_sleep_ns_;
  const bool looks_for_values_;
  FaultListener& faults_;
  wire::ExecutorState& state_;
  uint64_t executed_ = 0;
  wire::Trace* const trace_;  // null: no trace
  const wire::Trace::Actor actor_;
  ReplyWriter reply_;
  std::vector<Late> late_;
  bool is_suspended_ = false;  // wire::Residence::kHeld
  bool is_left_ = false;  // the command in hand has not been answered: the next worker executes it
  uint32_t errors_logged_ = 0;
  // Since when no held work has been admitted; 0: no held work waits for a value.
  uint64_t held_since_ns_ = 0;
  // The cost of the last look at held work determines when the next look may be.
  uint64_t least_pause_ns_ = 0;
  uint64_t next_advance_ns_ = 0;
  uint64_t next_work_time_ns_ = 0;  // when check_work_time() looks again
};

}  // namespace openmps::worker
