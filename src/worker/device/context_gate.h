// SPDX-License-Identifier: Apache-2.0
// The gate through which every driver call goes that waits for all work queued in a shared context
// (loading and unloading code, unregistering host memory). Inside the driver such a call holds
// locks of the whole process while it waits: a neighbour's launch in that context waits with it,
// and so does the creation of an event on any GPU (both seen on an H200). If the work it waits for
// needs that neighbour to go on - NCCL's kernels on two GPUs - nobody ever does. So the gate first
// waits itself, outside of the driver: it holds back new work on the device, for a bounded time and
// a bounded part of the time, until what is queued has ended, and only then makes the call. Calls
// that wait at the same time share the moment (decision 9).
//
// What nobody waits for (unloading, giving back) is listed and made in a moment that comes anyway,
// or in one that a thread of the gate's own looks for. It is never made beside running work:
// NVIDIA's driver would wait inside.
//
// Thread-safe. Sessions submit between enter() and leave() of their GateClient and list the
// driver's streams that they use.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "api/driver_table.h"
#include "base/clock.h"
#include "cuda/abi.h"
#include "wire/handshake.h"
#include "worker/device/shown.h"

namespace openmps::worker {

enum class GatedCall : uint32_t {
  kModuleLoad = 0,
  kLibraryLoad,   // does not wait (lazy), but belongs to the same moment
  kFunctionLoad,  // the first look at a function loads its code
  kModuleUnload,
  kLibraryUnload,
  kHostUnregister,
  kArrayCreate,   // not measured; taken for what cuMemAlloc is, which does not wait,
  kArrayDestroy,  // and cuMemFree, which does
  kGreenCreate,   // not measured; taken for calls that wait
  kGreenDestroy,
  kGraphExecDestroy,  // waits with conditional nodes, at times with others: decision 13
  kLimit,
  kStreamSlots,  // stream_slots.h
  kCount,
};
const char* name_of(GatedCall call);

// How long the gate tries, and whom it bothers.
struct GateLimits {
  // New work is held back this long at first; each further try doubles it. Most queues are done
  // within the first tries: a training loop runs some hundred launches ahead.
  uint64_t first_hold_ns = 20'000'000;
  uint64_t longest_hold_ns = 500'000'000;
  // It is let through this many times as long as it was held back: neighbours keep 4/5 of the time.
  uint64_t open_share = 4;
  // So much of that may be owed: a program that starts makes some hundred short calls at once.
  uint64_t most_owed_ns = 1'000'000'000;
  // Who has asked for a moment within this time is owed nothing for those of others: programs that
  // start together would wait for each other's rest.
  uint64_t asker_ns = 500'000'000;
  // After that, work that has not ended is no longer held back for (it may never end). A driver
  // whose loading does not wait for it is called then; so is any for calls other than loading.
  uint64_t total_ns = 5'000'000'000;
  // Work that has outlasted a hold for so long is taken not to end by who can do without the call.
  // Long, since a limited session does without its limit then.
  uint64_t endless_ns = 30'000'000'000;
  // Calls that come within this time of the moment's beginning have a part in it.
  uint64_t join_ns = 5'000'000;
  // Who can do without a quiet moment holds work back for one only so often: after a try that
  // failed not for first_hold_ns * open_share, each time twice as long, up to this.
  uint64_t longest_pause_ns = 5'000'000'000;
  // Who waits for either of two lanes looks at both this often: a query per busy stream.
  uint64_t look_again_ns = 1'000'000;
  // Loading code waits in the driver for everything queued, and holds up all launches meanwhile
  // (NVIDIA's, and softgpu's unless it is told otherwise).
  bool loading_waits = true;
};

// Whose a stream is, for others to show: 0 where it is nobody's.
struct StreamOwner {
  uint32_t session = 0;
  uint32_t stream = 0;  // as the session calls it
};

class ContextGate;

// What one session is submitting right now.
class GateClient {
 public:
  // Ends the waits of its session's calls once it is set; null: nothing does.
  const std::atomic<bool>* stop = nullptr;
  // Where the session shows that it waits here, and for whom; null: nowhere.
  wire::ExecutorState* shown = nullptr;
  // Where its waits are counted; null: nowhere.
  SessionUsage* usage = nullptr;
  // The session's id, for others to show; 0: nobody's.
  uint32_t session = 0;
  // What its session does each millisecond or so while a call of it waits here and holds nobody
  // back: what it waits for may wait for that. Null: nothing.
  void (*meanwhile)(void* context) noexcept = nullptr;
  void* meanwhile_context = nullptr;

