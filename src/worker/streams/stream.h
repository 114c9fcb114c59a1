// SPDX-License-Identifier: Apache-2.0
// The streams of a session. Each is a non-blocking stream of the shared context, made at its first
// use, so that sessions never wait for each other. What CUDA promises of the legacy default stream
// is done with events, within one context of the client. Session's thread only.
//
// Work of the legacy stream waits for all earlier work of the context's blocking streams, and their
// later work waits for it. Counters tell whether the other side has work that has not been waited
// for, and events are recorded only then: a program that uses one stream pays a comparison per
// command.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "wire/commands/device.h"
#include "wire/commands/green.h"
#include "wire/commands/stream.h"
#include "worker/admission/fair_share.h"
#include "worker/admission/queue_credits.h"
#include "worker/admission/stream_budget.h"
#include "worker/admission/verdict.h"
#include "worker/core/object_table.h"
#include "worker/core/session_core.h"
#include "worker/device/driver_event.h"
#include "worker/streams/green.h"

namespace openmps::worker {

struct ClientContext;
struct Function;
class Chains;  // worker/work/batch.h

// What a stream has been given last: tells whether all of its work has ended for certain, from
// memory alone, because a driver whose contexts are lost answers no question any more.
struct StreamTail {
  bool is_open = false;            // work has been given behind the last fence
  bool is_uncounted = false;       // some of it is of a kind that budgets don't count
  uint32_t slot = wire::kNoFence;  // the last fence,
  uint64_t value = 0;              // and its value
  // The last kernel, and the fence behind it; kNoFence: none yet.
  const Function* kernel = nullptr;  // null: none, or it is part of a graph
  bool has_kernel = false;
  uint32_t grid[3] = {};
  uint32_t block[3] = {};
  uint32_t kernel_slot = wire::kNoFence;
  uint64_t kernel_value = 0;

  void note_fence(uint32_t to, uint64_t new_value) {
    is_open = is_uncounted = false;
    slot = to;
    value = new_value;
    if (!has_kernel || kernel_slot != wire::kNoFence) return;
    kernel_slot = to;
    kernel_value = new_value;
  }
  // `of`: null: kernels of a graph.
  void note_kernel(const Function* of, const wire::Launch* shape) {
    kernel = of;
    has_kernel = true;
    kernel_slot = wire::kNoFence;
    if (shape == nullptr) return;
    for (size_t i = 0; i < 3; ++i) {
      grid[i] = shape->grid[i];
      block[i] = shape->block[i];
    }
  }
};

// A stream whose work is dropped, because earlier work of it, or of a stream that it has waited
// for, was lost with a former worker (losses.h).
struct Loss {
  std::vector<wire::Id> sources;  // lost streams that it has waited for
  bool has_more_sources = false;  // than are listed
};

// A stream's counterpart in the cold context (decision 16). Work in it lies between two events of
// the stream: it waits for the stream's earlier work, and the stream waits for it. So whoever waits
// for the stream, or looks at it, need not know of it.
struct ColdStream {
  CUstream handle = nullptr;
  ContextGate::Stream* listed = nullptr;   // with the cold lane's gate
  std::unique_ptr<DriverEvent> hand_over;  // in the stream: the cold stream waits
  std::unique_ptr<DriverEvent> end;        // in the cold stream: the stream waits
  // The stream has been given nothing behind the cold stream's last work: what comes need not wait.
  bool is_current = false;
  StreamSlot slots;
};

// A stream of the driver and its cold stream.
struct DriverStream {
  CUstream handle = nullptr;
  ContextGate::Stream* listed = nullptr;       // as long as the driver has it
  std::unique_ptr<ColdStream> cold;            // from the first work in the cold lane on
  ContextGate::Stream* listed_cold = nullptr;  // with the cold lane's gate, once it had such graphs
  StreamSlot slots;                            // for the driver's stream, and while it is there
};

// The driver has none until the first use, and while it rests.
struct Stream : DriverStream {
  wire::Id id = 0;
  wire::StreamKind kind = wire::StreamKind::kBlocking;
  Placement place;
  ClientGreen* green = nullptr;  // in which the client has made it; null: in none
  // Of the session, in which it is; null: in that green context, or on all of the device.
  SmPart part;
  uint32_t fence_slot = 0;                // of the client's
  uint32_t sms = 0;                       // at most so many of them; 0: any number
  uint64_t seen_changes = 0;              // of DeviceParts
  DeviceParts::Member* member = nullptr;  // the session's share of SMs; null: nobody asks
  std::shared_ptr<Lease> lease;           // of the part; null: it is not lent to others
  int32_t priority = 0;                   // that the client has asked for,
  int32_t driver_priority = 0;            // and that it was made with
  ClientContext* context = nullptr;
  // From the first use on, also while the driver has no stream. Null: none, or nothing is limited.
  std::unique_ptr<StreamBudget> budget;
  std::atomic<uint64_t> ends_ns{0};  // the budget's, while the driver has no stream
  bool is_looked_at = false;         // listed in Streams::looked_at_
  size_t held = 0;                   // its items in the Backlog,
  uint64_t first_held = 0;           // the numbers of the first
  uint64_t last_held = 0;            // and the last of them, if there are some
  bool is_full = false;              // so many that the client has been told to wait
  std::shared_ptr<Chains> chains;    // from the first batch on

