// SPDX-License-Identifier: Apache-2.0
// See loaded_library.h.
#include "worker/images/loaded_library.h"

#include <algorithm>
#include <new>
#include <vector>

#include "base/mutex.h"
#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"
#include "worker/images/prelinked.h"

namespace openmps::worker {

LoadedLibrary::LoadedLibrary(const DriverTable& driver, ContextGate& gate, ColdLanes* cold,
                             CUlibrary library, const ImageFacts& facts)
    : handle(library),
      may_run_cold(!facts.prints && !facts.allocates && !facts.is_managed &&
                   !(facts.binds() && facts.uses_images)),
      own_{facts.has_constants, facts.has_variables, facts.has_references},
      driver_(driver),
      gate_(gate),
      cold_(cold) {}

// While the main context is quiescent, so is the cold one: every stream waits for its cold stream.
LoadedLibrary::~LoadedLibrary() {
  const uint32_t main = loaded_[index(Lane::kMain)].load(std::memory_order_relaxed);
  const uint32_t cold = loaded_[index(Lane::kCold)].load(std::memory_order_relaxed);
  const auto unload = [&driver = driver_, handle = handle, placed = std::move(placed_libraries_)] {
    for (const auto& [device, library] : placed) driver.cuLibraryUnload(library);
    return driver.cuLibraryUnload(handle);
  };
  const uint32_t devices = main != 0 ? main | cold : cold;
  if (devices == 0) {  // loaded on no device: nothing to wait for
    gate_.run_now(GatedCall::kLibraryUnload, unload);
    return;
  }
  const bool one = (devices & (devices - 1)) == 0;
  ContextGate& gate = main != 0 ? gate_ : cold_->gate;
  try {
    gate.defer(GatedCall::kLibraryUnload,
               one ? static_cast<uint32_t>(__builtin_ctz(devices)) : ContextGate::kAllDevices,
               unload);
  } catch (const std::bad_alloc&) {
    // It remains loaded until a new worker starts: unloading it now could block every session.
  }
}

Status load_library(const DriverTable& driver, ContextGate& gate, ColdLanes* cold,
                    cuda::Bytes image, const ImageFacts& facts, const LoadOptions& options,
                    std::shared_ptr<LoadedLibrary>* made) {
  const DriverImage whole(image.first(image.size() - 1));
  CUlibrary handle = nullptr;
  const CUresult result = gate.run_now(GatedCall::kLibraryLoad, [&] {
    return driver.cuLibraryLoadData(&handle, whole.data(), options.names, options.values,
                                    options.count, nullptr, nullptr, 0);
  });
  OPENMPS_RETURN_IF_ERROR(check(result, "cuLibraryLoadData"));
  *made = std::make_shared<LoadedLibrary>(driver, gate, cold, handle, facts);
  return Status();
}

// ---- Where the code is --------------------------------------------------------------------------

CUfunction LoadedLibrary::function(CUkernel kernel, const Placement& place) {
  const MutexLock lock(mutex_);
  const auto found = placed_.find({kernel, place.device});
  return found == placed_.end() ? nullptr : found->second.functions[index(place.lane)];
}

CUresult LoadedLibrary::load(CUkernel kernel, const Placement& place, CUfunction* function) {
  CUfunction loaded = nullptr;
  CUkernel there = nullptr;
  CUresult result = kernel_in(place, kernel, &there);
  if (result == CUDA_SUCCESS) result = driver_.cuKernelGetFunction(&loaded, there);
  if (result == CUDA_SUCCESS && driver_.cuFuncLoad != nullptr) result = driver_.cuFuncLoad(loaded);
  if (result != CUDA_SUCCESS) return result;
  const MutexLock lock(mutex_);
  Placed& placed = placed_[{kernel, place.device}];
  CUfunction& known = placed.functions[index(place.lane)];
  // Set before other threads find it: each lane has the attributes set before and gets those set
  // later.
  for (const auto& [setting, value] : placed.settings) {
    if (known == nullptr && result == CUDA_SUCCESS) result = apply(loaded, setting, value);
  }
  if (result != CUDA_SUCCESS) return result;
  *function = known = loaded;
  return CUDA_SUCCESS;
}

CUresult LoadedLibrary::kernel_in(const Placement& place, CUkernel kernel, CUkernel* there) {
  *there = kernel;
  if (place.lane != Lane::kMain) return CUDA_SUCCESS;
  CUlibrary library = nullptr;
  {
    const MutexLock lock(mutex_);
    const auto placed = placed_libraries_.find(place.device);
    if (placed == placed_libraries_.end()) return CUDA_SUCCESS;
    library = placed->second;
  }
  const char* name = nullptr;
  const CUresult result = driver_.cuKernelGetName(&name, kernel);
  return result != CUDA_SUCCESS ? result : driver_.cuLibraryGetKernel(there, library, name);
}

void LoadedLibrary::leave_variables(cuda::Bytes image, uint32_t capability,
                                    const LoadOptions& options, uint32_t device) {
  tried_to_leave_.fetch_or(1u << device, std::memory_order_relaxed);
  if (driver_.cuKernelGetName == nullptr) return;
  const auto find = [this](const std::string& name) -> Result<CUdeviceptr> {
    CUdeviceptr address = 0;
    size_t bytes = 0;
    OPENMPS_RETURN_IF_ERROR(check(
        driver_.cuLibraryGetGlobal(&address, &bytes, handle, name.c_str()), "cuLibraryGetGlobal"));
    return address;
  };
  const Result<ImageBytes> code =
      place_variables({image.data(), image.size() - 1}, capability, kMostPlacedBytes, find);
  if (!code.ok()) return;
  CUlibrary placed = nullptr;
  const CUresult result = gate_.run_now(GatedCall::kLibraryLoad, [&] {
    return driver_.cuLibraryLoadData(&placed, code->data(), options.names, options.values,
                                     options.count, nullptr, nullptr, 0);
  });
  if (result != CUDA_SUCCESS) return;
  const MutexLock lock(mutex_);
  placed_libraries_[device] = placed;
}

void LoadedLibrary::pin() {
  const MutexLock lock(moving_);
  pinned_.store(true, std::memory_order_release);
}

void LoadedLibrary::plan_move(uint32_t device) {
  const uint32_t bit = 1u << device;
  if ((moves_.fetch_or(bit, std::memory_order_acq_rel) & bit) != 0) return;
  try {
    gate_.defer(GatedCall::kFunctionLoad, device, [self = weak_from_this(), device] {
      if (const auto library = self.lock()) library->move_to_main(device);
      return CUDA_SUCCESS;
    });
  } catch (const std::bad_alloc&) {
    moves_.fetch_and(~bit, std::memory_order_acq_rel);  // the next use plans the move again
  }
}

void LoadedLibrary::move_to_main(uint32_t device) {
  moves_.fetch_and(~(1u << device), std::memory_order_acq_rel);
  const MutexLock one_at_a_time(moving_);
  if (!may_move(device)) return;
  std::vector<CUkernel> kernels;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, placed] : placed_) {
      const bool moves = key.second == device && placed.functions[index(Lane::kMain)] == nullptr;
      if (moves) kernels.push_back(key.first);
    }
  }
  const Placement main{device};
  const InContext current(driver_, cold_->context(main));
  bool whole = is_whole({device, Lane::kCold});
  for (CUkernel kernel : kernels) {
    CUfunction function = nullptr;
    // Code that can't be loaded here remains where it runs.
    whole &= load(kernel, main, &function) == CUDA_SUCCESS;
  }
  note_loaded(main, whole);
}

