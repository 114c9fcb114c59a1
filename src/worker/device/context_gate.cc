// SPDX-License-Identifier: Apache-2.0
// Waiting for a quiet moment, and counting what the gated calls cost. See context_gate.h.
#include "worker/device/context_gate.h"

#include <pthread.h>

#include <algorithm>
#include <bitset>
#include <chrono>
#include <ctime>
#include <exception>
#include <new>

namespace openmps::worker {
namespace {

// Between two looks: about a small kernel's length. The calls themselves take 100 us and more.
constexpr long kLookNs = 10'000;
// While nobody is held back: what is waited for takes longer anyway.
constexpr uint64_t kRestNs = 1'000'000;
// What is known to end within this time is waited for by holding new work back: that of a stream is
// given the next by then (half a window before, submit_window.h), and others hardly mind. A load in
// the cold lane, and the program's way there and back, take as long (decision 16).
constexpr uint64_t kNearNs = 5'000'000;
// While nobody waits for what is given back.
constexpr uint64_t kCollectNs = 10'000'000;

void pause(long ns) {
  const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&time, nullptr);
}

bool meets(uint32_t wanted, uint32_t device) {
  return wanted == ContextGate::kAllDevices || wanted == device;
}

}  // namespace

const char* name_of(GatedCall call) {
  switch (call) {
    case GatedCall::kModuleLoad: return "module load";
    case GatedCall::kLibraryLoad: return "library load";
    case GatedCall::kFunctionLoad: return "function load";
    case GatedCall::kModuleUnload: return "module unload";
    case GatedCall::kLibraryUnload: return "library unload";
    case GatedCall::kHostUnregister: return "host unregister";
    case GatedCall::kArrayCreate: return "array creation";
    case GatedCall::kArrayDestroy: return "array destruction";
    case GatedCall::kGreenCreate: return "green context creation";
    case GatedCall::kGreenDestroy: return "green context destruction";
    case GatedCall::kGraphExecDestroy: return "destruction of an executable graph";
    case GatedCall::kLimit: return "limit";
    case GatedCall::kStreamSlots: return "room for streams";
    case GatedCall::kCount: break;
  }
  return "";
}

ContextGate::~ContextGate() {
  ending_.store(true, std::memory_order_release);
  if (collector_thread_.joinable()) collector_thread_.join();
}

// ---- Who submits, and where ---------------------------------------------------------------------

void ContextGate::add(GateClient&) {
  const std::lock_guard lock(mutex_);
  submitting_.reserve(++clients_);
}

void ContextGate::remove(GateClient& client) {
  const std::lock_guard lock(mutex_);
  --clients_;
  std::erase(submitting_, &client);
}

ContextGate::Stream* ContextGate::add(CUstream handle, uint32_t device, const GateClient* client,
                                      StreamOwner owner) {
  const std::lock_guard lock(mutex_);
  busy_.reserve(streams_.size() + 1);
  Stream& added = streams_.emplace_back(*this, handle, device, client, owner);
  added.self_ = std::prev(streams_.end());
  return &added;
}

void ContextGate::remove(Stream* stream) {
  const std::lock_guard lock(mutex_);
  if (stream->listed_.load(std::memory_order_relaxed)) std::erase(busy_, stream);
  streams_.erase(stream->self_);
}

void ContextGate::list(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (!stream.listed_.exchange(true, std::memory_order_seq_cst)) busy_.push_back(&stream);
}

void ContextGate::list(GateClient& client) {
  const std::lock_guard lock(mutex_);
  if (!client.listed_.exchange(true, std::memory_order_seq_cst)) submitting_.push_back(&client);
}

void ContextGate::set_debt(GateClient& client, bool (*owes)(const void*), const void* context) {
  const std::lock_guard lock(mutex_);
  client.owes_ = owes;
  client.owes_context_ = context;
}

