// SPDX-License-Identifier: Apache-2.0
// Making the second contexts. See cold_lane.h.
#include "worker/device/cold_lane.h"

#include <array>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "worker/device/in_context.h"
#include "worker/device/log.h"

namespace openmps::worker {

// Kept alive by the background job, which may outlive the ColdLanes.
struct ColdLanes::State {
  enum class Phase { kNone, kMaking, kDone };

  const DriverTable& driver;
  const Devices& devices;
  Mutex& limits;
  Mutex mutex{LockRank::kColdLanes};
  CondVar changed{};
  std::array<Phase, wire::kMaxDevices> phases GUARDED_BY(mutex){};
  std::array<std::atomic<CUcontext>, wire::kMaxDevices> contexts{};
  std::array<std::shared_ptr<StreamSlots>, wire::kMaxDevices> slots{};
};

ColdLanes::ColdLanes(const DriverTable& driver, const Devices& devices, Mutex& limits)
    : gate(driver), driver_(driver), devices_(devices), state_(new State{driver, devices, limits}) {
  for (auto& slots : state_->slots) slots = std::make_shared<StreamSlots>();
}

ColdLanes::~ColdLanes() = default;

// Limits of the main context that kernels in the cold context rely on. Kernels that print or
// allocate don't run here. A limit is raised in both contexts while the mutex of the limits is
// held.
constexpr CUlimit kCopiedLimits[] = {CU_LIMIT_STACK_SIZE,
                                     CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT};

void ColdLanes::make(State& state, uint32_t device) {
  const DriverTable& driver = state.driver;
  CUcontext made = nullptr;
  CUresult result = driver.cuCtxCreate_v2(&made, 0, state.devices.at(device).handle);
  if (result == CUDA_SUCCESS) {
    CUcontext popped = nullptr;
    driver.cuCtxPopCurrent_v2(&popped);  // creation has made it current
    const MutexLock lock(state.limits);
    for (const CUlimit limit : kCopiedLimits) {
      size_t wanted = 0, there = 0;
      {
        const InContext main(driver, state.devices.at(device).context);
        if (driver.cuCtxGetLimit(&wanted, limit) == CUDA_ERROR_UNSUPPORTED_LIMIT) continue;
      }
      const InContext cold(driver, made);
      if (result == CUDA_SUCCESS) result = driver.cuCtxGetLimit(&there, limit);
      if (result == CUDA_SUCCESS && there != wanted) result = driver.cuCtxSetLimit(limit, wanted);
    }
    // Without stream slots the driver makes its own, as streams come.
    static_cast<void>(state.slots[device]->grow(driver, made, StreamSlots::kFirstOfPart));
    if (result == CUDA_SUCCESS) state.contexts[device].store(made, std::memory_order_release);
  }
  if (result != CUDA_SUCCESS) {
    if (made != nullptr) driver.cuCtxDestroy_v2(made);
    log("Device " + std::to_string(device) + " has no cold lane (CUDA error " +
        std::to_string(result) + "): loading code waits for work that is under way");
  }
  const MutexLock lock(state.mutex);
  state.phases[device] = State::Phase::kDone;
  state.changed.notify_all();
}

void ColdLanes::begin_making(uint32_t device) {
  {
    const MutexLock lock(state_->mutex);
    if (state_->phases[device] != State::Phase::kNone) return;
    state_->phases[device] = State::Phase::kMaking;
  }
  background_.run([state = state_, device] { make(*state, device); });
}

void ColdLanes::note_session(bool alone, bool is_adopted, uint64_t now) {
  const bool is_first = !std::exchange(served_, true);
  if (is_adopted && is_begun_) return share();
  if (is_adopted) {
    due_ns_ = now + kAdoptedNs;
    shares_then_ = true;
  }
  if (shares_then_) return;
  if (is_first) due_ns_ = now + kAloneNs;
  if (alone) return;
  share();
  make_ahead();
}

void ColdLanes::make_ahead() {
  due_ns_ = 0;
  is_begun_ = true;
  if (std::exchange(shares_then_, false)) share();
  for (const uint32_t i : devices_.used()) begin_making(i);
}

CUcontext ColdLanes::want(uint32_t device) {
  if (!shared_.load(std::memory_order_acquire)) return nullptr;
  begin_making(device);
  const MutexLock lock(state_->mutex);
  while (state_->phases[device] != State::Phase::kDone) state_->changed.wait(state_->mutex);
  return context(device);
}

CUcontext ColdLanes::context(uint32_t device) const {
  return state_->contexts[device].load(std::memory_order_acquire);
}

const std::shared_ptr<StreamSlots>& ColdLanes::slots(uint32_t device) const {
  return state_->slots[device];
}

CUresult ColdLanes::set_limit(uint32_t device, CUlimit limit, size_t value) const {
  CUcontext made = context(device);
  if (made == nullptr) return CUDA_SUCCESS;  // the job that makes the context reads the limit
  const InContext current(driver_, made);
  return driver_.cuCtxSetLimit(limit, value);
}

}  // namespace openmps::worker