 private:
  friend class ContextGate;
  static constexpr uint32_t kNowhere = ~0u;
  std::atomic<uint32_t> device_{kNowhere};
  std::atomic<bool> listed_{false};            // in the gate's list of those that submit
  mutable std::atomic<uint64_t> asked_ns_{0};  // when its session last asked for a moment
  // Does the client owe an answer that streams wait for? Guarded by mutex_.
  bool (*owes_)(const void*) = nullptr;
  const void* owes_context_ = nullptr;
};

class ContextGate {
 public:
  static constexpr uint32_t kAllDevices = ~0u;

  // A stream of the driver's.
  struct Stream {
    Stream(ContextGate& gate, CUstream handle, uint32_t device, const GateClient* client,
           StreamOwner owner)
        : handle(handle), device(device), client(client), owner(owner), gate_(gate) {}

    // Its session gives it work, in the gate.
    void set_busy() {
      if (busy.load(std::memory_order_relaxed)) return;
      busy.store(true, std::memory_order_seq_cst);
      // Pairs with look(), which takes it off the list before it looks for the last time.
      if (!listed_.load(std::memory_order_seq_cst)) gate_.list(*this);
    }

    const CUstream handle;
    const uint32_t device;
    const GateClient* const client;  // its session's
    const StreamOwner owner;
    std::atomic<bool> busy{false};   // may have unfinished work; written by its session alone
    std::atomic<bool> waits{false};  // may wait for a value that its program writes
    // Since when work of it has not ended that was held back for, by now_ns(); 0: there is none.
    std::atomic<uint64_t> outlasted_ns{0};
    // When its work is expected to end, by now_ns(); 0: that is not known.
    std::atomic<uint64_t> ends_ns{0};

   private:
    friend class ContextGate;
    ContextGate& gate_;
    std::atomic<bool> listed_{false};  // in busy_
    std::list<Stream>::iterator self_;
  };

  struct Cost {
    uint64_t calls = 0;
    uint64_t total_ns = 0;
    uint64_t longest_ns = 0;
  };

  explicit ContextGate(const DriverTable& driver, GateLimits limits = {})
      : driver_(driver), limits_(limits) {
    collector_.stop = &ending_;
  }
  // Calls that still wait are not made.
  ~ContextGate();
  ContextGate(const ContextGate&) = delete;
  ContextGate& operator=(const ContextGate&) = delete;

  void add(GateClient& client);
  void remove(GateClient& client);
  // Before work is submitted to `device`: waits while the gate holds new work back there.
  void enter(GateClient& client, uint32_t device);
  // What was submitted since enter() shows in its streams.
  static void leave(GateClient& client) {
    client.device_.store(GateClient::kNowhere, std::memory_order_release);
  }

  // The stream stays listed until remove(), which does not destroy it.
  Stream* add(CUstream handle, uint32_t device, const GateClient* client = nullptr,
              StreamOwner owner = {});
  void remove(Stream* stream);
  // How to learn whether the client's client owes an answer; null: it never does. Asked by any
  // thread, not after the next call of this.
  void set_debt(GateClient& client, bool (*owes)(const void*), const void* context);