// The client shows itself before it looks whether the gate is closed, and the gate closes before it
// looks for clients: one of them sees the other.
void ContextGate::enter(GateClient& client, uint32_t device) {
  show_at(client, device);
  if (closed_[device].load(std::memory_order_seq_cst) == 0) return;
  const uint64_t now = now_ns();
  if (now - client.asked_ns_.load(std::memory_order_relaxed) > limits_.asker_ns) {
    held_back_[device].store(true, std::memory_order_relaxed);
  }
  Hindrances by;
  by.add(closed_for_[device].load(std::memory_order_relaxed), 0, wire::Hindrance::kQuietMoment);
  show(&client, by);
  const ShownWait shown(client.shown, client.usage, wire::ExecutorWait::kHeldBack);
  // Never longer than one hold, whatever the call inside does.
  const uint64_t until = now + limits_.longest_hold_ns;
  while (closed_[device].load(std::memory_order_relaxed) != 0 && now_ns() < until) {
    client.device_.store(GateClient::kNowhere, std::memory_order_release);
    pause(kLookNs);
    show_at(client, device);
  }
}

// ---- Quiet --------------------------------------------------------------------------------------

void ContextGate::show(const GateClient* client, const Hindrances& by) {
  if (wire::ExecutorState* state = shown_of(client)) by.show(*state);
}

void ContextGate::close(uint32_t device, uint32_t session) {
  for (uint32_t i = 0; i < closed_.size(); ++i) {
    if (!meets(device, i)) continue;
    closed_for_[i].store(session, std::memory_order_relaxed);
    held_back_[i].store(false, std::memory_order_relaxed);
    closed_[i].fetch_add(1, std::memory_order_seq_cst);
  }
}

void ContextGate::open(uint32_t device, uint64_t closed_ns) {
  const uint64_t now = now_ns();
  for (uint32_t i = 0; i < closed_.size(); ++i) {
    if (!meets(device, i)) continue;
    closed_[i].fetch_sub(1, std::memory_order_release);
    if (!held_back_[i].load(std::memory_order_relaxed)) continue;
    const uint64_t until = std::max(owed_until_ns_[i].load(std::memory_order_relaxed), now);
    owed_until_ns_[i].store(until + limits_.open_share * (now - closed_ns),
                            std::memory_order_relaxed);
  }
}

uint64_t ContextGate::owed(uint32_t device) const {
  const uint64_t now = now_ns();
  uint64_t longest = 0;
  for (uint32_t i = 0; i < owed_until_ns_.size(); ++i) {
    const uint64_t until = owed_until_ns_[i].load(std::memory_order_relaxed);
    if (meets(device, i) && until > now + limits_.most_owed_ns) {
      longest = std::max(longest, until - now - limits_.most_owed_ns);
    }
  }
  return longest;
}

ContextGate::Look ContextGate::look(uint32_t device, const GateClient* asking) {
  Look seen;
  const std::lock_guard lock(mutex_);
  // Taken off its list before the last look: who comes back meanwhile is seen, or lists itself.
  std::erase_if(submitting_, [](GateClient* client) {
    if (client->device_.load(std::memory_order_seq_cst) != GateClient::kNowhere) return false;
    client->listed_.store(false, std::memory_order_seq_cst);
    if (client->device_.load(std::memory_order_seq_cst) == GateClient::kNowhere) return true;
    client->listed_.store(true, std::memory_order_seq_cst);
    return false;
  });
  std::erase_if(busy_, [](Stream* stream) {
    if (stream->busy.load(std::memory_order_seq_cst)) return false;
    stream->listed_.store(false, std::memory_order_seq_cst);
    if (!stream->busy.load(std::memory_order_seq_cst)) return true;
    stream->listed_.store(true, std::memory_order_seq_cst);
    return false;
  });
  for (const GateClient* client : submitting_) {
    const uint32_t where = client->device_.load(std::memory_order_seq_cst);
    if (where == GateClient::kNowhere || !meets(device, where)) continue;
    seen.running = true;
    seen.by.add(client->session, 0, wire::Hindrance::kSubmits);
  }
  for (Stream* const listed : busy_) {
    Stream& stream = *listed;
    if (!meets(device, stream.device) || !stream.busy.load(std::memory_order_relaxed)) continue;
    // A lost context has nothing that runs. Without a current one nothing is known.
    const CUresult state = driver_.cuStreamQuery(stream.handle);
    if (state != CUDA_ERROR_NOT_READY && state != CUDA_ERROR_INVALID_CONTEXT) {
      stream.waits.store(false, std::memory_order_relaxed);
      stream.outlasted_ns.store(0, std::memory_order_relaxed);
      continue;
    }
    const GateClient* client = stream.client;
    const uint64_t outlasted_ns = stream.outlasted_ns.load(std::memory_order_relaxed);
    const bool outlasted = outlasted_ns != 0;
    wire::Hindrance why = outlasted ? wire::Hindrance::kOutlasts : wire::Hindrance::kRuns;
    if (stream.waits.load(std::memory_order_relaxed)) {
      why = wire::Hindrance::kAwaitsValue;
    } else if (client != nullptr && client->owes_ != nullptr &&
               client->owes_(client->owes_context_)) {
      why = wire::Hindrance::kHostFunction;
    }
    if (outlasted) {
      seen.outlasted = true;
      seen.stuck |=
          why != wire::Hindrance::kOutlasts || now_ns() - outlasted_ns >= limits_.endless_ns;
    } else if (why != wire::Hindrance::kRuns) {
      seen.stalled = true;
    } else {
      seen.running = true;
    }
    seen.by.add(stream.owner.session, stream.owner.stream, why);
  }
  show(asking, seen.by);
  return seen;
}