  StreamSlot cold_slot;  // for a cold stream that is about to be made

  uint64_t work = 0;         // legacy stream: pieces of work submitted so far
  bool joined = false;       // legacy stream: has waited for others since that
  uint64_t legacy_seen = 0;  // blocking stream: the legacy stream's `work` that it has waited for
  bool dirty = false;        // blocking stream: listed in its context's `dirty`
  uint64_t order_seen = 0;   // the context's order that it has waited for
  bool unmarked = false;     // has work that no mark covers
  StreamTail tail;
  bool has_lost_work = false;         // in this worker, whose context was lost before it was given
  std::unique_ptr<Loss> loss;         // null: nothing is lost with a former worker
  std::unique_ptr<DriverEvent> join;  // at the end of its work, for the other side to wait for
  uint64_t join_work = 0;             // legacy stream: the value of `work` at `join`
};

// A context of the client: the scope of the legacy stream and of ordered copies.
struct ClientContext {
  uint32_t device = 0;
  uint32_t streams = 0;        // that name it
  uint32_t started = 0;        // streams of these that the driver has
  uint32_t blocking_held = 0;  // blocking streams of these with items in the Backlog
  Stream* legacy = nullptr;
  // Blocking streams with work that the legacy stream has not waited for, and the ends of such work
  // whose streams have been destroyed.
  std::vector<Stream*> dirty;
  std::vector<std::unique_ptr<DriverEvent>> parted;
  // The last copy that everything later waits for (kOrderAllStreams).
  uint64_t order = 0;
  Stream* order_source = nullptr;
  bool order_recorded = false;
  std::unique_ptr<DriverEvent> order_event;
  uint64_t order_fence = 0;  // the source's first fence behind the copy; 0: none yet
};

class Streams final : public SessionWork {
 public:
  // `credits`: null: hardware queues are not counted. `has_budgets`: what the driver has of a
  // stream is limited.
  Streams(SessionCore& core, PerDevice<FairShares>& shares, PerDevice<QueueCredits>* credits,
          bool has_budgets, bool holds_waits)
      : core_(core),
        device_shares_(shares),
        credits_(credits),
        has_budgets_(has_budgets),
        holds_waits_(holds_waits) {
    core_.releases.set_work(*this);
  }

  Status handle(const wire::StreamCreate& command, ClientGreen* green);
  // Returns at once, as cuStreamDestroy does: unfinished work completes. Held work of the stream
  // goes when it can, and the stream with it.
  Status handle(const wire::StreamDestroy& command);
  // Destroyed streams without held work are given back.
  Status end_destroyed();
  [[nodiscard]] const auto& streams() const { return streams_; }
  // The stream is of that context of the client.
  [[nodiscard]] bool is_of(const Stream& stream, wire::Id context) const {
    const auto found = contexts_.find(context);
    return found != contexts_.end() && found->second.get() == stream.context;
  }

