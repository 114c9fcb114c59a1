// SPDX-License-Identifier: Apache-2.0
// A library of the driver: where its code is loaded, by device and lane, and its kernels'
// attributes there. Several sessions may use it (image_store.h); any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "api/driver_table.h"
#include "base/mutex.h"
#include "cuda/fatbin.h"
#include "cuda/status.h"
#include "wire/commands/code.h"
#include "worker/device/cold_lane.h"
#include "worker/device/context_gate.h"
#include "worker/images/image_facts.h"
#include "worker/images/image_variables.h"

namespace openmps::worker {

// How the driver compiles an image.
struct LoadOptions {
  unsigned count = 0;
  CUjit_option* names = nullptr;
  void** values = nullptr;
};

// Unloaded after its last holder, at a quiescence of the contexts that have its code.
class LoadedLibrary : public std::enable_shared_from_this<LoadedLibrary> {
 public:
  // `cold` null: there is only the main lane.
  LoadedLibrary(const DriverTable& driver, ContextGate& gate, ColdLanes* cold, CUlibrary handle,
                const ImageFacts& facts);
  ~LoadedLibrary();
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  const CUlibrary handle;
  // Its code may be in one lane of a device only, in which it was loaded first, since variables,
  // references to textures, and constants that a program may write are there.
  [[nodiscard]] bool has_one_home() const {
    return own_.references || own_.variables || is_pinned();
  }
  // It uses nothing that belongs to the main context: it does not print, assert or allocate.
  const bool may_run_cold;