  // `f` makes the driver call, which waits for the work of `device` (or kAllDevices), and returns
  // its CUresult. That device's context is current; the calling session, whose client it is, is not
  // between enter() and leave(). CUDA_ERROR_NOT_READY: its `stop` was set first.
  template <typename F>
  CUresult run(GatedCall call, uint32_t device, const GateClient* client, F&& f) {
    const uint64_t start = now_ns();
    const Quiet quiet(*this, device, search_for(call, client), client);
    const bool may = quiet.complete() || !gave_up() || (is_load(call) && !limits_.loading_waits);
    const CUresult result = quiet.stopped() ? CUDA_ERROR_NOT_READY
                            : may           ? f()
                                            : CUDA_ERROR_MPS_SERVER_NOT_READY;
    count(call, now_ns() - start);
    return result;
  }
  template <typename F>
  CUresult run(GatedCall call, uint32_t device, F&& f) {
    return run(call, device, nullptr, std::forward<F>(f));
  }
  // Work that never ends runs: from now on what does not find its quiet moment within one hold is
  // not called, and says CUDA_ERROR_MPS_SERVER_NOT_READY.
  void give_up() { gave_up_.store(true, std::memory_order_release); }
  [[nodiscard]] bool gave_up() const { return gave_up_.load(std::memory_order_acquire); }
  // The same in a quiet moment only: `otherwise`, without the call, if none comes within the limit.
  template <typename F>
  CUresult run_if_quiet(GatedCall call, uint32_t device, CUresult otherwise, F&& f) {
    const uint64_t start = now_ns();
    const Quiet quiet(*this, device, {.hold_ns = limits_.first_hold_ns}, nullptr);
    const CUresult result = quiet.complete() ? f() : otherwise;
    count(call, now_ns() - start);
    return result;
  }
  // The same if the device is quiet now or becomes so within one hold of this length. False: `f`
  // has not been called, and the caller does without. First holds are not tried again for a while
  // after one that failed; in between this only looks, as with a `hold_ns` of 0.
  template <typename F>
  bool run_soon(GatedCall call, uint32_t device, const GateClient* client, uint64_t hold_ns,
                CUresult* result, F&& f) {
    const uint64_t start = now_ns();
    const Quiet quiet(*this, device, {.hold_ns = hold_ns, .brief = true}, client);
    if (!quiet.complete()) return false;
    *result = f();
    count(call, now_ns() - start);
    return true;
  }
  // The same in a quiet moment only, however long there is none, but not beside what may never end:
  // false, without the call, once a stream that waits for its client has outlasted a hold, or any
  // has for endless_ns; unless the driver does not wait. `*result` as run() returns it.
  template <typename F>
  bool run_unless_stuck(GatedCall call, uint32_t device, const GateClient* client, CUresult* result,
                        F&& f) {
    const uint64_t start = now_ns();
    Search search = search_for(call, client);
    search.yields = true;
    search.patient = search.patient || !is_load(call);
    const Quiet quiet(*this, device, search, client);
    const bool may = quiet.complete() || !limits_.loading_waits;
    if (!may && !quiet.stopped()) return false;
    *result = quiet.stopped() ? CUDA_ERROR_NOT_READY : f();
    count(call, now_ns() - start);
    return true;
  }
  [[nodiscard]] uint64_t first_hold_ns() const { return limits_.first_hold_ns; }
  // From when on, by now_ns(), what runs now is so near its end, as far as is known, that it costs
  // more to do without the call than to hold work back. 0: it has ended, or nobody knows.
  [[nodiscard]] uint64_t near_end_ns(uint32_t device);
  // Until the session's own streams on the device are done, `ns` at most: what a program has just
  // been given to do is no reason to look elsewhere. Holds nobody back.
  void wait_for_own(uint32_t device, const GateClient* client, uint64_t ns);
  // After a hold that failed: let everybody go on for as long as they are owed, calling `look()`,
  // which is true if it has found another way, and say how long the next hold may be; 0: found,
  // the session stops, or work that does not end is not waited for.
  template <typename Look>
  uint64_t rest_after(uint64_t hold_ns, const GateClient* client, Look&& look) {
    const ShownWait shown(shown_of(client), usage_of(client), wire::ExecutorWait::kQuietMoment);
    const uint64_t end = now_ns() + limits_.open_share * hold_ns;
    while (now_ns() < end) {
      if (gave_up() || !rest(limits_.look_again_ns, client) || look()) return 0;
    }
    return std::min(2 * hold_ns, limits_.longest_hold_ns);
  }
  // How much somebody needs what a call gives back.
  enum class Haste {
    kNone,  // made in a moment that others find
    kSoon,  // looked for: new work is held back for it as for a call that waits, but after total_ns
            // for first_hold_ns at most every longest_pause_ns
  };
  // The same in some later quiet moment, if there is none right now. `f` keeps what it needs alive;
  // any thread calls it, with any context current; of the caller one is. Throws std::bad_alloc
  // before anything has happened; if `f` does, it is called again later.
  void run_later(GatedCall call, uint32_t device, std::function<CUresult()> f,
                 Haste haste = Haste::kNone);
  // Calls wait for a later moment.
  [[nodiscard]] bool has_later() const { return later_count_.load(std::memory_order_relaxed) != 0; }
  // Make those whose moment this is. Holds nobody back.
  void tend();
  // Some may be under way on the gate's own thread.
  [[nodiscard]] bool collects() const { return collecting_.load(std::memory_order_acquire); }
  // Until `come()`, for as long as a quiet moment is looked for at most, or the session stops: it
  // waits for memory.
  template <typename Come>
  void wait_until(Come&& come, const GateClient* client) {
    show(client, {});
    const ShownWait shown(shown_of(client), usage_of(client), wire::ExecutorWait::kQuietMoment,
                          wire::HeldFor::kMemory);
    const uint64_t end = now_ns() + limits_.total_ns;
    while (!come() && now_ns() < end && rest(limits_.look_again_ns, client)) {
      look(kAllDevices, client);  // only to show who is in the way
    }
  }
  // The same for a call that does not wait.
  template <typename F>
  CUresult run_at_once(GatedCall call, F&& f) {
    const uint64_t start = now_ns();
    const CUresult result = f();
    count(call, now_ns() - start);
    return result;
  }
  [[nodiscard]] Cost cost(GatedCall call) const;
  // How long it is, in ns, until new work may be held back again.
  [[nodiscard]] uint64_t owed(uint32_t device) const;