// What is unfinished now is not held back for any more, until it has ended: all of it, or what
// waits for its client.
void ContextGate::give_up_on(uint32_t device, bool all) {
  const std::lock_guard lock(mutex_);
  for (Stream* const listed : busy_) {
    Stream& stream = *listed;
    if (!meets(device, stream.device) || !stream.busy.load(std::memory_order_relaxed)) continue;
    const GateClient* client = stream.client;
    const bool stalled =
        stream.waits.load(std::memory_order_relaxed) ||
        (client != nullptr && client->owes_ != nullptr && client->owes_(client->owes_context_));
    const bool known = stream.outlasted_ns.load(std::memory_order_relaxed) != 0;
    if (!known && (all || stalled) &&
        driver_.cuStreamQuery(stream.handle) == CUDA_ERROR_NOT_READY) {
      stream.outlasted_ns.store(now_ns(), std::memory_order_relaxed);
    }
  }
}

// Hold new work back, this long at most. Quiet: it still is.
ContextGate::Found ContextGate::hold(uint32_t device, uint64_t hold_ns, const GateClient* client,
                                     uint64_t* closed_ns) {
  const uint64_t start = *closed_ns = now_ns();
  close(device, client == nullptr ? 0 : client->session);
  for (;;) {
    const Look seen = look(device, client);
    const bool blocked = seen.outlasted && limits_.loading_waits;
    if (!seen.running && !seen.stalled && !blocked) {
      return seen.outlasted ? Found::kQuiet : Found::kComplete;
    }
    const uint64_t held = now_ns() - start;
    if (seen.stalled && held >= limits_.first_hold_ns) {
      give_up_on(device, false);
      if (!seen.running && !limits_.loading_waits) continue;
    }
    if (blocked || held >= hold_ns) break;
    pause(kLookNs);
  }
  open(device, start);
  return Found::kGaveUp;
}

// False: the session stops.
bool ContextGate::rest(uint64_t ns, const GateClient* client) {
  const uint64_t end = now_ns() + ns;
  for (;;) {
    if (client != nullptr && client->stop != nullptr &&
        client->stop->load(std::memory_order_acquire)) {
      return false;
    }
    go_on(client);
    const uint64_t now = now_ns();
    if (now >= end) return true;
    pause(static_cast<long>(std::min(end - now, kRestNs)));
  }
}

ContextGate::Found ContextGate::seek(uint32_t device, const Search& search,
                                     const GateClient* client, uint64_t* closed_ns) {
  if (search.brief) return seek_briefly(device, search.hold_ns, client, closed_ns);
  const uint64_t end = now_ns() + limits_.total_ns;
  for (uint64_t ns = search.hold_ns;; ns = std::min(2 * ns, limits_.longest_hold_ns)) {
    if (!rest(owed(device), client)) return Found::kStopped;
    // Nobody is held back for what may never end.
    for (;;) {
      const Look seen = look(device, client);
      if (search.yields && seen.stuck) return Found::kGaveUp;
      const bool rests = limits_.loading_waits && seen.outlasted && !gave_up() &&
                         (search.patient || now_ns() < end);
      if (!rests) break;
      if (!rest(kRestNs, client)) return Found::kStopped;
    }
    bool ends = false;
    if (!await_end(device, ns, client, &ends)) return Found::kStopped;
    if (ends) {
      const Found found = hold(device, ns, client, closed_ns);
      if (found != Found::kGaveUp) return found;
    }
    if (gave_up()) return Found::kGaveUp;
    if (now_ns() >= end) {
      give_up_on(device, true);
      if (!search.patient) return Found::kGaveUp;
    }
    // What the queued work waits for may be held back right now: let it through.
    if (ends && !rest(limits_.open_share * ns, client)) return Found::kStopped;
  }
}