// ---- Attributes ---------------------------------------------------------------------------------

CUresult LoadedLibrary::apply(CUfunction function, const Setting& setting, int value) const {
  switch (setting.first) {
    case wire::FunctionSetting::kAttribute:
      return driver_.cuFuncSetAttribute(function, static_cast<CUfunction_attribute>(setting.second),
                                        value);
    case wire::FunctionSetting::kCacheConfiguration:
      return driver_.cuFuncSetCacheConfig(function, static_cast<CUfunc_cache>(value));
    case wire::FunctionSetting::kBankSize:
      return driver_.cuFuncSetSharedMemConfig(function, static_cast<CUsharedconfig>(value));
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

void LoadedLibrary::pristine(CUkernel kernel, int32_t (&attributes)[wire::kFunctionAttributes]) {
  Attributes seen;
  std::copy(std::begin(attributes), std::end(attributes), seen.begin());
  const MutexLock lock(mutex_);
  const Attributes& first = pristine_.try_emplace(kernel, seen).first->second;
  std::copy(first.begin(), first.end(), attributes);
}

CUresult LoadedLibrary::set(CUkernel kernel, uint32_t device, const Setting& setting, int value) {
  const MutexLock lock(mutex_);
  Placed& placed = placed_[{kernel, device}];
  int most = value;
  if (const auto known = placed.settings.find(setting);
      known != placed.settings.end() && setting.first == wire::FunctionSetting::kAttribute) {
    most = std::max(known->second, value);
  }
  CUresult result = CUDA_ERROR_INVALID_HANDLE;  // it is not loaded
  for (const Lane lane : {Lane::kMain, Lane::kCold}) {
    CUfunction function = placed.functions[index(lane)];
    if (function == nullptr) continue;
    // Without cold lanes the caller's context is current.
    const InContext current(driver_, cold_ == nullptr ? nullptr : cold_->context({device, lane}));
    // The call that was asked for first: the driver may refuse it.
    result = apply(function, setting, value);
    if (result == CUDA_SUCCESS && most != value) result = apply(function, setting, most);
    if (result != CUDA_SUCCESS) return result;
  }
  if (result == CUDA_SUCCESS) placed.settings[setting] = most;
  return result;
}

}  // namespace openmps::worker