  // Its code has been loaded there: its variables, and, if `whole`, every function.
  void note_loaded(const Placement& place, bool whole) {
    loaded_[index(place.lane)].fetch_or(1u << place.device, std::memory_order_relaxed);
    if (whole) whole_[index(place.lane)].fetch_or(1u << place.device, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_loaded(const Placement& place) const { return is_in(loaded_, place); }
  [[nodiscard]] bool is_whole(const Placement& place) const { return is_in(whole_, place); }

  // A kernel's function there; null: it is not known to be loaded.
  [[nodiscard]] CUfunction function(CUkernel kernel, const Placement& place);
  // Load a function, with the attributes that it has elsewhere. The context is current, and
  // quiescent if it is the main one.
  CUresult load(CUkernel kernel, const Placement& place, CUfunction* function);
  // Its variables are in the cold lane of the device, whose context is current. If its code can use
  // them from the main lane, too, it can move there from now on, without them (decision 32). Takes
  // as long as copying the code, or compiling it. `image`, `options`: what it was loaded from and
  // with; `capability` as in image_facts.h.
  void leave_variables(cuda::Bytes image, uint32_t capability, const LoadOptions& options,
                       uint32_t device);
  // leave_variables() has not been tried on the device.
  [[nodiscard]] bool may_leave_variables(uint32_t device) const {
    return own_.variables && !own_.references && !is_pinned() &&
           (tried_to_leave_.load(std::memory_order_relaxed) >> device & 1) == 0;
  }
  // Code in the cold lane may move to the main one.
  [[nodiscard]] bool may_move(uint32_t device) {
    return !own_.references && !is_pinned() && (!own_.variables || has_left_variables(device));
  }
  // Its code moves without its variables, which are in the cold lane.
  [[nodiscard]] bool has_left_variables(uint32_t device) {
    const MutexLock lock(mutex_);
    return placed_libraries_.contains(device);
  }
  // Count a launch or a query in the cold lane; how many there have been.
  uint32_t note_cold_use() { return cold_uses_.fetch_add(1, std::memory_order_relaxed) + 1; }
  [[nodiscard]] uint32_t cold_uses() const { return cold_uses_.load(std::memory_order_relaxed); }
  // Call move_to_main() at a later quiescence. The library may be destroyed before.
  void plan_move(uint32_t device);
  // Load the code of the cold lane in the main context, which is quiescent, if it may move. It runs
  // there from then on.
  void move_to_main(uint32_t device);
  // The address of a constant is going to be known, if there are any: its code is in one lane of
  // each device from now on.
  [[nodiscard]] bool may_be_pinned() const {
    return own_.constants && !pinned_.load(std::memory_order_acquire);
  }
  void pin();
  // A name may be that of a variable or of a constant; the image says which.
  [[nodiscard]] bool has_both() const { return own_.constants && own_.variables; }
  // The driver's library that has the constants where the code is: for code that has left its
  // variables not `handle`.
  [[nodiscard]] CUlibrary library_of_constants(uint32_t device) {
    const MutexLock lock(mutex_);
    const auto placed = placed_libraries_.find(device);
    return placed == placed_libraries_.end() || !is_loaded({device, Lane::kMain}) ? handle
                                                                                  : placed->second;
  }

  // The attributes of a kernel before any session changed them, which each session is told. Set by
  // the first caller.
  void pristine(CUkernel kernel, int32_t (&attributes)[wire::kFunctionAttributes]);
  // What is set, and of wire::FunctionSetting::kAttribute which; else 0.
  using Setting = std::pair<wire::FunctionSetting, uint32_t>;
  // Set it in every lane, now and later. An attribute only grows while several sessions use the
  // library: what one was allowed remains allowed, and each client enforces its own value.
  CUresult set(CUkernel kernel, uint32_t device, const Setting& setting, int value);

 private:
  // Variables and constants that belong to one program.
  struct Own {
    bool constants;
    bool variables;
    bool references;
  };
  [[nodiscard]] bool is_pinned() const {
    return own_.constants && pinned_.load(std::memory_order_acquire);
  }
  using Attributes = std::array<int32_t, wire::kFunctionAttributes>;
  // A kernel on a device.
  struct Placed {
    std::array<CUfunction, kLanes> functions{};
    std::map<Setting, int> settings;
  };
  using Key = std::pair<CUkernel, uint32_t>;
  using Bits = std::array<std::atomic<uint32_t>, kLanes>;  // by lane and device
  static size_t index(Lane lane) { return static_cast<size_t>(lane); }
  static bool is_in(const Bits& bits, const Placement& place) {
    return (bits[index(place.lane)].load(std::memory_order_relaxed) >> place.device & 1) != 0;
  }

  CUresult apply(CUfunction function, const Setting& setting, int value) const;
  // The kernel's handle in that lane.
  CUresult kernel_in(const Placement& place, CUkernel kernel, CUkernel* there);

  const Own own_;
  const DriverTable& driver_;
  ContextGate& gate_;
  ColdLanes* const cold_;
  Bits loaded_{};
  Bits whole_{};
  std::atomic<bool> pinned_{false};
  std::atomic<uint32_t> moves_{0};           // planned, by device
  std::atomic<uint32_t> tried_to_leave_{0};  // by device
  std::atomic<uint32_t> cold_uses_{0};
  Mutex moving_{LockRank::kLibraryMoves};  // held while code moves, and while it is pinned
  Mutex mutex_{LockRank::kLibrary};
  // By device: a copy of the code whose variables are this library's in the cold lane.
  std::map<uint32_t, CUlibrary> placed_libraries_ GUARDED_BY(mutex_);
  std::map<Key, Placed> placed_ GUARDED_BY(mutex_);
  std::unordered_map<CUkernel, Attributes> pristine_ GUARDED_BY(mutex_);
};

// Have the driver make a library of an image with a NUL behind it: compiles if need be, waits for
// no work, needs no context and blocks no session. Errors: the driver's.
Status load_library(const DriverTable& driver, ContextGate& gate, ColdLanes* cold,
                    cuda::Bytes image, const ImageFacts& facts, const LoadOptions& options,
                    std::shared_ptr<LoadedLibrary>* made);

}  // namespace openmps::worker
