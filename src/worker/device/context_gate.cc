// SPDX-License-Identifier: Apache-2.0
// See context_gate.h.
#include "worker/device/context_gate.h"

#include <pthread.h>

#include <algorithm>
#include <bitset>
#include <ctime>
#include <exception>
#include <new>

#include "base/mutex.h"

namespace openmps::worker {
namespace {

// Between two looks while work is held back: about the length of a small kernel. The calls that are
// waited for take 100 us and more.
constexpr uint64_t kLookNs = 10'000;
// Between two looks while nothing is held back: what is waited for takes longer than that.
constexpr uint64_t kRestNs = 1'000'000;
// Work that is known to end within this time is waited for by holding new work back: a stream is
// given the next work by then (stream_budget.h), and other streams lose little. To load in the cold
// context and to run the program's work there takes as long (decision 16).
constexpr uint64_t kNearNs = 5'000'000;
// Between two holds of the collector, while nobody waits for what it gives back.
constexpr uint64_t kCollectNs = 10'000'000;

bool meets(uint32_t wanted, uint32_t device) {
  return wanted == ContextGate::kAllDevices || wanted == device;
}

}  // namespace

ContextGate::~ContextGate() {
  ending_.store(true, std::memory_order_release);
  if (collector_thread_.joinable()) collector_thread_.join();
}

// ---- Sessions that submit, and where
// ----------------------------------------------------------------

void ContextGate::add(GateClient&) {
  const MutexLock lock(mutex_);
  submitting_.reserve(++clients_);
}

void ContextGate::remove(GateClient& client) {
  const MutexLock lock(mutex_);
  --clients_;
  std::erase(submitting_, &client);
}

ContextGate::Stream* ContextGate::add(CUstream handle, uint32_t device, const GateClient* client,
                                      StreamOwner owner) {
  const MutexLock lock(mutex_);
  busy_.reserve(streams_.size() + 1);
  Stream& added = streams_.emplace_back(*this, handle, device, client, owner);
  added.self_ = std::prev(streams_.end());
  return &added;
}

void ContextGate::remove(Stream* stream) {
  const MutexLock lock(mutex_);
  if (stream->listed_.load(std::memory_order_relaxed)) std::erase(busy_, stream);
  streams_.erase(stream->self_);
}

void ContextGate::list(Stream& stream) {
  const MutexLock lock(mutex_);
  if (!stream.listed_.exchange(true, std::memory_order_seq_cst)) busy_.push_back(&stream);
}

void ContextGate::list(GateClient& client) {
  const MutexLock lock(mutex_);
  if (!client.listed_.exchange(true, std::memory_order_seq_cst)) submitting_.push_back(&client);
}

void ContextGate::set_debt(GateClient& client, bool (*owes)(const void*), const void* context) {
  const MutexLock lock(mutex_);
  client.owes_ = owes;
  client.owes_context_ = context;
}

// The client shows itself before it looks whether the gate is closed, and the gate closes before it
// looks for clients: one of them sees the other.
void ContextGate::enter(GateClient& client, uint32_t device) {
  show_at(client, device);
  Door& door = doors_[device];
  if (door.closed.load(std::memory_order_seq_cst) == 0) return;
  const uint64_t now = clock_.now_ns();
  if (now - client.asked_ns_.load(std::memory_order_relaxed) > limits_.asker_ns) {
    door.has_held.store(true, std::memory_order_relaxed);
  }
  Hindrances by;
  by.add(door.closed_for.load(std::memory_order_relaxed), 0, wire::Hindrance::kQuietMoment);
  show(client, by);
  const ShownWait shown(client.shown, client.usage, wire::ExecutorWait::kHeldBack);
  // Never longer than one hold, whatever the call inside does.
  const uint64_t until = now + limits_.longest_hold_ns;
  while (door.closed.load(std::memory_order_relaxed) != 0 && clock_.now_ns() < until) {
    client.device_.store(GateClient::kNowhere, std::memory_order_release);
    clock_.sleep(kLookNs);
    show_at(client, device);
  }
}

// ---- Looking for quiescence ---------------------------------------------------------------------

ContextGate::Search ContextGate::search_for(const Request& request) const {
  const bool one_hold = request.patience == Patience::kOneHold;
  const bool yields = request.patience == Patience::kUnlessStuck;
  const bool waiting_load =
      is_load(request.call) && limits_.loading_waits && request.client != nullptr;
  return {.hold_ns = one_hold ? request.hold_ns : limits_.first_hold_ns,
          .brief = one_hold,
          .patient = !one_hold && (waiting_load || (yields && !is_load(request.call))),
          .yields = yields};
}

bool ContextGate::may_call_anyway(const Request& request) const {
  if (request.otherwise == Otherwise::kCall) {
    return !gave_up() || (is_load(request.call) && !limits_.loading_waits);
  }
  return request.patience == Patience::kUnlessStuck && !limits_.loading_waits;
}

void ContextGate::close(uint32_t device, uint32_t session) {
  for_each_door(device, [session](Door& door) {
    door.closed_for.store(session, std::memory_order_relaxed);
    door.has_held.store(false, std::memory_order_relaxed);
    door.closed.fetch_add(1, std::memory_order_seq_cst);
  });
}

void ContextGate::open(uint32_t device, uint64_t closed_ns) {
  const uint64_t now = clock_.now_ns();
  for_each_door(device, [&](Door& door) {
    door.closed.fetch_sub(1, std::memory_order_release);
    if (!door.has_held.load(std::memory_order_relaxed)) return;
    const uint64_t until = std::max(door.owed_until_ns.load(std::memory_order_relaxed), now);
    door.owed_until_ns.store(until + limits_.open_ratio * (now - closed_ns),
                             std::memory_order_relaxed);
  });
}

uint64_t ContextGate::owed(uint32_t device) {
  const uint64_t tolerated = clock_.now_ns() + limits_.most_owed_ns;
  uint64_t longest = 0;
  for_each_door(device, [&](const Door& door) {
    const uint64_t until = door.owed_until_ns.load(std::memory_order_relaxed);
    if (until > tolerated) longest = std::max(longest, until - tolerated);
  });
  return longest;
}

ContextGate::Look ContextGate::look(uint32_t device, const GateClient& asking) {
  Look seen;
  const MutexLock lock(mutex_);
  // Each is unlisted before the last look at it: one that becomes busy meanwhile is seen by that
  // look, or lists itself again.
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
    const uint64_t outlasted_ns = stream.outlasted_ns.load(std::memory_order_relaxed);
    const bool outlasted = outlasted_ns != 0;
    wire::Hindrance why = outlasted ? wire::Hindrance::kOutlasts : wire::Hindrance::kRuns;
    if (stream.waits.load(std::memory_order_relaxed)) {
      why = wire::Hindrance::kAwaitsValue;
    } else if (owes(stream.client)) {
      why = wire::Hindrance::kHostFunction;
    }
    if (outlasted) {
      seen.outlasted = true;
      seen.stuck |=
          why != wire::Hindrance::kOutlasts || clock_.now_ns() - outlasted_ns >= limits_.endless_ns;
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
  const MutexLock lock(mutex_);
  for (Stream* const listed : busy_) {
    Stream& stream = *listed;
    if (!meets(device, stream.device) || !stream.busy.load(std::memory_order_relaxed)) continue;
    const bool stalled = stream.waits.load(std::memory_order_relaxed) || owes(stream.client);
    const bool known = stream.outlasted_ns.load(std::memory_order_relaxed) != 0;
    if (!known && (all || stalled) &&
        driver_.cuStreamQuery(stream.handle) == CUDA_ERROR_NOT_READY) {
      stream.outlasted_ns.store(clock_.now_ns(), std::memory_order_relaxed);
    }
  }
}

// Hold new work back, this long at most. With kComplete and kOutlastedOnly it still is held back.
ContextGate::Found ContextGate::hold(uint32_t device, uint64_t hold_ns, const GateClient& client,
                                     uint64_t* closed_ns) {
  const uint64_t start = *closed_ns = clock_.now_ns();
  close(device, client.session);
  for (;;) {
    const Look seen = look(device, client);
    const bool blocked = seen.outlasted && limits_.loading_waits;
    if (!seen.running && !seen.stalled && !blocked) {
      return seen.outlasted ? Found::kOutlastedOnly : Found::kComplete;
    }
    const uint64_t held = clock_.now_ns() - start;
    if (seen.stalled && held >= limits_.first_hold_ns) {
      give_up_on(device, false);
      if (!seen.running && !limits_.loading_waits) continue;
    }
    if (blocked || held >= hold_ns) break;
    clock_.sleep(kLookNs);
  }
  open(device, start);
  return Found::kGaveUp;
}

bool ContextGate::rest(uint64_t ns, const GateClient& client) {
  const uint64_t end = clock_.now_ns() + ns;
  for (;;) {
    if (stops(client)) return false;
    run_meanwhile(client);
    const uint64_t now = clock_.now_ns();
    if (now >= end) return true;
    clock_.sleep(std::min(end - now, kRestNs));
  }
}

ContextGate::Found ContextGate::seek(uint32_t device, const Search& search,
                                     const GateClient& client, uint64_t* closed_ns) {
  if (search.brief) return seek_briefly(device, search.hold_ns, client, closed_ns);
  const uint64_t end = clock_.now_ns() + limits_.total_ns;
  for (uint64_t ns = search.hold_ns;; ns = std::min(2 * ns, limits_.longest_hold_ns)) {
    if (!rest(owed(device), client)) return Found::kStopped;
    // Nothing is held back for work that may never end.
    for (;;) {
      const Look seen = look(device, client);
      if (search.yields && seen.stuck) return Found::kGaveUp;
      const bool rests = limits_.loading_waits && seen.outlasted && !gave_up() &&
                         (search.patient || clock_.now_ns() < end);
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
    if (clock_.now_ns() >= end) {
      give_up_on(device, true);
      if (!search.patient) return Found::kGaveUp;
    }
    // The queued work may wait for work that is held back right now: let that through.
    if (ends && !rest(limits_.open_ratio * ns, client)) return Found::kStopped;
  }
}

bool ContextGate::await_end(uint32_t device, uint64_t hold_ns, const GateClient& client,
                            bool* ends) {
  const uint64_t until = clock_.now_ns() + limits_.open_ratio * hold_ns;
  const uint64_t near_ns = std::min(hold_ns, kNearNs);
  while (ends_ns(device) > clock_.now_ns() + near_ns) {
    if (!rest(std::min(kRestNs, near_ns), client)) return false;
    if (clock_.now_ns() >= until) break;
  }
  *ends = ends_ns(device) <= clock_.now_ns() + hold_ns;
  return true;
}

bool ContextGate::may_hold(uint32_t device, uint64_t hold_ns) {
  if (hold_ns == 0) return false;
  if (hold_ns > limits_.first_hold_ns) return true;
  const uint64_t now = clock_.now_ns();
  bool due = true;
  for_each_door(device, [&](const Door& door) {
    due = due && now >= door.not_before_ns.load(std::memory_order_relaxed);
  });
  return due && owed(device) == 0 && ends_ns(device) <= now + hold_ns;
}

uint64_t ContextGate::ends_ns(uint32_t device) {
  const MutexLock lock(mutex_);
  uint64_t latest = 0;
  for (const Stream* stream : busy_) {
    if (!meets(device, stream->device) || !stream->busy.load(std::memory_order_relaxed)) continue;
    latest = std::max(latest, stream->ends_ns.load(std::memory_order_relaxed));
  }
  return latest;
}

// Work that is late is taken to be twice as late at its end, as in stream_budget.cc: kernels take
// longer than usual beside work in the cold context. The latest end of all streams counts, for work
// with an earlier end may be over although its session has not looked yet.
uint64_t ContextGate::near_end_ns(uint32_t device) {
  const uint64_t now = clock_.now_ns();
  const uint64_t known = ends_ns(device);
  const uint64_t ends = known != 0 && known < now ? now + (now - known) : known;
  return ends > kNearNs ? ends - kNearNs : 0;
}

void ContextGate::note_failed_hold(uint32_t device, uint64_t hold_ns) {
  const uint64_t now = clock_.now_ns();
  for_each_door(device, [&](Door& door) {
    const uint64_t pause_ns = std::min(
        std::max(2 * door.pause_ns.load(std::memory_order_relaxed), limits_.open_ratio * hold_ns),
        limits_.longest_pause_ns);
    door.pause_ns.store(pause_ns, std::memory_order_relaxed);
    door.not_before_ns.store(now + pause_ns, std::memory_order_relaxed);
  });
}

// A look costs other sessions nothing, so one is always taken.
ContextGate::Found ContextGate::seek_briefly(uint32_t device, uint64_t hold_ns,
                                             const GateClient& client, uint64_t* closed_ns) {
  const bool holds = may_hold(device, hold_ns);
  const Found found = hold(device, holds ? hold_ns : 0, client, closed_ns);
  if (found != Found::kGaveUp) {
    for_each_door(device, [](Door& door) {
      door.pause_ns.store(0, std::memory_order_relaxed);
      door.not_before_ns.store(0, std::memory_order_relaxed);
    });
  } else if (holds) {
    note_failed_hold(device, hold_ns);
  }
  return found;
}

void ContextGate::wait_for_own_work(uint32_t device, const GateClient& client, uint64_t ns) {
  const uint64_t end = clock_.now_ns() + ns;
  const auto unfinished = [&] {
    const MutexLock lock(mutex_);
    return std::any_of(busy_.begin(), busy_.end(), [&](const Stream* stream) {
      return stream->client == &client && meets(device, stream->device) &&
             stream->busy.load(std::memory_order_relaxed) &&
             driver_.cuStreamQuery(stream->handle) == CUDA_ERROR_NOT_READY;
    });
  };
  while (unfinished() && clock_.now_ns() < end) clock_.sleep(kLookNs);
}

// ---- Quiescence that calls use together ---------------------------------------------------------

ContextGate::Quiescence* ContextGate::overlapping_locked(uint32_t device) {
  for (Quiescence& quiescence : quiescences_) {
    if (meets(device, quiescence.device) || meets(quiescence.device, device)) return &quiescence;
  }
  return nullptr;
}

ContextGate::Quiescence* ContextGate::visit(uint32_t device, const Search& search,
                                            const GateClient& client, bool* stopped) {
  show(client, {});
  const ShownWait shown(client.shown, client.usage, wire::ExecutorWait::kQuietMoment);
  // A brief caller waits for another call's search only if it could have held work back itself.
  const bool waits = search.brief && may_hold(device, search.hold_ns);
  if (waits || !search.brief) client.asked_ns_.store(clock_.now_ns(), std::memory_order_relaxed);
  const uint64_t limit = search.brief ? (waits ? search.hold_ns : 0) : limits_.total_ns;
  const uint64_t end = search.patient ? ~0ull : clock_.now_ns() + limit;
  MutexLock lock(quiescence_mutex_);
  for (;;) {
    Quiescence* quiescence = overlapping_locked(device);
    if (quiescence == nullptr) break;
    if (quiescence->found && meets(quiescence->device, device) &&
        clock_.now_ns() - quiescence->found_ns < limits_.join_ns) {
      ++quiescence->visitors;
      return quiescence;
    }
    if (stops(client)) {
      *stopped = true;
      return nullptr;
    }
    if (clock_.now_ns() >= end) {
      if (waits) note_failed_hold(device, search.hold_ns);
      return nullptr;
    }
    Hindrances by;
    by.add(quiescence->session, 0, wire::Hindrance::kQuietMoment);
    show(client, by);
    quiescence_changed_.wait_for(quiescence_mutex_, kRestNs);
    lock.unlock();
    run_meanwhile(client);
    if (search.yields && look(device, client).stuck) return nullptr;
    lock.lock();
  }
  Quiescence& made = quiescences_.emplace_back(Quiescence{device, client.session});
  lock.unlock();
  uint64_t closed_ns = 0;
  const Found found = seek(device, search, client, &closed_ns);
  lock.lock();
  quiescence_changed_.notify_all();
  if (found == Found::kOutlastedOnly || found == Found::kComplete) {
    made.found = true;
    made.complete = found == Found::kComplete;
    made.closed_ns = closed_ns;
    made.found_ns = clock_.now_ns();
    made.visitors = 1;
    return &made;
  }
  *stopped = found == Found::kStopped;
  quiescences_.remove_if([&made](const Quiescence& quiescence) { return &quiescence == &made; });
  return nullptr;
}

void ContextGate::end_visit(Quiescence* quiescence) {
  MutexLock lock(quiescence_mutex_);
  if (--quiescence->visitors != 0) return;
  quiescence->found = false;  // no further call joins
  const Quiescence ended = *quiescence;
  lock.unlock();
  if (ended.complete) make_deferred(ended.device);
  open(ended.device, ended.closed_ns);
  lock.lock();
  quiescences_.remove_if([quiescence](const Quiescence& other) { return &other == quiescence; });
  quiescence_changed_.notify_all();
}

// Nothing is unfinished on the device. A call that finds no memory is deferred again.
void ContextGate::make_deferred(uint32_t device) noexcept {
  std::list<Deferred> ready;  // moved without a request for memory
  {
    const MutexLock lock(quiescence_mutex_);
    for (auto it = deferred_.begin(); it != deferred_.end();) {
      const auto next = it++;
      if (meets(device, next->device)) ready.splice(ready.end(), deferred_, next);
    }
    deferred_count_.store(deferred_.size(), std::memory_order_relaxed);
  }
  for (auto it = ready.begin(); it != ready.end();) {
    try {
      it->f();
    } catch (const std::bad_alloc&) {
      ++it;
      continue;
    }
    count(it->call);
    it = ready.erase(it);
  }
  if (ready.empty()) return;
  const MutexLock lock(quiescence_mutex_);
  deferred_.splice(deferred_.end(), ready);
  deferred_count_.store(deferred_.size(), std::memory_order_relaxed);
}

void ContextGate::defer(GatedCall call, uint32_t device, std::function<CUresult()> f,
                        Urgency urgency) {
  {
    const MutexLock lock(quiescence_mutex_);
    deferred_.push_back({call, device, std::move(f), urgency});
    deferred_count_.store(deferred_.size(), std::memory_order_relaxed);
  }
  try_deferred(device);
  if (urgency == Urgency::kNone || !has_deferred()) return;
  const MutexLock lock(quiescence_mutex_);
  start_collector_locked();
}

// Make what is deferred if nothing runs now, unless another call looks for quiescence already.
void ContextGate::try_deferred(uint32_t device) noexcept {
  Quiescence* made = nullptr;
  {
    const MutexLock lock(quiescence_mutex_);
    if (overlapping_locked(device) != nullptr) return;
    try {
      made = &quiescences_.emplace_back(Quiescence{device, 0});
    } catch (const std::bad_alloc&) {
      return;  // the calls are made later
    }
  }
  const uint64_t start = clock_.now_ns();
  close(device, 0);
  const Look seen = look(device, worker_);
  if (!seen.running && !seen.stalled && !seen.outlasted) make_deferred(device);
  open(device, start);
  const MutexLock lock(quiescence_mutex_);
  quiescences_.remove_if([made](const Quiescence& quiescence) { return &quiescence == made; });
  quiescence_changed_.notify_all();
}

void ContextGate::run_deferred() {
  if (!has_deferred()) return;
  std::bitset<wire::kMaxDevices> devices;
  bool all = false;
  {
    const MutexLock lock(quiescence_mutex_);
    for (const Deferred& deferred : deferred_) {
      if (deferred.device == kAllDevices) {
        all = true;
      } else {
        devices.set(deferred.device);
      }
    }
  }
  if (all) try_deferred(kAllDevices);
  for (uint32_t device = 0; device < devices.size(); ++device) {
    if (devices.test(device)) try_deferred(device);
  }
}

// ---- Deferred calls -----------------------------------------------------------------------------

void ContextGate::start_collector_locked() noexcept {
  if (collecting_.load(std::memory_order_relaxed)) return;
  // The thread does not take the lock again.
  if (collector_thread_.joinable()) collector_thread_.join();
  // To look at streams the thread needs a current context. The caller of defer() has one.
  CUcontext context = nullptr;
  driver_.cuCtxGetCurrent(&context);
  try {
    collector_thread_ = std::thread([this, context] {
      driver_.cuCtxSetCurrent(context);
      collect();
    });
    collecting_.store(true, std::memory_order_release);
  } catch (const std::exception&) {
    // No thread, or no memory for one: executors look when they are idle, and the next defer()
    // tries to start one.
  }
}

bool ContextGate::next_to_collect(uint32_t* device) {
  const MutexLock lock(quiescence_mutex_);
  for (const Deferred& deferred : deferred_) {
    if (deferred.urgency != Urgency::kSoon) continue;
    *device = deferred.device;
    return true;
  }
  collecting_.store(false, std::memory_order_release);
  return false;
}

// Each of its holds is a search of its own, so that a load on another device does not wait for all.
void ContextGate::collect() {
  pthread_setname_np(pthread_self(), "collector");
  uint64_t since = clock_.now_ns();
  uint64_t hold_ns = limits_.first_hold_ns;
  uint32_t device = 0;
  while (next_to_collect(&device)) {
    bool found = false;
    {
      const Visit visit(*this, device, {.hold_ns = hold_ns, .brief = true}, worker_);
      found = visit.complete();
    }
    const bool patient = clock_.now_ns() - since < limits_.total_ns;
    uint64_t rest_ns = kCollectNs;
    if (found) {
      since = clock_.now_ns();
    } else if (!patient) {
      give_up_on(device, true);
    } else {
      rest_ns = std::max(rest_ns, limits_.open_ratio * hold_ns);
    }
    hold_ns =
        found || !patient ? limits_.first_hold_ns : std::min(2 * hold_ns, limits_.longest_hold_ns);
    if (!rest(rest_ns, worker_)) return;
  }
}

}  // namespace openmps::worker
