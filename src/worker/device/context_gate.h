// SPDX-License-Identifier: Apache-2.0
// The gate of a shared context. Some driver calls wait for all work that is queued in a context:
// loading and unloading code, unregistering host memory. While such a call waits, the driver holds
// locks of the whole process: another session's launch in that context waits with the call, and so
// does the creation of an event on any GPU (both measured on an H200). If the work that the call
// waits for needs the other session to go on (NCCL's kernels on two GPUs), nobody ever goes on. So
// the worker waits before the call, outside of the driver. The gate closes: executors that are
// about to submit work wait at it, for a bounded time (a hold) and a bounded part of the time,
// until what is queued has ended. The call is made then. That moment is called quiescence: nothing
// of the context runs. Calls that wait at one time use one moment of quiescence together (decision
// 9).
//
// Calls that nobody waits for (unloading, giving back) are deferred: the gate makes them in a
// moment of quiescence that is found for another call, or that a thread of the gate's own looks
// for. They are never made beside running work, since NVIDIA's driver would wait inside of them.
//
// Thread-safe. A session submits work between enter() and leave() of its GateClient and lists the
// driver's streams that it uses.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "api/driver_table.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "cuda/abi.h"
#include "wire/handshake.h"
#include "worker/device/shown.h"

namespace openmps::worker {

enum class GatedCall : uint32_t {
  kModuleLoad = 0,
  kLibraryLoad,   // does not wait, for code is loaded lazily; counted beside the others
  kFunctionLoad,  // the first look at a function loads the code of the function
  kModuleUnload,
  kLibraryUnload,
  kHostUnregister,
  kArrayCreate,   // not measured; taken not to wait, as cuMemAlloc does not
  kArrayDestroy,  // not measured; taken to wait, as cuMemFree does
  kGreenCreate,   // not measured; taken to wait
  kGreenDestroy,
  kGraphExecDestroy,  // waits with conditional nodes, at times with others (decision 13)
  kLimit,
  kStreamSlots,   // stream_slots.h
  kRecordingEnd,  // cuptiFinalize(): kernels that run would write where nothing is any more
  kCount,
};

// How long the gate looks for quiescence, and for how long it is closed to sessions that submit.
struct GateLimits {
  // The gate is closed for this long at first, and for twice as long at each further try. Most
  // queues are done within the first tries: a training loop runs some hundred launches ahead.
  uint64_t first_hold_ns = 20'000'000;
  uint64_t longest_hold_ns = 500'000'000;
  // After a hold the gate is open for this many times the length of the hold: the sessions that
  // waited at it keep 4/5 of the time.
  uint64_t open_ratio = 4;
  // So much of the time for which the gate should be open may be owed when the next hold begins: a
  // program that starts makes some hundred short calls at once.
  uint64_t most_owed_ns = 1'000'000'000;
  // A session that has asked for quiescence within this time is owed nothing for the holds of other
  // sessions: programs that start together would wait for the time that each is owed.
  uint64_t asker_ns = 500'000'000;
  // After this time, work that has not ended is taken to outlast every hold, and the gate is not
  // closed for it. A driver whose loading does not wait for that work is called then, and so is
  // any driver for calls other than loading.
  uint64_t total_ns = 5'000'000'000;
  // Work that has outlasted a hold for this long is taken never to end (Patience::kUnlessStuck).
  // The time is long because a session with a limit on SMs does without the limit then.
  uint64_t endless_ns = 30'000'000'000;
  // Calls that come within this time after quiescence was found are made in that moment.
  uint64_t join_ns = 5'000'000;
  // For Patience::kOneHold, a hold that failed is followed by a pause in which the gate stays open:
  // first_hold_ns * open_ratio, twice as long after each further failure, at most this.
  uint64_t longest_pause_ns = 5'000'000'000;
  // The driver's loading of code waits for everything queued and holds up all launches meanwhile
  // (NVIDIA's does, and softgpu's unless it is told otherwise).
  bool loading_waits = true;
};

// The session that a stream belongs to, as shown to other sessions' users. 0: no session.
struct StreamOwner {
  uint32_t session = 0;
  uint32_t stream = 0;  // the session's id of the stream
};

class ContextGate;

// A session as the gate sees it: where the session submits work right now, and what the gate does
// while a call of the session waits.
class GateClient {
 public:
  // Once it is set, waits of the session's calls end. Null: nothing ends them.
  const std::atomic<bool>* stop = nullptr;
  // Where a wait is shown, with the sessions that it is for. Null: nowhere.
  wire::ExecutorState* shown = nullptr;
  // Where waits are counted. Null: nowhere.
  SessionUsage* usage = nullptr;
  // The session's id; 0: the worker itself.
  uint32_t session = 0;
  // What the session does about each millisecond while a call of it waits and the gate is open: the
  // work that the call waits for may itself wait for that. Null: nothing.
  void (*meanwhile)(void* context) noexcept = nullptr;
  void* meanwhile_context = nullptr;

