// SPDX-License-Identifier: Apache-2.0
// Making the second contexts. See cold_lane.h.
#include "worker/device/cold_lane.h"

#include <array>
#include <condition_variable>
#include <string>

#include "worker/device/log.h"

namespace openmps::worker {

// Kept by a making that outlives the lanes.
struct ColdLanes::State {
  enum class Phase { kNone, kMaking, kDone };

  const DriverTable& driver;
  const Devices& devices;
  std::mutex& limits;
  std::mutex mutex;
  std::condition_variable changed;
  std::array<Phase, wire::kMaxDevices> phases{};  // guarded by mutex
  std::array<std::atomic<CUcontext>, wire::kMaxDevices> contexts{};
};

ColdLanes::ColdLanes(const DriverTable& driver, const Devices& devices, std::mutex& limits)
    : gate(driver),
      driver_(driver),
      devices_(devices),
      state_(new State{driver, devices, limits, {}, {}, {}, {}}) {}

ColdLanes::~ColdLanes() = default;

// What kernels may rely on in the main context: of its limits only the stack, for what prints or
// allocates does not run here. A raised stack is set in both while `limits` is held.
void ColdLanes::make(State& state, uint32_t device) {
  const DriverTable& driver = state.driver;
  CUcontext made = nullptr;
  CUresult result = driver.cuCtxCreate_v2(&made, 0, state.devices.at(device).handle);
  if (result == CUDA_SUCCESS) {
    CUcontext popped = nullptr;
    driver.cuCtxPopCurrent_v2(&popped);  // creation has made it current
    const std::lock_guard lock(state.limits);
    size_t stack = 0;
    {
      const InContext main(driver, state.devices.at(device).context);
      result = driver.cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE);
    }
    if (result == CUDA_SUCCESS) {
      const InContext cold(driver, made);
      result = driver.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack);
    }
    if (result == CUDA_SUCCESS) state.contexts[device].store(made, std::memory_order_release);
  }
  if (result != CUDA_SUCCESS) {
    if (made != nullptr) driver.cuCtxDestroy_v2(made);
    log("Device " + std::to_string(device) + " has no cold lane (CUDA error " +
        std::to_string(result) + "): loading code waits for work that is under way");
  }
  const std::lock_guard lock(state.mutex);
  state.phases[device] = State::Phase::kDone;
  state.changed.notify_all();
}

void ColdLanes::begin_making(uint32_t device) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->phases[device] != State::Phase::kNone) return;
    state_->phases[device] = State::Phase::kMaking;
  }
  background_.run([state = state_, device] { make(*state, device); });
}

void ColdLanes::make_ahead() {
  for (uint32_t i = 0; i < devices_.count(); ++i) begin_making(i);
}

CUcontext ColdLanes::want(uint32_t device) {
  if (!shared_.load(std::memory_order_acquire)) return nullptr;
  begin_making(device);
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->phases[device] == State::Phase::kDone; });
  return context(device);
}

CUcontext ColdLanes::context(uint32_t device) const {
  return state_->contexts[device].load(std::memory_order_acquire);
}

CUresult ColdLanes::set_stack(uint32_t device, size_t bytes) const {
  CUcontext made = context(device);
  if (made == nullptr) return CUDA_SUCCESS;  // whoever makes it reads the limit
  const InContext current(driver_, made);
  return driver_.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, bytes);
}

}  // namespace openmps::worker