bool ContextGate::await_end(uint32_t device, uint64_t hold_ns, const GateClient* client,
                            bool* ends) {
  const uint64_t until = now_ns() + limits_.open_share * hold_ns;
  const uint64_t near_ns = std::min(hold_ns, kNearNs);
  while (ends_ns(device) > now_ns() + near_ns) {
    if (!rest(std::min(kRestNs, near_ns), client)) return false;
    if (now_ns() >= until) break;
  }
  *ends = ends_ns(device) <= now_ns() + hold_ns;
  return true;
}

bool ContextGate::may_hold(uint32_t device, uint64_t hold_ns) {
  if (hold_ns == 0) return false;
  if (hold_ns > limits_.first_hold_ns) return true;
  const uint64_t now = now_ns();
  for (uint32_t i = 0; i < not_before_ns_.size(); ++i) {
    const bool due = now >= not_before_ns_[i].load(std::memory_order_relaxed);
    if (meets(device, i) && !due) return false;
  }
  return owed(device) == 0 && ends_ns(device) <= now + hold_ns;
}

uint64_t ContextGate::ends_ns(uint32_t device) {
  const std::lock_guard lock(mutex_);
  uint64_t latest = 0;
  for (const Stream* stream : busy_) {
    if (!meets(device, stream->device) || !stream->busy.load(std::memory_order_relaxed)) continue;
    latest = std::max(latest, stream->ends_ns.load(std::memory_order_relaxed));
  }
  return latest;
}

// What is late is taken to be twice as late at last, as in submit_window.cc: beside work in the
// cold lane kernels take longer than they are known to. The latest counts: others may have ended,
// and their sessions not have looked.
uint64_t ContextGate::near_end_ns(uint32_t device) {
  const uint64_t now = now_ns();
  const uint64_t known = ends_ns(device);
  const uint64_t ends = known != 0 && known < now ? now + (now - known) : known;
  return ends > kNearNs ? ends - kNearNs : 0;
}

void ContextGate::note_failed_hold(uint32_t device, uint64_t hold_ns) {
  const uint64_t now = now_ns();
  for (uint32_t i = 0; i < pause_ns_.size(); ++i) {
    if (!meets(device, i)) continue;
    const uint64_t last = pause_ns_[i].load(std::memory_order_relaxed);
    const uint64_t next =
        std::min(std::max(2 * last, limits_.open_share * hold_ns), limits_.longest_pause_ns);
    pause_ns_[i].store(next, std::memory_order_relaxed);
    not_before_ns_[i].store(now + next, std::memory_order_relaxed);
  }
}

// Looking costs nobody anything, so it is always done.
ContextGate::Found ContextGate::seek_briefly(uint32_t device, uint64_t hold_ns,
                                             const GateClient* client, uint64_t* closed_ns) {
  const bool holds = may_hold(device, hold_ns);
  const Found found = hold(device, holds ? hold_ns : 0, client, closed_ns);
  if (found != Found::kGaveUp) {
    for (uint32_t i = 0; i < pause_ns_.size(); ++i) {
      if (!meets(device, i)) continue;
      pause_ns_[i].store(0, std::memory_order_relaxed);
      not_before_ns_[i].store(0, std::memory_order_relaxed);
    }
  } else if (holds) {
    note_failed_hold(device, hold_ns);
  }
  return found;
}

void ContextGate::wait_for_own(uint32_t device, const GateClient* client, uint64_t ns) {
  const uint64_t end = now_ns() + ns;
  const auto unfinished = [&] {
    const std::lock_guard lock(mutex_);
    return std::any_of(busy_.begin(), busy_.end(), [&](const Stream* stream) {
      return stream->client == client && meets(device, stream->device) &&
             stream->busy.load(std::memory_order_relaxed) &&
             driver_.cuStreamQuery(stream->handle) == CUDA_ERROR_NOT_READY;
    });
  };
  while (unfinished() && now_ns() < end) pause(kLookNs);
}

// ---- Moments that calls share -------------------------------------------------------------------