 private:
  friend class ContextGate;
  static constexpr uint32_t kNowhere = ~0u;
  std::atomic<uint32_t> device_{kNowhere};     // to which the session submits
  std::atomic<bool> listed_{false};            // in ContextGate::submitting_
  mutable std::atomic<uint64_t> asked_ns_{0};  // when the session last asked for quiescence
  // Whether the client owes an answer that streams wait for. Guarded by ContextGate::mutex_.
  std::function<bool()> owes_;
};

// How long a call waits for quiescence.
enum class Patience {
  kOneHold,  // one hold of Request::hold_ns at most; 0: only a look, for which the gate stays open
  kLimited,  // GateLimits::total_ns; until the session stops, for loads that wait in the driver
  // Without a limit while what runs may end. Not beside a stream that waits for the client and has
  // outlasted a hold, nor beside any work that has outlasted one for GateLimits::endless_ns.
  kUnlessStuck,
};

// What happens to a call for which no quiescence was found.
enum class Otherwise {
  kSkip,  // the caller does without the call
  // The call is made beside running work. After give_up() only a load that does not wait in the
  // driver is; other calls answer CUDA_ERROR_MPS_SERVER_NOT_READY.
  kCall,
};

// A call that needs quiescence of a device, with what the caller can do without.
struct Request {
  GatedCall call;
  uint32_t device;                     // or ContextGate::kAllDevices
  const GateClient* client = nullptr;  // null: no session's
  Patience patience = Patience::kLimited;
  Otherwise otherwise = Otherwise::kSkip;
  uint64_t hold_ns = 0;  // for Patience::kOneHold
};

class ContextGate {
 public:
  static constexpr uint32_t kAllDevices = ~0u;

  // A stream of the driver's.
  struct Stream {
    Stream(ContextGate& gate, CUstream handle, uint32_t device, const GateClient* client,
           StreamOwner owner)
        : handle(handle), device(device), client(client), owner(owner), gate_(gate) {}

    // The session gives the stream work, between enter() and leave().
    void set_busy() {
      if (busy.load(std::memory_order_relaxed)) return;
      busy.store(true, std::memory_order_seq_cst);
      // Pairs with look(), which unlists a stream before it looks at `busy` for the last time.
      if (!listed_.load(std::memory_order_seq_cst)) gate_.list(*this);
    }

    const CUstream handle;
    const uint32_t device;
    const GateClient* const client;  // the session's
    const StreamOwner owner;
    std::atomic<bool> busy{false};   // may have unfinished work; written by the session alone
    std::atomic<bool> waits{false};  // may wait for a value that the program writes
    // Since when the stream has work that outlasted a hold, in clock time; 0: it has none.
    std::atomic<uint64_t> outlasted_ns{0};
    // When the stream's work is expected to end, in clock time; 0: that is not known.
    std::atomic<uint64_t> ends_ns{0};

   private:
    friend class ContextGate;
    ContextGate& gate_;
    std::atomic<bool> listed_{false};  // in busy_
    std::list<Stream>::iterator self_;
  };

  explicit ContextGate(const DriverTable& driver, GateLimits limits = {},
                       const Clock& clock = monotonic_clock())
      : driver_(driver), limits_(limits), clock_(clock) {
    worker_.stop = &ending_;
  }
  // Deferred calls that have not been made are dropped.
  ~ContextGate() { ending_.store(true, std::memory_order_release); }
  ContextGate(const ContextGate&) = delete;
  ContextGate& operator=(const ContextGate&) = delete;

  // By the clock of all the times that the gate is told, or tells.
  [[nodiscard]] uint64_t now_ns() const { return clock_.now_ns(); }

  // ---- Sessions and their streams ----

