// SPDX-License-Identifier: Apache-2.0
// Everything that one session owns, built in the order in which the parts use each other. The
// executor's handlers work on it; session's thread only.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "worker/code/function.h"
#include "worker/code/linker.h"
#include "worker/code/module.h"
#include "worker/code/prints.h"
#include "worker/core/session_core.h"
#include "worker/graphs/graph.h"
#include "worker/memory/memory.h"
#include "worker/memory/physical.h"
#include "worker/session/device_queries.h"
#include "worker/session/fault_listener.h"
#include "worker/session/ipc_commands.h"
#include "worker/session/limits.h"
#include "worker/session/release_commands.h"
#include "worker/session/worker_parts.h"
#include "worker/streams/array.h"
#include "worker/streams/event.h"
#include "worker/streams/fence.h"
#include "worker/streams/green.h"
#include "worker/streams/losses.h"
#include "worker/streams/open_waits.h"
#include "worker/streams/stream.h"
#include "worker/work/backlog.h"
#include "worker/work/batch.h"
#include "worker/work/submitter.h"
#include "worker/work/work_admission.h"
#include "worker/work/work_maker.h"

namespace openmps::worker {

struct SessionParts {
  SessionParts(const DriverTable& driver, const Devices& devices, ContextGate& gate,
               WorkerParts& worker, SessionInfo info);

  // The client has gone: satisfies whatever the session's streams wait for, and waits until their
  // work has ended. Returns at once after a fault. A kernel that does not end keeps the session, as
  // with MPS.
  void drain();
  // The executor has no command: performs the releases that are due. Returns for how long at most
  // the executor may sleep before the next call.
  uint64_t service();
  // No work is under way, and no release is pending.
  [[nodiscard]] bool is_idle();
  // What keeps the session from leaving this worker; "": nothing. kBusy: its work has not ended.
  static constexpr std::string_view kBusy = "its work has not ended";
  [[nodiscard]] std::string_view keeps_from_leaving();
  // Nothing of the session is under way.
  [[nodiscard]] bool is_quiet();
  // The session is idle: releases what an idle session need not hold. False: some of it can't be
  // released now.
  bool release_idle() { return core.pages.release_idle(); }
  // The session has drained: releases everything that the driver holds for it. Safe to call again
  // after std::bad_alloc.
  void release();

  // Set when the session is to end: a handler that waits gives up.
  std::atomic<bool> stop{false};
  // Set when the contexts are lost and the session goes on in another worker: the executor takes no
  // further command.
  std::atomic<bool> hands_over{false};
  // Its executor's; null while there is none.
  const FaultListener* faults = nullptr;
  // A command that fails now is not concluded: the next worker executes it.
  [[nodiscard]] bool leaves_commands() const { return faults != nullptr && faults->hands_over(); }
  // When not 0: the session is to leave this worker before that time (Clock::now_ns()), once
  // nothing is under way. The executor then takes no further command and ends; or it goes on, and
  // calls on_stays with the reason.
  std::atomic<uint64_t> leaves_by_ns{0};
  std::function<void(std::string_view reason)> on_stays = [](std::string_view) {};
  // Gives that up. Session's thread.
  void stay(std::string_view reason) {
    if (leaves_by_ns.exchange(0, std::memory_order_acq_rel) != 0) on_stays(reason);
  }
  // Where the session's memory is to be (wire::SuspendSession): set by the main thread, taken by
  // the executor, which calls on_suspended.
  struct Wish {
    wire::Residence residence = wire::Residence::kDevice;
    uint64_t until_ns = 0;  // when it is given up if work is still under way
  };
  void set_wish(const Wish& wish) {
    const MutexLock lock(wish_mutex_);
    wish_ = wish;
    has_wish.store(true, std::memory_order_release);
  }
  [[nodiscard]] Wish wish() {
    const MutexLock lock(wish_mutex_);
    return wish_;
  }
  std::atomic<bool> has_wish{false};
  std::function<void(const Status& status, const SessionMemory::Moved& moved)> on_suspended =
      [](const Status&, const SessionMemory::Moved&) {};
  // Commands that a former worker was to answer later, and has not, and such that are given again:
  // the executor begins with them.
  struct PendingCommand {
    wire::Opcode opcode = wire::Opcode::kPadding;
    uint16_t reply_slot = wire::kNoReply;
    std::vector<unsigned char> payload;
    Journal::Notes notes;
    Journal::Number entry = 0;  // in the journal; 0: it is given again,
    wire::Id stream = 0;        // in that stream
  };
  std::deque<PendingCommand> pending;
  // A launch has failed because the context is lost. The kernel may have begun, and be guilty.
  bool has_failed_launch = false;
  MemoryPressure& pressure;
  SessionCore core;
  std::optional<Recorder::Member> recorded;  // nothing: the worker has no recorder
  SessionMemory memory;
  PhysicalObjects physical{core, memory};
  GreenContexts greens;
  Streams streams;
  DeviceWords words{core};
  ReleaseCommands release_commands{core, memory, physical, greens, streams, words};
  Events events{core};
  IpcCommands ipc_commands;
  Modules modules;
  Functions functions{core, modules};
  Prints prints;
  Links links{core, modules};
  OpenWaits waits{core, memory};
  Fences fences;
  Losses losses{core, streams, events, fences};
  Arrays arrays{core, memory};
  WorkMaker work_maker{core, memory, modules, events, arrays};
  WorkAdmission admission{core, streams, words};
  Backlog backlog;
  Batch batch;
  Submitter submitter{core,  streams,    memory,    prints,  fences, losses,
                      waits, work_maker, admission, backlog, batch};
  GraphBuilder graph_builder{core, memory, modules, events, fences, work_maker, submitter};
  Graphs graphs{core, memory, modules, graph_builder, submitter};
  Limits limits;
  DeviceQueries device_queries{core};

 private:
  Mutex wish_mutex_{LockRank::kSessionWish};
  Wish wish_ GUARDED_BY(wish_mutex_);
};

}  // namespace openmps::worker