ContextGate::Moment* ContextGate::overlapping_locked(uint32_t device) {
  for (Moment& moment : moments_) {
    if (meets(device, moment.device) || meets(moment.device, device)) return &moment;
  }
  return nullptr;
}

ContextGate::Moment* ContextGate::visit(uint32_t device, const Search& search,
                                        const GateClient* client, bool* stopped) {
  show(client, {});
  const ShownWait shown(shown_of(client), usage_of(client), wire::ExecutorWait::kQuietMoment);
  // Somebody else's search takes as long as it takes.
  const bool waits = search.brief && may_hold(device, search.hold_ns);
  if (client != nullptr && (waits || !search.brief)) {
    client->asked_ns_.store(now_ns(), std::memory_order_relaxed);
  }
  const uint64_t limit = search.brief ? (waits ? search.hold_ns : 0) : limits_.total_ns;
  const uint64_t end = search.patient ? ~0ull : now_ns() + limit;
  std::unique_lock lock(moments_mutex_);
  for (;;) {
    Moment* moment = overlapping_locked(device);
    if (moment == nullptr) break;
    if (moment->quiet && meets(moment->device, device) &&
        now_ns() - moment->quiet_ns < limits_.join_ns) {
      ++moment->visitors;
      return moment;
    }
    if (client != nullptr && client->stop != nullptr && client->stop->load()) {
      *stopped = true;
      return nullptr;
    }
    if (now_ns() >= end) {
      if (waits) note_failed_hold(device, search.hold_ns);
      return nullptr;
    }
    Hindrances by;
    by.add(moment->session, 0, wire::Hindrance::kQuietMoment);
    show(client, by);
    moments_changed_.wait_for(lock, std::chrono::nanoseconds(kRestNs));
    lock.unlock();
    go_on(client);
    if (search.yields && look(device, client).stuck) return nullptr;
    lock.lock();
  }
  Moment& made = moments_.emplace_back(Moment{device, client == nullptr ? 0 : client->session});
  lock.unlock();
  uint64_t closed_ns = 0;
  const Found found = seek(device, search, client, &closed_ns);
  lock.lock();
  moments_changed_.notify_all();
  if (found == Found::kQuiet || found == Found::kComplete) {
    made.quiet = true;
    made.complete = found == Found::kComplete;
    made.closed_ns = closed_ns;
    made.quiet_ns = now_ns();
    made.visitors = 1;
    return &made;
  }
  *stopped = found == Found::kStopped;
  moments_.remove_if([&made](const Moment& moment) { return &moment == &made; });
  return nullptr;
}

void ContextGate::end_visit(Moment* moment) {
  std::unique_lock lock(moments_mutex_);
  if (--moment->visitors != 0) return;
  moment->quiet = false;  // nobody joins any more
  const Moment ended = *moment;
  lock.unlock();
  if (ended.complete) run_deferred(ended.device);
  open(ended.device, ended.closed_ns);
  lock.lock();
  moments_.remove_if([moment](const Moment& other) { return &other == moment; });
  moments_changed_.notify_all();
}

// Nothing is unfinished on the device. A call that finds no memory is made in a later moment.
void ContextGate::run_deferred(uint32_t device) noexcept {
  std::list<Later> ready;  // moved without a request for memory
  {
    const std::lock_guard lock(moments_mutex_);
    for (auto it = later_.begin(); it != later_.end();) {
      const auto later = it++;
      if (meets(device, later->device)) ready.splice(ready.end(), later_, later);
    }
    later_count_.store(later_.size(), std::memory_order_relaxed);
  }
  for (auto it = ready.begin(); it != ready.end();) {
    const uint64_t start = now_ns();
    try {
      it->f();
    } catch (const std::bad_alloc&) {
      ++it;
      continue;
    }
    count(it->call, now_ns() - start);
    it = ready.erase(it);
  }
  if (ready.empty()) return;
  const std::lock_guard lock(moments_mutex_);
  later_.splice(later_.end(), ready);
  later_count_.store(later_.size(), std::memory_order_relaxed);
}

void ContextGate::run_later(GatedCall call, uint32_t device, std::function<CUresult()> f,
                            Haste haste) {
  {
    const std::lock_guard lock(moments_mutex_);
    later_.push_back({call, device, std::move(f), haste});
    later_count_.store(later_.size(), std::memory_order_relaxed);
  }
  try_deferred(device);
  if (haste == Haste::kNone || !has_later()) return;
  const std::lock_guard lock(moments_mutex_);
  start_collector_locked();
}