  void add(GateClient& client);
  void remove(GateClient& client);
  // Before work is submitted to `device`: waits while the gate is closed there.
  void enter(GateClient& client, uint32_t device);
  // Work that was submitted since enter() shows in the session's streams.
  static void leave(GateClient& client) {
    client.device_.store(GateClient::kNowhere, std::memory_order_release);
  }
  // The stream is listed until remove(), which does not destroy it.
  Stream* add(CUstream handle, uint32_t device, const GateClient* client = nullptr,
              StreamOwner owner = {});
  void remove(Stream* stream);
  // How to learn whether the session's client owes an answer; empty: it never does. Any thread
  // asks, until the next call of set_debt().
  void set_debt(GateClient& client, std::function<bool()> owes);

  // ---- Calls ----

  // Make a call that does not wait for other work. The gate only counts it.
  template <typename F>
  CUresult run_now(GatedCall call, F&& f) {
    count(call);
    return f();
  }
  // Make a call in quiescence of the request's device: `f` makes it and returns the CUresult. The
  // device's context is current, and the session is not between enter() and leave(). Nothing: the
  // call was skipped. CUDA_ERROR_NOT_READY without the call: the session stops; with kOneHold the
  // call counts as skipped then.
  template <typename F>
  std::optional<CUresult> run_quiescent(const Request& request, F&& f) {
    const Visit visited = visit(request);
    if (visited == nullptr && stops(client_of(request)) && request.patience != Patience::kOneHold) {
      return CUDA_ERROR_NOT_READY;
    }
    if (is_complete(visited) || may_call_anyway(request)) {
      count(request.call);
      return f();
    }
    if (request.otherwise == Otherwise::kCall) return CUDA_ERROR_MPS_SERVER_NOT_READY;
    return std::nullopt;
  }
  // Call `attempt(hold_ns)`, which tries to find quiescence with one hold of that length, until it
  // returns true. Between two holds the gate is open for as long as is owed, with attempts
  // whose hold is 0. False: the session stops, the gate has given up, or `end_ns` has come, by the
  // clock.
  template <typename Attempt>
  bool retry(const GateClient& client, Attempt&& attempt, uint64_t end_ns = ~0ull) {
    for (uint64_t hold_ns = limits_.first_hold_ns; clock_.now_ns() < end_ns;
         hold_ns = longer(hold_ns)) {
      if (attempt(hold_ns)) return true;
      const ShownWait shown(client.shown, client.usage, clock_.now_ns(),
                            wire::ExecutorWait::kQuietMoment);
      const uint64_t open_until = clock_.now_ns() + limits_.open_ratio * hold_ns;
      while (clock_.now_ns() < open_until) {
        if (gave_up() || !rest(kRestNs, client)) return false;
        if (attempt(0)) return true;
      }
    }
    return false;
  }
  // How much somebody needs what a deferred call gives back.
  enum class Urgency {
    kNone,  // the call is made when quiescence is found for something else
    kSoon,  // the gate looks for quiescence, and closes as for a call that waits;
            // after GateLimits::total_ns for first_hold_ns at most, every longest_pause_ns
  };
  // Make a call in quiescence of `device`: at once if nothing runs there now, else later. `f` keeps
  // alive what it uses; any thread calls it, with any context current. The caller has a context
  // current. Throws std::bad_alloc before anything has happened; if `f` throws it, `f` is called
  // again later. Deferred calls for one device are made in the order of defer().
  void defer(GatedCall call, uint32_t device, std::function<CUresult()> f,
             Urgency urgency = Urgency::kNone);
  [[nodiscard]] bool has_deferred() {
    const MutexLock lock(quiescence_mutex_);
    return !deferred_.empty();
  }
  // Make the deferred calls of devices on which nothing runs now. The gate stays open.
  void run_deferred();
  // Deferred calls may be under way on the gate's own thread.
  [[nodiscard]] bool is_collecting() const { return collecting_.load(std::memory_order_acquire); }

  // Work that never ends runs: from now on, a call that does not find quiescence within one hold is
  // not made. Request::otherwise says what is answered.
  void give_up() { gave_up_.store(true, std::memory_order_release); }
  [[nodiscard]] bool gave_up() const { return gave_up_.load(std::memory_order_acquire); }

  // ---- Waits ----