  // How long work takes, by what is done.
  Durations durations;
  // The session's fair share of a device.
  [[nodiscard]] FairShare& share(uint32_t device);
  // Work is about to be submitted to the stream.
  void prepare_work(Stream& stream, const Cost& cost) {
    if (stream.budget != nullptr) stream.budget->prepare(cost);
    note_demand(stream, cost);
  }
  // Tells the session's SM partition what SMs the work needs. For work that is submitted together
  // with other work this is called alone.
  void note_demand(Stream& stream, const Cost& cost) {
    if (stream.member == nullptr || cost.sms_needed == 0) return;
    uint64_t ns = durations.alone(cost);
    if (cost.kernels > 1) ns /= cost.kernels;
    const bool matters = ns >= Demand::kLongNs || core_.parts.looks(stream.place.device);
    if (matters) [[unlikely]]
      tell_demand(stream, cost, ns);
  }
  // Something has been submitted: `add(StreamBudget&)` tells the stream's budget, if it has one.
  template <typename F>
  void note(Stream& stream, F&& add) {
    if (stream.budget == nullptr) return;
    add(*stream.budget);
    keep_in_sight(stream);
  }
  // The stream's budget, made now if there is none; null: nothing is limited. Throws
  // std::bad_alloc.
  [[nodiscard]] StreamBudget* budget(Stream& stream);
  // Work that has taken these is about to be submitted to the stream.
  void keep(Stream& stream, Admitted&& taken) {
    if (taken.queue_credit != nullptr || taken.wait_credit) {
      stream.budget->keep(taken);
      keep_in_sight(stream);  // others may need the credit, whatever becomes of the work
    }
    if (taken.slot != nullptr) stream.slots = std::move(taken.slot);
    if (taken.cold_slot != nullptr) stream.cold_slot = std::move(taken.cold_slot);
  }
  // Make the driver's stream before there is anything to give it: streams whose turn comes at one
  // moment would make theirs one after the other, 0.4 ms each. Only the first streams of a session,
  // and while there are slots for more: held work takes none that others need.
  void begin_ahead(Stream& stream);
  // The driver has the streams for work of that lane, or slots for them are there.
  [[nodiscard]] static bool has_stream_slot(const Stream& stream, Lane lane) {
    return has_slot(stream) && (lane == Lane::kMain || has_cold_slot(stream));
  }
  // Takes the slots that the stream still needs into the verdict: free ones, or those of another
  // stream of the session whose work has ended. Else refuses; the gate has been asked to make more
  // (decision 33). A session that has many streams leaves some of the last free slots to others.
  void admit_slots(Stream& stream, Lane lane, Verdict& verdict);
  // Some stream may wait for a value that somebody has to write.
  [[nodiscard]] bool any_waits();
  // Waits are held until what they wait for has come, as far as the worker sees that (decision 17).
  [[nodiscard]] bool holds_waits() const { return holds_waits_; }
  // Work of unknown duration may run, or a stream has a credit that others may need:
  // look_at_streams(), which looks at these streams, is due at next_look_ns(), in Clock::now_ns()
  // time.
  [[nodiscard]] bool has_streams_to_look_at() const { return !looked_at_.empty(); }
  [[nodiscard]] uint64_t next_look_ns() const;
  void look_at_streams(uint64_t now);
  // Looks at all streams that have work: for how long the oldest work of one has run, the longest.
  [[nodiscard]] uint64_t longest_work_ns(uint64_t now);
  // Nothing of the session is unfinished: the work that its budgets count has ended.
  void end_budgets(uint64_t now);

