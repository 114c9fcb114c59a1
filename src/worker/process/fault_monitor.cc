// SPDX-License-Identifier: Apache-2.0
// The watchdog over the shared contexts. See fault_monitor.h.
#include "worker/process/fault_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "base/mutex.h"
#include "worker/device/driver_check.h"
#include "worker/device/log.h"

namespace openmps::worker {
namespace {

// Between two questions to the driver, which takes 5 to 250 ms to notice most faults (an H200). All
// programs stand still from then until this thread knows.
constexpr uint64_t kPeriodNs = 5 * kNsPerMs;

// While a fault is suspected.
constexpr useconds_t kCloseUs = 1'000;
// After an Xid all processes but the faulting one run on within 1 ms (an H200). So long nothing of
// this one may have ended for its contexts to be lost. The driver's own word has the right error,
// and comes 91 to 98 ms after the Xid of a misaligned access or a stack that overflows, and more
// than 120 ms after 3 of 15 on a busy host; after a trap it takes seconds.
constexpr uint64_t kStandstillNs = 200 * kNsPerMs;
// How long before the Xid the probe may have passed last, or all work may have been given to the
// GPU: an Xid comes up to 121 ms after the fault (an H200).
constexpr uint64_t kProbedNs = 250 * kNsPerMs;
// How long a suspicion lasts: what has stood still for that long would have been noticed.
constexpr uint64_t kSuspicionNs = 500 * kNsPerMs;

}  // namespace

FaultMonitor::FaultMonitor(const DriverTable& driver, const Devices& devices, bool takes_over,
                           Report report)
    : driver_(driver),
      devices_(devices),
      takes_over_(takes_over),
      report_(std::move(report)),
      probes_(devices.count()),
      thread_([this] { run(); }) {}

FaultMonitor::~FaultMonitor() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void FaultMonitor::add(Watched& session) {
  const MutexLock lock(mutex_);
  sessions_.insert(&session);
  // The contexts may have been lost while this session opened.
  if (lost() != CUDA_SUCCESS) end(session);
}

void FaultMonitor::end(const Watched& session) const {
  if (takes_over_ && session.may_move_) {
    session.hand_over_();
  } else {
    end_session(session.view_, lost());
  }
}

void FaultMonitor::remove(Watched& session) {
  const MutexLock lock(mutex_);
  sessions_.erase(&session);
  std::erase(pending_, &session);
}

void FaultMonitor::wake_up(Watched& session) {
  bool sleeps = false;
  {
    const MutexLock lock(mutex_);
    // After a fault no fence is ever reached, and nothing is left to detect.
    if (session.pending_.load(std::memory_order_relaxed) || lost() != CUDA_SUCCESS) return;
    sleeps = pending_.empty();
    if (sleeps) busy_since_ns_ = now_ns();
    pending_.push_back(&session);
    session.pending_.store(true, std::memory_order_seq_cst);
  }
  if (sleeps) wake_.notify_all();
}

// Drops the sessions whose fences have all been reached; with none left the thread sleeps.
void FaultMonitor::look_at_sessions_locked() {
  if (lost() != CUDA_SUCCESS) pending_.clear();
  const uint64_t now = now_ns();
  std::erase_if(pending_, [now](Watched* session) {
    session->fences_.look(session->view_, now, &session->seen_);
    session->pending_.store(false, std::memory_order_seq_cst);
    if (!session->fences_.pending(session->view_)) return true;
    session->pending_.store(true, std::memory_order_seq_cst);
    return false;
  });
}

void FaultMonitor::run() {
  MutexLock lock(mutex_);
  while (!stop_) {
    if (pending_.empty()) {
      wake_.wait(mutex_);
      continue;
    }
    const uint64_t next_look_ns = now_ns() + kPeriodNs;
    while (!stop_ && wake_.wait_until(mutex_, next_look_ns)) {
    }
    if (stop_) break;
    lock.unlock();
    look();
    lock.lock();
    look_at_sessions_locked();
  }
  lock.unlock();
  for (const uint32_t i : devices_.used()) {
    if (probes_[i].stream == nullptr) continue;
    driver_.cuCtxSetCurrent(devices_.at(i).context);
    driver_.cuStreamDestroy_v2(probes_[i].stream);
    driver_.cuEventDestroy_v2(probes_[i].event);
  }
}

// Any call reports a lost context. The probe is an event in a stream of the monitor's own.
void FaultMonitor::look() {
  for (const uint32_t i : devices_.used()) {
    Probe& probe = probes_[i];
    CUresult result = driver_.cuCtxSetCurrent(devices_.at(i).context);
    if (result == CUDA_SUCCESS && probe.stream == nullptr) result = make_probe(i, &probe);
    if (result == CUDA_SUCCESS) result = driver_.cuEventQuery(probe.event);
    if (result == CUDA_SUCCESS) {
      probe.passed_ns.store(now_ns(), std::memory_order_relaxed);
      result = driver_.cuEventRecord(probe.event, probe.stream);
    }
    if (is_sticky(result)) {
      context_lost(result, "device " + std::to_string(i) + " has lost its context");
    }
  }
}

// Of the highest priority, since the probe is to pass other work.
CUresult FaultMonitor::make_probe(uint32_t device, Probe* probe) {
  const int priority = devices_.at(device).greatest_priority;
  CUresult result =
      driver_.cuStreamCreateWithPriority(&probe->stream, CU_STREAM_NON_BLOCKING, priority);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuEventCreate(&probe->event, CU_EVENT_DISABLE_TIMING);
  }
  if (result == CUDA_SUCCESS) result = driver_.cuEventRecord(probe->event, probe->stream);
  return result;
}