  // Wait until `come()`, at most GateLimits::total_ns or until the session stops: the session needs
  // memory that deferred calls give back.
  template <typename Come>
  void wait_until(Come&& come, const GateClient& client) {
    show(client, {});
    const ShownWait shown(client.shown, client.usage, clock_.now_ns(),
                          wire::ExecutorWait::kQuietMoment, wire::HeldFor::kMemory);
    const uint64_t end = clock_.now_ns() + limits_.total_ns;
    while (!come() && clock_.now_ns() < end && rest(kRestNs, client)) {
      look(kAllDevices, client);  // only to show which sessions are waited for
    }
  }
  // Wait until the session's own streams on the device are done, `ns` at most. The gate stays open.
  // Work that the program has just submitted is no reason to load code in the cold context.
  void wait_for_own_work(uint32_t device, const GateClient& client, uint64_t ns);
  // From this time on, of the clock, the work that runs now is so near its end, as far as is known,
  // that closing the gate costs less than to do without the call. 0: the work has ended, or
  // nothing is known of its end.
  [[nodiscard]] uint64_t near_end_ns(uint32_t device);
  [[nodiscard]] uint64_t first_hold_ns() const { return limits_.first_hold_ns; }
  // How long it is, in ns, until the gate may be closed again.
  [[nodiscard]] uint64_t owed(uint32_t device);
  // How many calls of this kind have been made.
  [[nodiscard]] uint64_t calls(GatedCall call) const {
    return calls_[static_cast<size_t>(call)].load(std::memory_order_relaxed);
  }

 private:
  // Between two looks while the gate is open. What is waited for takes longer than that, and a
  // look costs a query per busy stream.
  static constexpr uint64_t kRestNs = 1'000'000;

  // The gate to one device.
  struct Door {
    std::atomic<uint32_t> closed{0};         // by so many calls
    std::atomic<uint32_t> closed_for{0};     // the session of the last one; 0: the worker
    std::atomic<bool> has_delayed{false};    // a session has waited at it since it was closed
    std::atomic<uint64_t> owed_until_ns{0};  // it stays open, for having been closed
    // When Patience::kOneHold may close it again, and the length of the pause until then.
    std::atomic<uint64_t> not_before_ns{0};
    std::atomic<uint64_t> pause_ns{0};
  };
  enum class Found {
    kComplete,       // nothing is unfinished
    kOutlastedOnly,  // only work that has outlasted a hold, which the driver's loading ignores
    kNothing,        // the session stops, or the search was given up
  };
  // A moment of quiescence that several calls can use, or the search for one.
  struct Quiescence {
    uint32_t device;
    uint32_t session;  // that looks for quiescence or has found it; 0: the worker itself
    uint32_t visitors = 0;
    Found found = Found::kNothing;  // until then the first visitor looks for it
    uint64_t closed_ns = 0;
    uint64_t found_ns = 0;
  };

  // A call's use of a moment of quiescence; null: none was found.
  struct EndVisit {
    ContextGate* gate = nullptr;
    void operator()(Quiescence* quiescence) const { gate->end_visit(quiescence); }
  };
  using Visit = std::unique_ptr<Quiescence, EndVisit>;
  // Nothing at all is unfinished.
  static bool is_complete(const Visit& visit) {
    return visit != nullptr && visit->found == Found::kComplete;
  }

  // What is unfinished.
  struct Look {
    bool running = false;    // work that ends if no work is added
    bool stalled = false;    // work that ends only if a client acts
    bool outlasted = false;  // work that did not end within an earlier hold
    bool stuck = false;      // outlasted work that a client must act for, or that may never end
    Hindrances by;
  };
  struct Deferred {
    GatedCall call;
    uint32_t device;
    std::function<CUresult()> f;
    Urgency urgency;
  };