  // What is about to be submitted, for the emulation of the legacy stream.
  enum class Entry {
    kWork,      // anything that runs: orders both ways
    kColdWork,  // work that runs in the cold stream
    kRecord,    // an event record or a fence in order: waits like work, nobody has to wait for it
    kFence,     // the program's own waiting: only the legacy stream waits for the others
  };
  // Make the stream and its device ready for a submission by this thread, with every wait that
  // the submission implies. Call it before each.
  Status enter(Stream& stream, Entry entry);
  // The submission implies a wait for another stream, which takes a credit like any wait (decision
  // 23). The wait of a legacy stream's fence does not: while that were held, the other streams
  // might be given work that the fence need not wait for.
  [[nodiscard]] static bool implies_wait(const Stream& stream, Entry entry) {
    return entry != Entry::kFence &&
           (owes_join(stream) || owes_order(stream) || owes_legacy(stream));
  }
  // The work that an implied wait is for is known to end before long.
  [[nodiscard]] static bool ends_implied_wait_soon(const Stream& stream);
  // An implied wait has nothing left to wait for.
  [[nodiscard]] bool is_implied_wait_over(Stream& stream);
  // Enter for work and submit it: f(CUstream) in the context of that lane, whose stream it is.
  template <typename F>
  Status submit(Stream& stream, Lane lane, F&& f) {
    if (lane == Lane::kMain) [[likely]] {
      OPENMPS_RETURN_IF_ERROR(enter(stream, Entry::kWork));
      return f(stream.handle);
    }
    const SubmitScope scope(core_.cold_gate_client);
    Status status = enter_cold_stream(stream);
    if (status.ok()) status = f(stream.cold->handle);
    if (status.ok()) status = leave_cold_stream(stream);
    const Status back = core_.use(stream.place);
    return status.ok() ? back : status;
  }
  // The stream, which has been entered, gets a graph with work of the cold lane.
  void note_cold_graph(Stream& stream);
  // All later work of the context waits for what `stream` has been given so far.
  Status order_all_behind(Stream& stream);
  // order_all_behind() as a command, which may come while nothing is under way in the stream.
  Status follow(Stream& stream);
  // Later work of a stream waits for all that the streams of a context have been given so far.
  Status join(const wire::ContextJoin& command, Stream& stream);
  // The order event must not come to lie behind a wait whose end may depend on later work.
  Status before_open_wait(Stream& stream);

  // SessionWork. idle() counts streams that exist or have been destroyed. After a fault everything
  // counts as finished.
  WorkMark mark() override;
  bool has_passed(const DriverEvent& end) override;
  bool idle() override;
  [[nodiscard]] bool has_lost_context() const { return has_lost_context_; }
  bool seem_idle() override;
  // The driver's contexts are lost: f(Stream&) for each stream of the client's whose work has not
  // ended for certain, as far as that was known before. Streams that the client has destroyed leave
  // their share to all others of their context.
  template <typename F>
  void for_each_unfinished(F&& f) {
    std::vector<const ClientContext*> contexts;
    for (const Retired& retired : retired_) {
      if (retired.is_destroyed && !has_ended(retired.stream, retired.tail, nullptr)) {
        contexts.push_back(retired.context);
      }
    }
    for (const std::unique_ptr<Stream>& stream : destroyed_) contexts.push_back(stream->context);
    streams_.for_each([&](Stream& stream) {
      const bool shares = std::ranges::find(contexts, stream.context) != contexts.end();
      if (shares || !has_ended(stream) || awaits_lost_order(stream)) f(stream);
    });
  }
  // The stream has been given a fence, behind all of its work.
  static void note_fence(Stream& stream, uint32_t slot, uint64_t value) {
    stream.tail.note_fence(slot, value);
    ClientContext& context = *stream.context;
    if (context.order_source == &stream && context.order_fence == 0) context.order_fence = value;
  }
  // Asks the driver about work that has not ended for certain. True: some has not.
  bool look_for_ends();
  // The kernel that the stream was given last has not ended for certain.
  [[nodiscard]] bool may_run_kernel(const Stream& stream) const;
  // Work has been given to the stream that no fence covers, and that may be unfinished.
  [[nodiscard]] static bool has_open_work(const Stream& stream) {
    return stream.tail.is_open && stream.listed != nullptr &&
           stream.listed->busy.load(std::memory_order_relaxed);
  }
  // The chains of all streams. They may be under way: the driver would wait for them.
  [[nodiscard]] std::vector<std::shared_ptr<Chains>> take_chains();
  // Give back the streams that the client has destroyed and that have finished since.
  void sweep_retired();
  // The client has destroyed all streams of a green context. The next mark covers whatever they
  // still do, fences too; once it is reached they can be dropped.
  void end_green(const ClientGreen& green);
  void drop_green(const ClientGreen& green);
  // The streams of the context have drained.
  Status handle(const wire::ContextReset& command);
  void release_all();

