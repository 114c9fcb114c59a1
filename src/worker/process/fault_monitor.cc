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

}  // namespace

FaultMonitor::FaultMonitor(const DriverTable& driver, const Devices& devices, bool takes_over,
                           Report report)
    : driver_(driver),
      devices_(devices),
      takes_over_(takes_over),
      report_(std::move(report)),
      probes_(devices.count(), nullptr),
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
    forget_idle_locked();
  }
  lock.unlock();
  for (uint32_t i = 0; i < devices_.count(); ++i) {
    if (probes_[i] == nullptr) continue;
    driver_.cuCtxSetCurrent(devices_.at(i).context);
    driver_.cuStreamDestroy_v2(probes_[i]);
  }
}

// Any call reports a lost context; a query of an empty stream waits for nothing.
void FaultMonitor::look() {
  for (uint32_t i = 0; i < devices_.count(); ++i) {
    CUresult result = driver_.cuCtxSetCurrent(devices_.at(i).context);
    if (result == CUDA_SUCCESS && probes_[i] == nullptr) {
      result = driver_.cuStreamCreateWithPriority(&probes_[i], CU_STREAM_NON_BLOCKING, 0);
    }
    if (result == CUDA_SUCCESS) result = driver_.cuStreamQuery(probes_[i]);
    if (is_sticky(result)) {
      context_lost(result, "device " + std::to_string(i) + " has lost its context");
    }
  }
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
