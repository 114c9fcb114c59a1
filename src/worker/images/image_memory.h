// SPDX-License-Identifier: Apache-2.0
// Loads what programs have loaded before they ask for it (decision 22): a worker that starts loads
// the images of a store on disk, and their kernels that were used, into the main context, and
// stores in turn what programs use. On threads of its own; delays no session. One per worker; any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "api/driver_table.h"
#include "worker/device/background.h"
#include "worker/device/cold_lane.h"
#include "worker/device/context_gate.h"
#include "worker/device/devices.h"
#include "worker/images/disk_store.h"
#include "worker/images/image_store.h"

namespace openmps::worker {

// How long uses are gathered before they are written: what programs use while they start.
inline constexpr uint64_t kRememberAfterNs = 2'000'000'000;
// How long kernels are loaded in one quiescence: other callers wait no longer for theirs.
inline constexpr uint64_t kRecallMomentNs = 2'000'000;

// The key of a store's entries: this driver and these devices, in this order.
[[nodiscard]] std::string store_key(const DriverTable& driver, const Devices& devices,
                                    const std::string& kind);
// The directory of this user's store: OPENMPS_CACHE_DIRECTORY, or "openmps" in XDG_CACHE_HOME or in
// .cache of the home directory, as far as these belong to this user; made if need be. "": no store
// is wanted or possible; `why`: the reason if it is not possible.
[[nodiscard]] std::string store_place(std::string* why);

class ImageMemory {
 public:
  // All outlive it, except `cold`, which may be null.
  ImageMemory(const DriverTable& driver, const Devices& devices, ContextGate& gate, ColdLanes* cold,
              ImageStore& images, DiskStore disk);
  ~ImageMemory();
  ImageMemory(const ImageMemory&) = delete;
  ImageMemory& operator=(const ImageMemory&) = delete;

  // Load what is stored, in the background, and write what programs use from time to time. Once.
  void begin();
  // A program uses the kernel on a device. Once for each device is enough. Cheap.
  void note_used(const std::shared_ptr<const StoredImage>& image, CUkernel kernel, uint32_t device);
  // Write what has not been written yet: the worker ends.
  void finish();

  // For tests: wait until what is stored has been loaded.
  void wait();

 private:
  struct State;
  static void recall(State& state);
  static void recall(State& state, const DiskStore::Entry& entry, uint64_t* images,
                     uint64_t* kernels);
  static uint64_t load_kernels(State& state, const std::shared_ptr<LoadedLibrary>& library,
                               const UsedKernels& kernels, uint32_t device);
  void stop();
  static void write_at_times(State& state);
  static void write(State& state);

  const std::shared_ptr<State> state_;
  Background recalling_;
  std::thread writing_;
};

}  // namespace openmps::worker