 private:
  struct Counter {
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> total_ns{0};
    std::atomic<uint64_t> longest_ns{0};
  };

  // Several calls' quiet moment.
  struct Moment {
    uint32_t device;
    uint32_t session;  // that has found it, or looks for it; 0: the worker itself
    uint32_t visitors = 0;
    bool quiet = false;     // found; until then its first visitor looks for it
    bool complete = false;  // nothing at all is unfinished
    uint64_t closed_ns = 0;
    uint64_t quiet_ns = 0;
  };

  // How a quiet moment is looked for.
  struct Search {
    uint64_t hold_ns = 0;
    bool brief = false;    // one hold of that length at most
    bool patient = false;  // until the session stops; or total_ns
    bool yields = false;   // not beside what is stuck
  };
  // A visit to a quiet moment; or the limit is past, or the session stops.
  class Quiet {
   public:
    Quiet(ContextGate& gate, uint32_t device, const Search& search, const GateClient* client)
        : gate_(gate), moment_(gate.visit(device, search, client, &stopped_)) {}
    ~Quiet() {
      if (moment_ != nullptr) gate_.end_visit(moment_);
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    [[nodiscard]] bool stopped() const { return stopped_; }
    // Nothing at all is unfinished.
    [[nodiscard]] bool complete() const { return moment_ != nullptr && moment_->complete; }

   private:
    ContextGate& gate_;
    bool stopped_ = false;
    Moment* moment_;
  };

  // What is unfinished.
  struct Look {
    bool running = false;    // work that will end if nothing is added
    bool stalled = false;    // what the client must act for
    bool outlasted = false;  // what did not end in time before
    bool stuck = false;      // and of it, what the client must act for, or may never end
    Hindrances by;
  };
  enum class Found { kQuiet, kComplete, kGaveUp, kStopped };
  struct Later {
    GatedCall call;
    uint32_t device;
    std::function<CUresult()> f;
    Haste haste;
  };