 private:
  void keep_in_sight(Stream& stream) {
    const bool soon = stream.budget->is_learning() && !learns_;
    if (!soon && (stream.is_looked_at || !stream.budget->needs_looks())) [[likely]]
      return;
    begin_to_look_at(stream);
  }
  void begin_to_look_at(Stream& stream);
  void tell_demand(Stream& stream, const Cost& cost, uint64_t ns);
  [[nodiscard]] StreamOwner owner(const Stream& stream) const { return {core_.info.id, stream.id}; }
  // DeviceParts::get(), or get_instead() for a stream in a green context of the client's.
  Status find_part(uint32_t device, uint32_t sms, ClientGreen* green, SmPart* part);
  CUresult create(const Placement& place, int32_t priority, CUstream* made);
  // The session's SMs or priority have changed since the stream was made: later work goes to
  // another stream of the driver, behind the work of this one.
  Status follow_changes(Stream& stream);
  Status move(Stream& stream, const Placement& place, int32_t priority);
  Status come_behind(Stream& stream, CUstream next);
  Status start(Stream& stream);
  [[nodiscard]] static bool has_slot(const Stream& stream) {
    return stream.handle != nullptr || stream.slots != nullptr;
  }
  [[nodiscard]] static bool has_cold_slot(const Stream& stream) {
    return stream.cold != nullptr || stream.cold_slot != nullptr;
  }
  bool find_slot(const Stream& stream, Lane lane, StreamSlot* slot);
  bool rest_another(const Stream& asking, Lane lane);
  Status rest(Stream& stream);
  Status start_cold_stream(Stream& stream);
  Status enter_cold_stream(Stream& stream);
  Status leave_cold_stream(Stream& stream);
  // The legacy stream has to wait for blocking streams,
  [[nodiscard]] static bool owes_join(const Stream& stream) {
    return stream.kind == wire::StreamKind::kLegacy &&
           !(stream.context->dirty.empty() && stream.context->parted.empty());
  }
  // a blocking stream for the legacy stream,
  [[nodiscard]] static bool owes_legacy(const Stream& stream) {
    return stream.kind == wire::StreamKind::kBlocking && stream.context->legacy != nullptr &&
           stream.context->legacy->work != stream.legacy_seen;
  }
  // and each for the last ordered copy, if that is in another. Blocking streams wait for the
  // legacy stream's work anyhow.
  [[nodiscard]] static bool owes_order(const Stream& stream) {
    const ClientContext& context = *stream.context;
    const Stream* source = context.order_source;
    if (stream.order_seen == context.order || source == &stream) return false;
    if (source == nullptr) return context.order_recorded;
    return source != context.legacy || stream.kind != wire::StreamKind::kBlocking;
  }

