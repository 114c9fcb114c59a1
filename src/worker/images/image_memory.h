// SPDX-License-Identifier: Apache-2.0
// What programs have loaded before is there before they come (decision 22): a worker that starts
// loads the images that a store on disk remembers, and the kernels of them that were used, into the
// main context; what programs use of it is remembered in turn. Both on threads of its own, in
// nobody's way. One per worker; any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/driver_table.h"
#include "worker/device/background.h"
#include "worker/device/cold_lane.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/images/disk_store.h"
#include "worker/images/image_store.h"

namespace openmps::worker {

// What programs use while they start is written together.
inline constexpr uint64_t kRememberAfterNs = 2'000'000'000;
// Kernels are loaded for so long in one quiet moment: what else needs one waits no longer for it.
inline constexpr uint64_t kRecallMomentNs = 2'000'000;

// What a store's entries are good for: this driver and these devices, in this order.
[[nodiscard]] std::string store_key(const DriverTable& driver, const Devices& devices,
                                    const std::string& kind);
// The directory of this user's store: OPENMPS_CACHE_DIRECTORY, or "openmps" in XDG_CACHE_HOME or
// in .cache of the home directory, as far as these are this user's own; made if need be. "": there
// is to be none, and `why` says what is in the way, if something is.
[[nodiscard]] std::string store_place(std::string* why);

class ImageMemory {
 public:
  // All outlive it, but for `cold`, which may be null.
  ImageMemory(const DriverTable& driver, const Devices& devices, ContextGate& gate, ColdLanes* cold,
              ImageStore& images, DiskStore disk);
  ~ImageMemory();
  ImageMemory(const ImageMemory&) = delete;
  ImageMemory& operator=(const ImageMemory&) = delete;

  // Load what is remembered, in the background.
  void begin();
  // A program uses the kernel, on a device. Once for each that it has is enough. Cheap.
  void note_used(const std::shared_ptr<const ImageBytes>& image, CUkernel kernel, uint32_t device);
  // Write what has not been written, now: the worker ends.
  void finish();

  // For tests: until what begin() has begun is done.
  void wait();

 private:
  struct State;
  struct Ending;
  static void recall(State& state);
  static void recall(State& state, const DiskStore::Entry& entry, uint64_t* images,
                     uint64_t* kernels);
  static uint64_t load_kernels(State& state, const std::shared_ptr<LoadedLibrary>& library,
                               const UsedKernels& kernels, uint32_t device);
  static void write_soon(State& state);
  static void write(State& state);

  const std::shared_ptr<State> state_;
  Background recalling_;
  Background writing_;
};

}  // namespace openmps::worker