  static bool is_load(GatedCall call) {
    return call == GatedCall::kModuleLoad || call == GatedCall::kFunctionLoad;
  }
  [[nodiscard]] Search search_for(GatedCall call, const GateClient* client) const {
    const bool patient = is_load(call) && limits_.loading_waits && client != nullptr;
    return {.hold_ns = limits_.first_hold_ns, .patient = patient};
  }
  void count(GatedCall call, uint64_t ns);
  Moment* visit(uint32_t device, const Search& search, const GateClient* client, bool* stopped);
  void end_visit(Moment* moment);
  void run_deferred(uint32_t device) noexcept;
  void try_deferred(uint32_t device);
  void start_collector_locked() noexcept;
  void collect();
  bool next_to_collect(uint32_t* device);
  Moment* overlapping_locked(uint32_t device);
  Found seek(uint32_t device, const Search& search, const GateClient* client, uint64_t* closed_ns);
  // Until what runs is known to end soon, or for as long as a hold of `hold_ns` that fails would
  // have been paid for. `*ends`: within that it does, as far as is known. False: the session stops.
  bool await_end(uint32_t device, uint64_t hold_ns, const GateClient* client, bool* ends);
  bool may_hold(uint32_t device, uint64_t hold_ns);
  // By when what has been submitted should have ended, as far as its sessions know; 0: has.
  uint64_t ends_ns(uint32_t device);
  void note_failed_hold(uint32_t device, uint64_t hold_ns);
  Found seek_briefly(uint32_t device, uint64_t hold_ns, const GateClient* client,
                     uint64_t* closed_ns);
  Found hold(uint32_t device, uint64_t hold_ns, const GateClient* client, uint64_t* closed_ns);
  bool rest(uint64_t ns, const GateClient* client);
  static void go_on(const GateClient* client) {
    if (client != nullptr && client->meanwhile != nullptr) {
      client->meanwhile(client->meanwhile_context);
    }
  }
  static wire::ExecutorState* shown_of(const GateClient* client) {
    return client == nullptr ? nullptr : client->shown;
  }
  static SessionUsage* usage_of(const GateClient* client) {
    return client == nullptr ? nullptr : client->usage;
  }
  static void show(const GateClient* client, const Hindrances& by);
  // For that session, 0: for the worker.
  void close(uint32_t device, uint32_t session);
  void open(uint32_t device, uint64_t closed_ns);
  void list(Stream& stream);
  void list(GateClient& client);
  void show_at(GateClient& client, uint32_t device) {
    client.device_.store(device, std::memory_order_seq_cst);
    if (!client.listed_.load(std::memory_order_seq_cst)) list(client);
  }
  // The session of the client waits for what is seen, and shows it.
  Look look(uint32_t device, const GateClient* client);
  void give_up_on(uint32_t device, bool all);

  const DriverTable& driver_;
  const GateLimits limits_;
  std::array<std::atomic<uint32_t>, wire::kMaxDevices> closed_{};      // by how many
  std::array<std::atomic<uint32_t>, wire::kMaxDevices> closed_for_{};  // which session, the last
  std::array<std::atomic<bool>, wire::kMaxDevices> held_back_{};  // somebody, since it was closed
  // Until when work is let through for having been held back.
  std::array<std::atomic<uint64_t>, wire::kMaxDevices> owed_until_ns_{};
  // When run_soon() may hold work back again, and how long it last refrained from it.
  std::array<std::atomic<uint64_t>, wire::kMaxDevices> not_before_ns_{};
  std::array<std::atomic<uint64_t>, wire::kMaxDevices> pause_ns_{};
  std::atomic<bool> gave_up_{false};
  std::mutex mutex_;  // guards the lists
  size_t clients_ = 0;
  std::list<Stream> streams_;
  // Those that submit, and those that may have work, with such as no longer do: whoever looks for
  // them looks at few. Both have room for all.
  std::vector<GateClient*> submitting_;
  std::vector<Stream*> busy_;
  std::mutex moments_mutex_;
  std::condition_variable moments_changed_;
  std::list<Moment> moments_;  // of devices that do not overlap; guarded by moments_mutex_
  std::list<Later> later_;     // guarded by moments_mutex_
  std::atomic<size_t> later_count_{0};
  std::thread collector_thread_;  // guarded by moments_mutex_; joined by the next, or the end
  std::atomic<bool> collecting_{false};  // written under moments_mutex_
  std::atomic<bool> ending_{false};
  GateClient collector_;  // submits nothing
  std::array<Counter, static_cast<size_t>(GatedCall::kCount)> counters_;
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
