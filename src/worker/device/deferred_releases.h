// SPDX-License-Identifier: Apache-2.0
// What a session has given up and the driver can't be told of yet (decision 40). A release waits
// behind one of two barriers, and nothing waits for the release:
// - a fence: all work that the session had been given has ended, so no stream uses the object;
// - quiescence: nothing of the shared context runs, so the driver call does not wait. The gate
// makes
//   such a call, with those of other sessions, also after the session's end.
// A release behind the fence whose driver call waits goes behind quiescence next.
//
// Held work has not been submitted: a release behind it gets a mark once the work has
// been. A mark is a set of events, one in each stream that got work since the mark before. Streams
// run in order, so a later mark covers all work that an earlier one covers: releases behind the
// fence are first in, first out, and a look costs the query of one event.
//
// Not here: destroyed streams (Streams::retired_), each of which ends by itself and until then
// counts as the session's work; code that sessions share (LoadedLibrary), which asks the gate for
// itself; memory that is kept for reuse (MemoryCache), which goes by age.
//
// Session's thread, but for the calls that the gate makes.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "api/driver_table.h"
#include "worker/device/background.h"
#include "worker/device/context_gate.h"
#include "worker/device/driver_event.h"
#include "worker/device/shown.h"

namespace openmps::worker {

// The end of work, in each stream that had some.
struct WorkMark {
  struct End {
    std::unique_ptr<DriverEvent> event;
    uint32_t stream;  // the session's id of the stream, which may have been destroyed
  };
  std::vector<End> events;
  bool unmarked = false;  // the driver gave no event: reached once nothing of the session runs

  [[nodiscard]] bool empty() const { return events.empty() && !unmarked; }
};

// A session's work, as far as releases wait for it. Streams are the implementation.
class SessionWork {
 public:
  // Work that the streams have been given and the driver has not (worker/work/backlog.h), by
  // numbers that grow in the order in which the program gives the work.
  struct Held {
    static constexpr uint64_t kNone = ~0ull;
    uint64_t last = 0;        // number of the last held work
    uint64_t oldest = kNone;  // number of the oldest work that still is
  };
  Held held;

  // The end of the submitted work that no earlier mark covers. Empty: all of it has ended. Changes
  // nothing of the streams, one of which may have been entered.
  virtual WorkMark mark() = 0;
  // The end of a mark is reached. A lost context's are: nothing runs there any more.
  virtual bool has_passed(const DriverEvent& end) = 0;
  // No submitted work of the session is unfinished.
  virtual bool idle() = 0;
  // The answer of idle(), but nothing is noted or given back: also while a stream has been entered.
  virtual bool seem_idle() = 0;

 protected:
  ~SessionWork() = default;
};

class DeferredReleases {
 public:
  // Gives something back to the driver. The context of the device need not be current. A release
  // that throws std::bad_alloc is called again.
  using Release = std::function<void()>;
  // A driver call that waits for all work of `device`, or of ContextGate::kAllDevices.
  struct Call {
    GatedCall call;
    uint32_t device;
    CUcontext context;               // current while `make` runs
    std::function<CUresult()> make;  // keeps alive what it uses
  };

  DeferredReleases(const DriverTable& driver, ContextGate& gate, const GateClient& client,
                   std::shared_ptr<Bell> bell, ShownReturns& shown)
      : driver_(driver), gate_(gate), client_(client), bell_(std::move(bell)), shown_(shown) {}
  // Before the first release.
  void set_work(SessionWork& work) { work_ = &work; }
  // From now on, calls keep this alive until they have been made, beyond the session's end.
  void set_kept(std::shared_ptr<const void> kept) { kept_ = std::move(kept); }

  // Release behind the fence: at once if all work has ended. Releases behind the fence are called
  // in the order in which they were added. `given_up` is shown until then.
  void add_behind_work(const GivenUp& given_up, Release release);
  // Release in quiescence, which the gate looks for: at once if nothing runs. `done` is called on
  // the session's thread after that, if the session lives. Calls for one device are made in the
  // order in which they were added. `given_up` is shown until `done`. The device's context is
  // current. Throws std::bad_alloc before anything has happened.
  void add_quiescent(const GivenUp& given_up, Call call, Release done);
  // Release an executable graph of `nodes` nodes whose launches have ended. Quiescence is looked
  // for only if graphs of many nodes wait for it, or if `is_urgent`. Not shown; nothing waits for
  // it.
  void add_graph(Call call, uint64_t nodes, bool is_urgent);

  // Make the releases behind work that has ended; `done` of the calls that the gate has made. The
  // bell rings when there are such calls.
  void sweep();
  [[nodiscard]] bool empty() const { return behind_work_.empty() && quiescent_.empty(); }
  [[nodiscard]] bool waits_for_work() const { return !behind_work_.empty(); }
  // A release that is added now comes behind held work.
  [[nodiscard]] bool is_behind_held() const {
    return work_->held.oldest != SessionWork::Held::kNone;
  }
  // All submitted work of the session has ended.
  [[nodiscard]] bool has_ended_all() const { return work_->seem_idle(); }
  // The session needs what the calls give back: wait until all have been made, as long as the gate
  // looks for quiescence. False: nothing was given back.
  bool wait();

  // The session has drained, or its context is lost: nothing is behind work any more.
  void release_all();
  // The session ends. Calls that have not been made by now are made later.
  void end();

 private:
  struct Entry {
    Release release;
    ShownReturns::Row shown;
  };
  // Releases behind one mark.
  struct Batch {
    WorkMark mark;
    uint64_t behind = 0;  // not 0: held work up to this number comes first, and then the mark
    std::deque<Entry> releases;
  };
  // The row is the session's; the call may be made after the session's end.
  struct Quiescent {
    std::shared_ptr<std::atomic<bool>> made;
    Entry done;
  };
  // Nothing waits that the call has to come behind, and nothing runs: the call has been made.
  bool make_now(const Call& call);
  // Have the gate make the call; then `then` is called, on the same thread.
  void defer(Call call, ContextGate::Urgency urgency, std::function<void()> then);
  void sweep_work();
  void sweep_quiescent();
  void mark_submitted();
  bool reached(WorkMark& mark);
  void release_first();
  // Show the stream whose work the first release waits for.
  void show_first();

  const DriverTable& driver_;
  ContextGate& gate_;
  const GateClient& client_;
  const std::shared_ptr<Bell> bell_;
  ShownReturns& shown_;
  SessionWork* work_ = nullptr;
  std::shared_ptr<const void> kept_;
  std::deque<Batch> behind_work_;
  size_t unmarked_ = 0;  // so many batches at the end have no mark yet
  std::deque<Quiescent> quiescent_;
  // What the executable graphs that wait for quiescence weigh, in nodes. They may outlive the
  // session.
  const std::shared_ptr<std::atomic<uint64_t>> graph_nodes_ =
      std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace openmps::worker