  // f(stream, event) for each thing that the stream owes a wait for: the work of a stream, up to an
  // event if there is one, or an event alone. Whether it was true for all.
  template <typename F>
  static bool all_owed(const Stream& stream, F&& f);
  [[nodiscard]] static bool ends_soon(const Stream& stream);
  Status record(Stream& stream, std::unique_ptr<DriverEvent>* event);
  // For the end of what `other` has been given, null: for something else.
  Status wait(Stream& stream, const DriverEvent& event, const Stream* other, const char* what);
  Status wait_for_order(Stream& stream);
  Status legacy_waits(Stream& legacy);
  Status wait_for_legacy(Stream& stream);
  Status detach(Stream& stream);
  template <typename F>
  void for_each(F&& f) {
    streams_.for_each(f);
    for (const std::unique_ptr<Stream>& stream : destroyed_) f(*stream);
  }
  // Call f(ContextGate::Stream&) for all streams that the driver has.
  template <typename F>
  void for_each_listed(F&& f) {
    for_each([&f](const Stream& stream) {
      if (stream.listed != nullptr) f(*stream.listed);
    });
    for (const Retired& retired : retired_) f(*retired.stream.listed);
  }
  template <typename Pick>
  void give_back_retired(Pick&& pick) {
    std::erase_if(retired_, [&](Retired& retired) {
      if (!pick(retired)) return false;
      give_back(retired.stream);
      return true;
    });
  }
  Status end(std::unique_ptr<Stream> stream);
  void release(std::unique_ptr<Stream> stream);
  void forget_context(ClientContext* context);
  // Asks the driver, and notes that the stream is not busy. Not of a stream that has been entered
  // and not been given its work yet.
  bool finished(ContextGate::Stream& stream);
  // Asks the driver, and notes nothing.
  bool seems_finished(const ContextGate::Stream& stream);
  // A driver's stream that the client has destroyed, not finished yet.
  struct Retired {
    DriverStream stream;
    std::shared_ptr<Chains> chains;  // under way
    ClientGreen* green = nullptr;
    SmPart part;
    bool unmarked = false;
    // Destroyed by the client; else another stream of the driver has come behind it.
    bool is_destroyed = false;
    StreamTail tail;
    const ClientContext* context = nullptr;  // may be gone
  };
  [[nodiscard]] bool has_ended(const DriverStream& stream, const StreamTail& tail,
                               const StreamBudget* budget) const;
  [[nodiscard]] bool has_ended(const Stream& stream) const {
    return stream.loss == nullptr && stream.held == 0 && !stream.has_lost_work &&
           has_ended(stream, stream.tail, stream.budget.get());
  }
  // Later work of the stream was to wait for an ordered copy of another, which may not have ended.
  [[nodiscard]] bool awaits_lost_order(const Stream& stream) const;
  [[nodiscard]] bool is_fence_reached(uint32_t slot, uint64_t value) const;
  // What the driver says of the stream: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or the loss of its
  // context.
  [[nodiscard]] CUresult state_of(const ContextGate::Stream& stream);
  void give_back(DriverStream& stream);
  void note_gone(const DriverStream& stream);
  void mark(const ContextGate::Stream& stream, WorkMark* mark);

  SessionCore& core_;
  PerDevice<FairShares>& device_shares_;
  PerDevice<QueueCredits>* const credits_;
  const bool has_budgets_;
  const bool holds_waits_;
  std::array<std::unique_ptr<FairShare>, wire::kMaxDevices> shares_;  // from the first use on
  std::array<WaitCredits, wire::kMaxDevices> wait_credits_;
  ObjectTable<Stream> streams_{"stream"};
  std::map<wire::Id, std::unique_ptr<ClientContext>> contexts_;
  // Destroyed by the client while some of their work was held.
  std::vector<std::unique_ptr<Stream>> destroyed_;
  std::vector<Retired> retired_;
  std::array<size_t, kLanes> started_{};  // streams that the driver has, without those destroyed
  uint64_t next_rest_look_ns_ = 0;        // when to look again for a stream without work
  std::vector<Stream*> unmarked_;         // those that have work since the last mark
  std::vector<Stream*> looked_at_;        // those whose budgets need looks
  bool learns_ = false;                   // some of these have work of unknown duration
  uint64_t learning_since_ns_ = 0;
  uint64_t next_look_ns_ = 0;
  uint64_t last_look_ns_ = 0;
  bool has_lost_context_ = false;  // the driver has said so
};

}  // namespace openmps::worker
