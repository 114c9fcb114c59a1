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
#include <string>
#include <vector>

#include "cuda/status.h"
#include "wire/ring.h"
#include "wire/trace.h"
#include "worker/core/reply_writer.h"
#include "worker/session/fault_listener.h"
#include "worker/session/session_parts.h"
#include "worker/session/spinning.h"

namespace openmps::worker {

class Executor {
 public:
  // `trace`: null: nobody asks. `looks_for_values`: nobody else does (device/value_watch.h).
  Executor(SessionParts& session, wire::RingConsumer& ring, Spinning& spinning,
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
  uint64_t next_rest();
  bool nap(uint64_t start, bool holds);
  void end_pause(uint64_t now);
  bool spin(SpinBudget& budget, uint64_t now, uint64_t end);

  SessionParts& session_;
  wire::RingConsumer& ring_;
  Spinning& spinning_;
  uint64_t spin_ns_ = 0;  // the longest while spinning pays, less and less while it does not
  Pauses pauses_;
  uint64_t paused_since_ns_ = 0;  // no command has come since; 0: one has
  uint64_t rest_ns_;  // without a command, before the next look at what is under way; 0: no limit
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
