// SPDX-License-Identifier: Apache-2.0
// The watchdog over the shared contexts. See fault_monitor.h.
#include "worker/process/fault_monitor.h"

#include <algorithm>
#include <climits>

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
constexpr uint64_t kCloseNs = 1 * kNsPerMs;
// After an Xid all processes but the faulting one run on within 1 ms (an H200). So long nothing of
// this one may have ended for its contexts to be lost: some times that, for slow hosts.
constexpr uint64_t kStandstillNs = 15 * kNsPerMs;
// How long a suspicion lasts: the driver's own report comes 70 to 770 ms after the Xid.
constexpr uint64_t kSuspicionNs = 1'000 * kNsPerMs;

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
    pending_.push_back(&session);
    session.pending_.store(true, std::memory_order_seq_cst);
  }
  if (sleeps) wake_.notify_all();
}

// Drops the sessions whose fences have all been reached; with none left the thread sleeps.
void FaultMonitor::forget_idle_locked() {
  if (lost() != CUDA_SUCCESS) pending_.clear();
  std::erase_if(pending_, [](Watched* session) {
    session->pending_.store(false, std::memory_order_seq_cst);
    if (!session->fences_.pending(session->view_)) return true;
    session->pending_.store(true, std::memory_order_seq_cst);
    return false;
  });
}

void FaultMonitor::run() {
  MutexLock lock(mutex_);
  while (!stop_) {
    const bool is_close = suspicion_.begin_ns != 0;
    if (pending_.empty() && !is_close) {
      wake_.wait(mutex_);
      continue;
    }
    const uint64_t next_look_ns = now_ns() + (is_close ? kCloseNs : kPeriodNs);
    while (!stop_ && (is_close || suspicion_.begin_ns == 0) &&
           wake_.wait_until(mutex_, next_look_ns)) {
    }
    if (stop_) break;
    lock.unlock();
    look();
    if (is_close && lost() == CUDA_SUCCESS) look_closely();
    lock.lock();
    forget_idle_locked();
  }
  lock.unlock();
  for (uint32_t i = 0; i < devices_.count(); ++i) {
    if (probes_[i].stream == nullptr) continue;
    driver_.cuCtxSetCurrent(devices_.at(i).context);
    driver_.cuStreamDestroy_v2(probes_[i].stream);
    driver_.cuEventDestroy_v2(probes_[i].event);
  }
}

// Any call reports a lost context. The probe is an event in a stream of the monitor's own.
void FaultMonitor::look() {
  for (uint32_t i = 0; i < devices_.count(); ++i) {
    Probe& probe = probes_[i];
    CUresult result = driver_.cuCtxSetCurrent(devices_.at(i).context);
    if (result == CUDA_SUCCESS && probe.stream == nullptr) result = make_probe(i, &probe);
    if (result == CUDA_SUCCESS) result = driver_.cuEventQuery(probe.event);
    if (result == CUDA_SUCCESS) {
      probe.passed_ns = now_ns();
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

void FaultMonitor::suspect(uint32_t device, CUresult result, const std::string& what,
                           bool is_ours_alone) {
  if (lost() != CUDA_SUCCESS) return;
  {
    const MutexLock lock(mutex_);
    const uint64_t now = now_ns();
    suspicion_ = {.device = device,
                  .result = result,
                  .what = what,
                  .is_ours_alone = is_ours_alone,
                  .begin_ns = now,
                  .progress_ns = now,
                  .reached = reached_locked()};
  }
  wake_.notify_all();
}

// Two signs of life: fences that are reached, and the probe. The probe may share a hardware queue
// with long work: where it had not passed for long before the Xid, it is no sign of death.
void FaultMonitor::look_closely() {
  Suspicion seen;
  const uint64_t now = now_ns();
  {
    const MutexLock lock(mutex_);
    const uint64_t reached = reached_locked();
    if (reached != suspicion_.reached) {
      suspicion_.reached = reached;
      suspicion_.progress_ns = now;
    }
    seen = suspicion_;
    if (now - seen.begin_ns >= kSuspicionNs) suspicion_.begin_ns = 0;
  }
  const uint64_t passed_ns = probes_[seen.device].passed_ns;
  const bool was_passing = passed_ns + kSuspicionNs / 4 >= seen.begin_ns;
  const uint64_t moved_ns = std::max(passed_ns, seen.progress_ns);
  if (!seen.is_ours_alone || !was_passing || now - moved_ns < kStandstillNs) return;
  context_lost(seen.result, seen.what + ", and nothing of this worker moves any more");
}

void end_session(const wire::ChannelView& view, CUresult result) {
  wire::ChannelHeader& header = view.header();
  uint32_t none = CUDA_SUCCESS;
  header.status.compare_exchange_strong(none, result);
  header.wake_epoch.fetch_add(1);
  futex_wake(&header.wake_epoch, INT_MAX);
}

void FaultMonitor::context_lost(CUresult result, const std::string& reason) {
  CUresult none = CUDA_SUCCESS;
  if (!lost_.compare_exchange_strong(none, result)) return;
  log("The shared context is lost with CUDA error " + std::to_string(result) + ": " + reason);
  if (last_words_) last_words_(result);
  report_(result, reason);  // before what the sessions tell
  const MutexLock lock(mutex_);
  for (const Watched* session : sessions_) end(*session);
}

}  // namespace openmps::worker
