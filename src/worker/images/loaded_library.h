// SPDX-License-Identifier: Apache-2.0
// A library of the driver: where its code is, by device and lane, and what its kernels' attributes
// are there. Perhaps shared by several sessions (image_store.h); any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "api/driver_table.h"
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

// Unloaded after its last holder, in a quiet moment of where its code is.
class LoadedLibrary : public std::enable_shared_from_this<LoadedLibrary> {
 public:
  // `cold` null: there is the main lane only.
  LoadedLibrary(const DriverTable& driver, ContextGate& gate, ColdLanes* cold, CUlibrary handle,
                const ImageFacts& facts);
  ~LoadedLibrary();
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  const CUlibrary handle;
  // Its code may be in one lane of a device only, that which it came to first: variables, and
  // references to textures, stay there, and so do constants that somebody may write.
  [[nodiscard]] bool has_one_home() const {
    return own_.references || own_.variables || is_pinned();
  }
  // Uses nothing that belongs to the main context: what is printed, asserted or allocated there.
  const bool may_run_cold;

  // Its code came to a device: variables are there, and, if `whole`, every function.
  void note_loaded(const Placement& place, bool whole) {
    loaded_[index(place.lane)].fetch_or(1u << place.device, std::memory_order_relaxed);
    if (whole) whole_[index(place.lane)].fetch_or(1u << place.device, std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_loaded(const Placement& place) const { return is_in(loaded_, place); }
  [[nodiscard]] bool is_whole(const Placement& place) const { return is_in(whole_, place); }

  // A kernel's function there; null: it is not known to be loaded.
  [[nodiscard]] CUfunction function(CUkernel kernel, const Placement& place);
  // Load it, with the attributes that it has elsewhere. That context is current, and quiet if it is
  // the main one.
  CUresult load(CUkernel kernel, const Placement& place, CUfunction* function);
  // Its variables are in the cold lane of the device, whose context is current. If its code can use
  // them from the main one, too, it can move there from now on, without them (decision 32). Takes
  // as long as to copy it, or to compile it. `image`, `options`: what it was loaded from and with;
  // `capability` as in image_facts.h.
  void leave_variables(const ImageBytes& image, uint32_t capability, const LoadOptions& options,
                       uint32_t device);
  // That has not been tried.
  [[nodiscard]] bool may_leave_variables(uint32_t device) const {
    return own_.variables && !own_.references && !is_pinned() &&
           (tried_to_leave_.load(std::memory_order_relaxed) >> device & 1) == 0;
  }
  // What is in the cold lane may move to the main one.
  [[nodiscard]] bool may_move(uint32_t device) {
    return !own_.references && !is_pinned() && (!own_.variables || has_left_variables(device));
  }
  // Its code moves without its variables, which are in the cold lane.
  [[nodiscard]] bool has_left_variables(uint32_t device) {
    const std::lock_guard lock(mutex_);
    return placed_libraries_.contains(device);
  }
  // It is launched, or asked about, in the cold lane. How often it has been.
  uint32_t note_cold_use() { return cold_uses_.fetch_add(1, std::memory_order_relaxed) + 1; }
  [[nodiscard]] uint32_t cold_uses() const { return cold_uses_.load(std::memory_order_relaxed); }
  // In a later quiet moment: move_to_main(). The library may go before.
  void plan_move(uint32_t device);
  // Load in the main context, which is quiet, what is in the cold one, if it may move. It runs
  // there from then on.
  void move_to_main(uint32_t device);
  // Somebody gets to know the address of a constant, if it has some: it has one home from now on.
  [[nodiscard]] bool may_be_pinned() const {
    return own_.constants && !pinned_.load(std::memory_order_acquire);
  }
  void pin();
  // Beside variables: which of the two a name is, the image has to say.
  [[nodiscard]] bool has_both() const { return own_.constants && own_.variables; }
  // That has the constants where the code is: one that has left its variables has others than
  // `handle`.
  [[nodiscard]] CUlibrary library_of_constants(uint32_t device) {
    const std::lock_guard lock(mutex_);
    const auto placed = placed_libraries_.find(device);
    return placed == placed_libraries_.end() || !is_loaded({device, Lane::kMain}) ? handle
                                                                                  : placed->second;
  }

  // The attributes of a kernel before anybody changed them: what each session is told. The first
  // caller says them.
  void pristine(CUkernel kernel, int32_t (&attributes)[wire::kFunctionAttributes]);
  // In every lane, now and later. An attribute only grows while several sessions use it: what one
  // was allowed stays allowed, and each client enforces its own value.
  CUresult set_attribute(CUkernel kernel, uint32_t device, CUfunction_attribute attribute,
                         int value);
  CUresult set_cache(CUkernel kernel, uint32_t device, CUfunc_cache config);
  CUresult set_banks(CUkernel kernel, uint32_t device, CUsharedconfig config);

 private:
  // What of it is its program's own.
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
    std::map<CUfunction_attribute, int> attributes;
    int cache = kUnset;
    int banks = kUnset;
  };
  using Key = std::pair<CUkernel, uint32_t>;
  static constexpr int kUnset = -1;
  using Bits = std::array<std::atomic<uint32_t>, kLanes>;  // by lane and device
  static size_t index(Lane lane) { return static_cast<size_t>(lane); }
  static bool is_in(const Bits& bits, const Placement& place) {
    return (bits[index(place.lane)].load(std::memory_order_relaxed) >> place.device & 1) != 0;
  }

  // f(CUfunction) in each lane that has it, until one fails. mutex_ is held.
  template <typename F>
  CUresult in_each_lane(const Placed& placed, uint32_t device, F&& f) const;
  CUresult apply_locked(const Placed& placed, CUfunction function) const;
  // What the kernel is called in that lane.
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
  std::mutex moving_;  // held while code moves, and while it is pinned; before mutex_
  std::mutex mutex_;
  // By device: the same code, whose variables are this library's in the cold lane. Guarded by
  // mutex_.
  std::map<uint32_t, CUlibrary> placed_libraries_;
  std::map<Key, Placed> placed_;                       // guarded by mutex_
  std::unordered_map<CUkernel, Attributes> pristine_;  // guarded by mutex_
};

// What the driver makes of an image, before it is known what the code does. Unloaded again unless
// it is taken.
class DriverLibrary {
 public:
  DriverLibrary(const DriverTable& driver, ContextGate& gate) : driver_(driver), gate_(gate) {}
  ~DriverLibrary();
  DriverLibrary(const DriverLibrary&) = delete;
  DriverLibrary& operator=(const DriverLibrary&) = delete;

  // Once, of an image as clients send it, with a NUL behind it: compiles what has to be compiled,
  // waits for no work, needs no context and holds nobody up. Errors: the driver's.
  Status load(cuda::Bytes image, const LoadOptions& options);
  // It has been loaded, and is the library's from now on.
  std::shared_ptr<LoadedLibrary> take(ColdLanes* cold, const ImageFacts& facts);

 private:
  const DriverTable& driver_;
  ContextGate& gate_;
  CUlibrary handle_ = nullptr;
};

// Both steps, where the facts are known.
Status load_library(const DriverTable& driver, ContextGate& gate, ColdLanes* cold,
                    cuda::Bytes image, const ImageFacts& facts, const LoadOptions& options,
                    std::shared_ptr<LoadedLibrary>* made);

}  // namespace openmps::worker