uint64_t FaultMonitor::reached_locked() const {
  uint64_t sum = 0;
  for (const Watched* session : sessions_) sum += session->fences_.reached(session->view_);
  return sum;
}

// Two signs of life, for which no driver call is made here, since threads may wait in the driver:
// fences that are reached, and the probe. The probe may share a hardware queue with long work:
// where it had not passed for long before the Xid, it is no sign of death.
void FaultMonitor::watch(uint32_t device, CUresult result, const std::string& what) {
  const uint64_t begin = now_ns();
  uint64_t moved_ns = begin;
  uint64_t last = ~0ull;
  const auto ends = [&](const std::string& why) { log(what + ": " + why); };
  while (lost() == CUDA_SUCCESS && now_ns() - begin < kSuspicionNs) {
    uint64_t busy_since = 0;
    {
      const MutexLock lock(mutex_);
      if (stop_) return;
      if (pending_.empty()) return ends("nothing of this worker was under way");
      busy_since = busy_since_ns_;
      const uint64_t reached = reached_locked();
      if (std::exchange(last, reached) != reached) moved_ns = now_ns();
    }
    const uint64_t passed_ns = probes_[device].passed_ns.load(std::memory_order_relaxed);
    const uint64_t probed_ns = std::max(passed_ns, busy_since);
    if (probed_ns + kProbedNs < begin) {
      return ends("whether it is this worker's can't be told: the last sign of life came " +
                  std::to_string((begin - probed_ns) / kNsPerMs) + " ms before");
    }
    if (now_ns() - std::max(passed_ns, moved_ns) >= kStandstillNs) {
      return lose(result, what + ", and nothing of this worker moves any more", DriverKnows::kNo);
    }
    usleep(kCloseUs);
  }
  if (lost() == CUDA_SUCCESS) ends("it is not this worker's, whose work goes on");
}

void end_session(const wire::ChannelView& view, CUresult result) {
  wire::ChannelHeader& header = view.header();
  uint32_t none = CUDA_SUCCESS;
  header.status.compare_exchange_strong(none, result);
  header.wake_epoch.fetch_add(1);
  futex_wake(&header.wake_epoch, INT_MAX);
}

void FaultMonitor::lose(CUresult result, const std::string& reason, DriverKnows knows) {
  CUresult none = CUDA_SUCCESS;
  if (!lost_.compare_exchange_strong(none, result)) return;
  log("The shared context is lost with CUDA error " + std::to_string(result) + ": " + reason);
  if (last_words_ && knows == DriverKnows::kYes) last_words_(result);
  report_(result, reason, knows);  // before what the sessions tell
  {
    const MutexLock lock(mutex_);
    const uint64_t now = now_ns();
    for (Watched* session : sessions_) {
      const uint64_t since_ns = session->fences_.look(session->view_, now, &session->seen_);
      session->stood_still_ms_ = since_ns == 0 ? 0 : (now - since_ns) / kNsPerMs;
      end(*session);
    }
  }
  if (last_words_ && knows == DriverKnows::kNo) last_words_(result);
}

}  // namespace openmps::worker
