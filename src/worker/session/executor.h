// SPDX-License-Identifier: Apache-2.0
// The executor of a session: takes records from its ring and executes them, in order, on the
// session's own thread. It makes no driver call that waits for another session's work, except
// through ContextGate.
//
// What streams hold back (Backlog) is looked at behind each command, and in pauses while there is
// none. The journal of live objects would be written behind dispatch(), from commands that
// succeeded.
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

// How much all executors of a worker may spin. To wake an executor that sleeps takes 46 us on an
// H200's host, of the 150 us that a small request takes.
struct SpinLimits {
  // `spins_long`: an executor may spin for milliseconds, if the program's pauses are that short.
  // `spares_cores`: no executor spins while cores are short.
  SpinLimits(uint32_t cores, uint64_t spin_ns, bool spins_long = true, bool spares_cores = true)
      : spin_ns(spin_ns),
        brief(std::max(1u, cores / 2)),
        extended(spins_long && spin_ns != 0 ? cores / kCoresPerLongSpin : 0),
        shortage(spares_cores) {}

  static constexpr uint32_t kCoresPerLongSpin = 8;

  const uint64_t spin_ns;  // for so long it pays, whatever the program does
  SpinBudget brief;
  SpinBudget extended;
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

  // Until session.stop is set: success. A violation of the protocol: the reason.
  Status run();

 private:
  // A command that is answered later.
  struct Late {
    wire::Record record;
    std::unique_ptr<Pending> pending;
    std::vector<unsigned char> payload;  // the record's
    uint64_t begin_ns;
  };

  Status execute(const wire::Record& record);
  // What has begun at `begin_ns`, if it is traced.
  Status conclude(const wire::Record& record, const Status& status, uint64_t begin_ns);
  Status finish_late();
  // There is something to look at besides commands.
  [[nodiscard]] bool looks() const {
    return !session_.backlog.empty() || session_.streams.looks_after_some();
  }
  void advance(uint64_t now);
  void advance_between(uint64_t now);
  void await_room();
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
  uint64_t next_idle_sleep();

  SessionParts& session_;
  wire::RingConsumer& ring_;
  SpinLimits& spins_;
  const Clock& clock_;
  SpinHistory history_;                // of the pauses
  std::optional<AdaptiveWait> pause_;  // while no command comes and nothing held can go
  // How long it sleeps without a command: kLongestSleepNs until nothing is left to give back, then
  // longer and longer; 0: until it is woken.
  uint64_t idle_sleep_ns_;
  const bool looks_for_values_;
  FaultListener& faults_;
  wire::ExecutorState& state_;
  uint64_t executed_ = 0;
  wire::Trace* const trace_;  // null: nobody asks
  const wire::Trace::Actor actor_;
  ReplyWriter reply_;
  std::vector<Late> late_;
  uint32_t errors_logged_ = 0;
  // 0: no value is waited for here; else when some held work went last.
  uint64_t held_since_ns_ = 0;
  // What the last look at held work has cost says when the next one may be.
  uint64_t least_pause_ns_ = 0;
  uint64_t next_advance_ns_ = 0;
};

}  // namespace openmps::worker