// What waits for a quiet moment has it now, unless somebody else is looking for one.
void ContextGate::try_deferred(uint32_t device) {
  Moment* made = nullptr;
  {
    const std::lock_guard lock(moments_mutex_);
    if (overlapping_locked(device) != nullptr) return;
    made = &moments_.emplace_back(Moment{device, 0});
  }
  const uint64_t start = now_ns();
  close(device, 0);
  const Look seen = look(device, nullptr);
  if (!seen.running && !seen.stalled && !seen.outlasted) run_deferred(device);
  open(device, start);
  const std::lock_guard lock(moments_mutex_);
  moments_.remove_if([made](const Moment& moment) { return &moment == made; });
  moments_changed_.notify_all();
}

void ContextGate::tend() {
  if (!has_later()) return;
  std::bitset<wire::kMaxDevices> devices;
  bool all = false;
  {
    const std::lock_guard lock(moments_mutex_);
    for (const Later& later : later_) {
      if (later.device == kAllDevices) {
        all = true;
      } else {
        devices.set(later.device);
      }
    }
  }
  if (all) try_deferred(kAllDevices);
  for (uint32_t device = 0; device < devices.size(); ++device) {
    if (devices.test(device)) try_deferred(device);
  }
}

// ---- Moments for what nobody waits for ----------------------------------------------------------

void ContextGate::start_collector_locked() noexcept {
  if (collecting_.load(std::memory_order_relaxed)) return;
  if (collector_thread_.joinable()) collector_thread_.join();  // it has let go of the lock for good
  // To look at streams it needs a context, as whoever calls run_later() has one.
  CUcontext context = nullptr;
  driver_.cuCtxGetCurrent(&context);
  try {
    collector_thread_ = std::thread([this, context] {
      driver_.cuCtxSetCurrent(context);
      collect();
    });
    collecting_.store(true, std::memory_order_release);
  } catch (const std::exception&) {
    // No thread, or no memory for one: executors look when they are idle, and the next call tries.
  }
}

bool ContextGate::next_to_collect(uint32_t* device) {
  const std::lock_guard lock(moments_mutex_);
  for (const Later& later : later_) {
    if (later.haste != Haste::kSoon) continue;
    *device = later.device;
    return true;
  }
  collecting_.store(false, std::memory_order_release);
  return false;
}

// Its moments are brief: a load on another device does not wait while it looks at them all.
void ContextGate::collect() {
  pthread_setname_np(pthread_self(), "collector");
  uint64_t since = now_ns();
  uint64_t hold_ns = limits_.first_hold_ns;
  uint32_t device = 0;
  while (next_to_collect(&device)) {
    bool found = false;
    {
      const Quiet quiet(*this, device, {.hold_ns = hold_ns, .brief = true}, &collector_);
      found = quiet.complete();
    }
    const bool patient = now_ns() - since < limits_.total_ns;
    uint64_t rest_ns = kCollectNs;
    if (found) {
      since = now_ns();
    } else if (!patient) {
      give_up_on(device, true);
    } else {
      rest_ns = std::max(rest_ns, limits_.open_share * hold_ns);
    }
    hold_ns =
        found || !patient ? limits_.first_hold_ns : std::min(2 * hold_ns, limits_.longest_hold_ns);
    if (!rest(rest_ns, &collector_)) return;
  }
}

// ---- Cost ---------------------------------------------------------------------------------------

void ContextGate::count(GatedCall call, uint64_t ns) {
  Counter& counter = counters_[static_cast<size_t>(call)];
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.total_ns.fetch_add(ns, std::memory_order_relaxed);
  uint64_t longest = counter.longest_ns.load(std::memory_order_relaxed);
  while (longest < ns &&
         !counter.longest_ns.compare_exchange_weak(longest, ns, std::memory_order_relaxed)) {
  }
}

ContextGate::Cost ContextGate::cost(GatedCall call) const {
  const Counter& counter = counters_[static_cast<size_t>(call)];
  return {counter.calls.load(std::memory_order_relaxed),
          counter.total_ns.load(std::memory_order_relaxed),
          counter.longest_ns.load(std::memory_order_relaxed)};
}

}  // namespace openmps::worker
