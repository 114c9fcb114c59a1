// SPDX-License-Identifier: Apache-2.0
// See context_gate.h.
#include "worker/device/context_gate.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <new>

#include "base/mutex.h"

namespace openmps::worker {
namespace {

// Between two looks while the gate is closed: about the length of a small kernel. The calls that
// are waited for take 100 us and more.
constexpr uint64_t kLookNs = 10'000;
// Work that is known to end within this time is waited for with the gate closed: a stream is
// given the next work by then (stream_budget.h), and other streams lose little. To load in the cold
// context and to run the program's work there takes as long (decision 16).
constexpr uint64_t kNearNs = 5'000'000;
// Between two holds of the collector, while nobody waits for what it gives back.
constexpr uint64_t kCollectNs = 10'000'000;

bool meets(uint32_t wanted, uint32_t device) {
  return wanted == ContextGate::kAllDevices || wanted == device;
}

}  // namespace

// ---- Sessions that submit, and where ------------------------------------------------------------

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

void ContextGate::set_debt(GateClient& client, std::function<bool()> owes) {
  const MutexLock lock(mutex_);
  client.owes_ = std::move(owes);
}

// The client shows itself before it looks whether the gate is closed, and the gate closes before it
// looks for clients: one of them sees the other.
void ContextGate::enter(GateClient& client, uint32_t device) {
  show_at(client, device);
  Door& door = doors_[device];
  if (door.closed.load(std::memory_order_seq_cst) == 0) return;
  const uint64_t now = clock_.now_ns();
  if (now - client.asked_ns_.load(std::memory_order_relaxed) > limits_.asker_ns) {
    door.has_delayed.store(true, std::memory_order_relaxed);
  }
  Hindrances by;
  by.add(door.closed_for.load(std::memory_order_relaxed), 0, wire::Hindrance::kQuietMoment);
  show(client, by);
  const ShownWait shown(client.shown, client.usage, clock_.now_ns(), wire::ExecutorWait::kHeldBack);
  // Never longer than one hold, whatever the call inside does.
  const uint64_t until = now + limits_.longest_hold_ns;
  while (door.closed.load(std::memory_order_relaxed) != 0 && clock_.now_ns() < until) {
    client.device_.store(GateClient::kNowhere, std::memory_order_release);
    clock_.sleep(kLookNs);
    show_at(client, device);
  }
}

// ---- Looking for quiescence ---------------------------------------------------------------------

bool ContextGate::is_patient(const Request& request) const {
  if (request.patience == Patience::kOneHold) return false;
  if (is_load(request.call)) return limits_.loading_waits && request.client != nullptr;
  return request.patience == Patience::kUnlessStuck;
}

bool ContextGate::may_call_anyway(const Request& request) const {
  if (request.otherwise == Otherwise::kCall) {
    return !gave_up() || (is_load(request.call) && !limits_.loading_waits);
  }
  return request.patience == Patience::kUnlessStuck && !limits_.loading_waits;
}

void ContextGate::close(uint32_t device, uint32_t session) {
  for (Door& door : doors(device)) {
    door.closed_for.store(session, std::memory_order_relaxed);
    door.has_delayed.store(false, std::memory_order_relaxed);
    door.closed.fetch_add(1, std::memory_order_seq_cst);
  }
}

void ContextGate::open(uint32_t device, uint64_t closed_ns) {
  const uint64_t now = clock_.now_ns();
  for (Door& door : doors(device)) {
    door.closed.fetch_sub(1, std::memory_order_release);
    if (!door.has_delayed.load(std::memory_order_relaxed)) continue;
    const uint64_t until = std::max(door.owed_until_ns.load(std::memory_order_relaxed), now);
    door.owed_until_ns.store(until + limits_.open_ratio * (now - closed_ns),
                             std::memory_order_relaxed);
  }
}

uint64_t ContextGate::owed(uint32_t device) {
  const uint64_t tolerated = clock_.now_ns() + limits_.most_owed_ns;
  uint64_t longest = 0;
  for (const Door& door : doors(device)) {
    const uint64_t until = door.owed_until_ns.load(std::memory_order_relaxed);
    if (until > tolerated) longest = std::max(longest, until - tolerated);
  }
  return longest;
}

ContextGate::Look ContextGate::look(uint32_t device, const GateClient& asking) {
  Look seen;
  const MutexLock lock(mutex_);
  // Each is unlisted before the last look at it: one that becomes busy meanwhile is seen by that
  // look, or lists itself again.
  const auto unlist_idle = [](auto& all, auto is_busy) {
    std::erase_if(all, [is_busy](auto* one) {
      if (is_busy(*one)) return false;
      one->listed_.store(false, std::memory_order_seq_cst);
      if (!is_busy(*one)) return true;
      one->listed_.store(true, std::memory_order_seq_cst);
      return false;
    });
  };
  unlist_idle(submitting_, [](const GateClient& client) {
    return client.device_.load(std::memory_order_seq_cst) != GateClient::kNowhere;
  });
  unlist_idle(busy_,
              [](const Stream& stream) { return stream.busy.load(std::memory_order_seq_cst); });
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

// For what is unfinished now the gate is not closed any more, until that has ended: all of it, or
// what waits for its client.
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

// Close the gate, this long at most. With kComplete and kOutlastedOnly it still is closed.
ContextGate::Found ContextGate::hold(uint64_t hold_ns, const GateClient& client, Quiescence& made) {
  const uint32_t device = made.device;
  made.closed_ns = clock_.now_ns();
  close(device, made.session);
  for (;;) {
    const Look seen = look(device, client);
    const bool blocked = seen.outlasted && limits_.loading_waits;
    if (!seen.running && !seen.stalled && !blocked) {
      return seen.outlasted ? Found::kOutlastedOnly : Found::kComplete;
    }
    const uint64_t closed = clock_.now_ns() - made.closed_ns;
    if (seen.stalled && closed >= limits_.first_hold_ns) {
      give_up_on(device, false);
      if (!seen.running && !limits_.loading_waits) continue;
    }
    if (blocked || closed >= hold_ns) break;
    clock_.sleep(kLookNs);
  }
  open(device, made.closed_ns);
  return Found::kNothing;
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

ContextGate::Found ContextGate::seek(const Request& request, Quiescence& made) {
  const uint32_t device = request.device;
  const GateClient& client = client_of(request);
  if (request.patience == Patience::kOneHold) return seek_briefly(request, made);
  const bool patient = is_patient(request);
  const uint64_t end = clock_.now_ns() + limits_.total_ns;
  for (uint64_t ns = limits_.first_hold_ns;; ns = longer(ns)) {
    if (!rest(owed(device), client)) return Found::kNothing;
    // The gate is not closed for work that may never end.
    for (;;) {
      const Look seen = look(device, client);
      if (request.patience == Patience::kUnlessStuck && seen.stuck) return Found::kNothing;
      const bool rests = limits_.loading_waits && seen.outlasted && !gave_up() &&
                         (patient || clock_.now_ns() < end);
      if (!rests) break;
      if (!rest(kRestNs, client)) return Found::kNothing;
    }
    const bool ends = await_end(device, ns, client);
    if (ends) {
      const Found found = hold(ns, client, made);
      if (found != Found::kNothing) return found;
    }
    if (gave_up()) return Found::kNothing;
    if (clock_.now_ns() >= end) {
      give_up_on(device, true);
      if (!patient) return Found::kNothing;
    }
    // The queued work may wait for work that is about to be submitted: let that through.
    if (ends && !rest(limits_.open_ratio * ns, client)) return Found::kNothing;
  }
}

bool ContextGate::await_end(uint32_t device, uint64_t hold_ns, const GateClient& client) {
  const uint64_t until = clock_.now_ns() + limits_.open_ratio * hold_ns;
  const uint64_t near_ns = std::min(hold_ns, kNearNs);
  while (ends_ns(device) > clock_.now_ns() + near_ns) {
    if (!rest(std::min(kRestNs, near_ns), client)) return false;
    if (clock_.now_ns() >= until) break;
  }
  return ends_ns(device) <= clock_.now_ns() + hold_ns;
}

bool ContextGate::may_hold(uint32_t device, uint64_t hold_ns) {
  if (hold_ns == 0) return false;
  if (hold_ns > limits_.first_hold_ns) return true;
  const uint64_t now = clock_.now_ns();
  for (const Door& door : doors(device)) {
    if (now < door.not_before_ns.load(std::memory_order_relaxed)) return false;
  }
  return owed(device) == 0 && ends_ns(device) <= now + hold_ns;
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

void ContextGate::set_pause(uint32_t device, uint64_t hold_ns) {
  const uint64_t now = clock_.now_ns();
  for (Door& door : doors(device)) {
    const uint64_t twice = hold_ns != 0 ? 2 * door.pause_ns.load(std::memory_order_relaxed) : 0;
    const uint64_t pause_ns =
        std::min(std::max(twice, limits_.open_ratio * hold_ns), limits_.longest_pause_ns);
    door.pause_ns.store(pause_ns, std::memory_order_relaxed);
    door.not_before_ns.store(now + pause_ns, std::memory_order_relaxed);
  }
}

// A look costs other sessions nothing, so one is always taken.
ContextGate::Found ContextGate::seek_briefly(const Request& request, Quiescence& made) {
  const uint64_t hold_ns = may_hold(request.device, request.hold_ns) ? request.hold_ns : 0;
  const Found found = hold(hold_ns, client_of(request), made);
  const bool failed = found == Found::kNothing;
  if (!failed || hold_ns != 0) set_pause(request.device, failed ? hold_ns : 0);
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

void ContextGate::end_locked(const Quiescence* quiescence) {
  quiescences_.remove_if([quiescence](const Quiescence& other) { return &other == quiescence; });
  quiescence_changed_.notify_all();
}

ContextGate::Visit ContextGate::visit(const Request& request) {
  const uint32_t device = request.device;
  const GateClient& client = client_of(request);
  show(client, {});
  const ShownWait shown(client.shown, client.usage, clock_.now_ns(),
                        wire::ExecutorWait::kQuietMoment);
  // A brief caller waits for another call's search only if it could have closed the gate itself.
  const bool is_brief = request.patience == Patience::kOneHold;
  const bool waits = !is_brief || may_hold(device, request.hold_ns);
  if (waits) client.asked_ns_.store(clock_.now_ns(), std::memory_order_relaxed);
  const uint64_t limit = is_brief ? request.hold_ns : limits_.total_ns;
  const uint64_t end = is_patient(request) ? ~0ull : clock_.now_ns() + (waits ? limit : 0);
  MutexLock lock(quiescence_mutex_);
  for (;;) {
    const auto other = std::ranges::find_if(quiescences_, [device](const Quiescence& quiescence) {
      return meets(device, quiescence.device) || meets(quiescence.device, device);
    });
    if (other == quiescences_.end()) break;
    if (other->found != Found::kNothing && meets(other->device, device) &&
        clock_.now_ns() - other->found_ns < limits_.join_ns) {
      ++other->visitors;
      return Visit(&*other, EndVisit{this});
    }
    if (stops(client)) return {};
    if (clock_.now_ns() >= end) {
      if (is_brief && waits) set_pause(device, request.hold_ns);
      return {};
    }
    Hindrances by;
    by.add(other->session, 0, wire::Hindrance::kQuietMoment);
    show(client, by);
    quiescence_changed_.wait_for(quiescence_mutex_, kRestNs);
    lock.unlock();
    run_meanwhile(client);
    if (request.patience == Patience::kUnlessStuck && look(device, client).stuck) return {};
    lock.lock();
  }
  Quiescence& made = quiescences_.emplace_back(Quiescence{device, client.session});
  lock.unlock();
  const Found found = seek(request, made);
  lock.lock();
  if (found == Found::kNothing) {
    end_locked(&made);
    return {};
  }
  made.visitors = 1;
  made.found = found;
  made.found_ns = clock_.now_ns();
  quiescence_changed_.notify_all();
  return Visit(&made, EndVisit{this});
}

void ContextGate::end_visit(Quiescence* quiescence) {
  MutexLock lock(quiescence_mutex_);
  if (--quiescence->visitors != 0) return;
  const Quiescence ended = *quiescence;
  quiescence->found = Found::kNothing;  // no further call joins
  lock.unlock();
  if (ended.found == Found::kComplete) make_deferred(ended.device);
  open(ended.device, ended.closed_ns);
  lock.lock();
  end_locked(quiescence);
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
  }
  for (auto it = ready.begin(); it != ready.end();) {
    try {
      it->f();
      count(it->call);
      it = ready.erase(it);
    } catch (const std::bad_alloc&) {
      ++it;
    }
  }
  const MutexLock lock(quiescence_mutex_);
  deferred_.splice(deferred_.end(), ready);
}

void ContextGate::defer(GatedCall call, uint32_t device, std::function<CUresult()> f,
                        Urgency urgency) {
  {
    const MutexLock lock(quiescence_mutex_);
    deferred_.push_back({call, device, std::move(f), urgency});
  }
  try_deferred(device, 0);
  if (urgency == Urgency::kNone || !has_deferred()) return;
  const MutexLock lock(quiescence_mutex_);
  start_collector_locked();
}

// Whoever has found quiescence makes the calls at its end (end_visit()).
bool ContextGate::try_deferred(uint32_t device, uint64_t hold_ns) noexcept {
  try {
    const Request any{.call = GatedCall::kCount,
                      .device = device,
                      .patience = Patience::kOneHold,
                      .hold_ns = hold_ns};
    return is_complete(visit(any));
  } catch (const std::bad_alloc&) {
    return false;  // the calls are made later
  }
}

void ContextGate::run_deferred() {
  const auto try_if_any = [this](uint32_t device) {
    {
      const MutexLock lock(quiescence_mutex_);
      if (std::ranges::find(deferred_, device, &Deferred::device) == deferred_.end()) return;
    }
    try_deferred(device, 0);
  };
  if (!has_deferred()) return;
  try_if_any(kAllDevices);
  for (uint32_t device = 0; device < wire::kMaxDevices; ++device) try_if_any(device);
}

// ---- Deferred calls -----------------------------------------------------------------------------

void ContextGate::start_collector_locked() noexcept {
  if (collecting_.load(std::memory_order_relaxed)) return;
  // To look at streams the thread needs a current context. The caller of defer() has one.
  CUcontext context = nullptr;
  driver_.cuCtxGetCurrent(&context);
  try {
    // The one before does not take the lock again.
    collector_thread_ = std::jthread([this, context] {
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
    const bool found = try_deferred(device, hold_ns);
    if (found) since = clock_.now_ns();
    const bool is_patient = clock_.now_ns() - since < limits_.total_ns;
    if (!is_patient) give_up_on(device, true);
    const bool fails = !found && is_patient;
    const uint64_t rest_ns = fails ? limits_.open_ratio * hold_ns : 0;
    hold_ns = fails ? longer(hold_ns) : limits_.first_hold_ns;
    if (!rest(std::max(rest_ns, kCollectNs), worker_)) return;
  }
}

}  // namespace openmps::worker