  static bool is_load(GatedCall call) {
    return call == GatedCall::kModuleLoad || call == GatedCall::kFunctionLoad;
  }
  // Calls of no session are the worker's own.
  [[nodiscard]] const GateClient& client_of(const Request& request) const {
    return request.client != nullptr ? *request.client : worker_;
  }
  // The call is waited for until the session stops; else for GateLimits::total_ns.
  [[nodiscard]] bool is_patient(const Request& request) const;
  [[nodiscard]] bool may_call_anyway(const Request& request) const;
  void count(GatedCall call) {
    calls_[static_cast<size_t>(call)].fetch_add(1, std::memory_order_relaxed);
  }
  Visit visit(const Request& request);
  void end_visit(Quiescence* quiescence);
  void end_locked(const Quiescence* quiescence) REQUIRES(quiescence_mutex_);
  void make_deferred(uint32_t device) noexcept;
  // Make the deferred calls if quiescence is found with one hold of that length; 0: if nothing runs
  // now. False: it was not found.
  bool try_deferred(uint32_t device, uint64_t hold_ns) noexcept;
  void start_collector_locked() noexcept REQUIRES(quiescence_mutex_);
  void collect();
  bool next_to_collect(uint32_t* device);
  // With kComplete and kOutlastedOnly the gate is closed, since made.closed_ns.
  Found seek(const Request& request, Quiescence& made);
  // Wait until what runs is known to end soon, at most for the time that a failed hold of `hold_ns`
  // would have to be paid for. True: what runs ends within such a hold, as far as is known.
  bool await_end(uint32_t device, uint64_t hold_ns, const GateClient& client);
  [[nodiscard]] std::span<Door> doors(uint32_t device) {
    return device == kAllDevices ? std::span(doors_) : std::span(&doors_[device], 1);
  }
  // The next hold after one that was too short.
  [[nodiscard]] uint64_t longer(uint64_t hold_ns) const {
    return std::min(2 * hold_ns, limits_.longest_hold_ns);
  }
  bool may_hold(uint32_t device, uint64_t hold_ns);
  // When the work that has been submitted should have ended, as far as sessions know; 0: it has.
  uint64_t ends_ns(uint32_t device);
  // A hold of that length has failed; 0: one has not.
  void set_pause(uint32_t device, uint64_t hold_ns);
  Found seek_briefly(const Request& request, Quiescence& made);
  Found hold(uint64_t hold_ns, const GateClient& client, Quiescence& made);
  // Let `ns` pass with the gate open. False: the session stops.
  bool rest(uint64_t ns, const GateClient& client);
  static bool stops(const GateClient& client) {
    return client.stop != nullptr && client.stop->load(std::memory_order_acquire);
  }
  static bool owes(const GateClient* client) {
    return client != nullptr && client->owes_ && client->owes_();
  }
  static void run_meanwhile(const GateClient& client) {
    if (client.meanwhile != nullptr) client.meanwhile(client.meanwhile_context);
  }
  static void show(const GateClient& client, const Hindrances& by) {
    if (client.shown != nullptr) by.show(*client.shown);
  }
  // Close the gate to a device for a call of that session; 0: of the worker itself.
  void close(uint32_t device, uint32_t session);
  void open(uint32_t device, uint64_t closed_ns);
  void list(Stream& stream);
  void list(GateClient& client);
  void show_at(GateClient& client, uint32_t device) {
    client.device_.store(device, std::memory_order_seq_cst);
    if (!client.listed_.load(std::memory_order_seq_cst)) list(client);
  }
  // The client's session waits for what is seen, and shows that.
  Look look(uint32_t device, const GateClient& client);
  void give_up_on(uint32_t device, bool all);

  const DriverTable& driver_;
  const GateLimits limits_;
  const Clock& clock_;
  std::array<Door, wire::kMaxDevices> doors_;
  std::atomic<bool> gave_up_{false};
  Mutex mutex_{LockRank::kGateClients};
  size_t clients_ GUARDED_BY(mutex_) = 0;
  std::list<Stream> streams_ GUARDED_BY(mutex_);
  // Clients that submit, and streams that may have work. A look drops those that no longer do, so
  // each look visits few. Both vectors have capacity for all.
  std::vector<GateClient*> submitting_ GUARDED_BY(mutex_);
  std::vector<Stream*> busy_ GUARDED_BY(mutex_);
  Mutex quiescence_mutex_{LockRank::kQuiescence};
  CondVar quiescence_changed_;
  // Of devices that do not overlap.
  std::list<Quiescence> quiescences_ GUARDED_BY(quiescence_mutex_);
  std::list<Deferred> deferred_ GUARDED_BY(quiescence_mutex_);
  std::atomic<bool> collecting_{false};  // written under quiescence_mutex_
  std::atomic<bool> ending_{false};
  GateClient worker_;  // submits nothing
  std::array<std::atomic<uint64_t>, static_cast<size_t>(GatedCall::kCount)> calls_{};
  // Joined when the next one starts, or at the end.
  std::jthread collector_thread_ GUARDED_BY(quiescence_mutex_);
};

// Leaves the gate at the end of a block in which work may be submitted.
class SubmitScope {
 public:
  explicit SubmitScope(GateClient& client) : client_(client) {}
  ~SubmitScope() { ContextGate::leave(client_); }
  SubmitScope(const SubmitScope&) = delete;
  SubmitScope& operator=(const SubmitScope&) = delete;

 private:
  GateClient& client_;
};

}  // namespace openmps::worker
