// SPDX-License-Identifier: Apache-2.0
// Creation of the Driver and its fate across fork and exit. Called by the front's cuInit.
#include "softgpu/device/driver.h"

#include <pthread.h>

#include <mutex>

#include "softgpu/device/context.h"
#include "softgpu/device/device_executor.h"
#include "softgpu/device/event.h"
#include "softgpu/device/graph.h"
#include "softgpu/device/green_context.h"
#include "softgpu/device/module.h"
#include "softgpu/device/pool.h"
#include "softgpu/device/stream.h"

namespace openmps::softgpu {
namespace {

// The driver of this process; set once, cleared for good in a forked child.
std::atomic<Driver*> the_driver{nullptr};
std::atomic<bool> forked{false};
// The parent's driver in a forked child: out of use, but never destroyed, since its locks may be
// held and its threads are not there.
std::atomic<Driver*> abandoned_driver{nullptr};
pthread_mutex_t initialise_mutex = PTHREAD_MUTEX_INITIALIZER;

// Runs in the child: its threads, its locks' owners and its turn in the segment are the parent's.
void after_fork_in_child() {
  if (Driver* driver = the_driver.exchange(nullptr)) {
    abandoned_driver = driver;
    forked = true;
  }
  initialise_mutex = PTHREAD_MUTEX_INITIALIZER;
}

}  // namespace

Driver* Driver::get() { return the_driver.load(std::memory_order_acquire); }

Status Driver::initialise() {
  if (get() != nullptr) return Status();
  if (forked) return Status(CUDA_ERROR_NOT_INITIALIZED, "this process was forked after cuInit");
  pthread_mutex_lock(&initialise_mutex);
  Status status;
  if (get() == nullptr) {
    Result<Config> config = read_config();
    if (!config.ok()) {
      status = config.status();
    } else if (config->visible.empty()) {
      status = Status(CUDA_ERROR_NO_DEVICE, "CUDA_VISIBLE_DEVICES hides every device");
    } else {
      std::unique_ptr<Driver> driver(new Driver(*config));
      status = driver->open_devices();
      if (status.ok()) {
        pthread_atfork(nullptr, nullptr, after_fork_in_child);
        // A process that ends in the middle of its work leaves the device, too (front.cc has
        // exit's).
        (void)at_quick_exit(shut_down);
        the_driver.store(driver.release(), std::memory_order_release);
      }
    }
  }
  pthread_mutex_unlock(&initialise_mutex);
  return status;
}

void Driver::shut_down() {
  Driver* driver = get();
  if (driver == nullptr) return;
  for (Device& device : driver->devices) device.segment->detach();
}

Driver::Driver(const Config& read)
    : config(read),
      scheduler(&address_space, &trace, read.stream_items),
      memory(this),
      virtual_memory(this),
      graph_memory(this),
      ipc(this) {
  trace.open(config.trace_path);
}

Status Driver::open_devices() {
  for (size_t i = 0; i < config.visible.size(); ++i) {
    Device device;
    device.ordinal = static_cast<int>(i);
    device.machine_ordinal = config.visible[i];
    Result<std::unique_ptr<DeviceSegment>> segment =
        DeviceSegment::attach(segment_name(config, device.machine_ordinal), config.memory_bytes);
    if (!segment.ok()) return segment.status();
    device.segment = std::move(*segment);
    devices.push_back(std::move(device));
  }
  for (Device& device : devices) {
    scheduler.add_executor(std::make_unique<DeviceExecutor>(
        config, device.ordinal, &scheduler, device.segment.get(),
        [this](uint64_t address) { memory.end_allocation_locked(address); }));
    device.primary = Context::create(*this, device, ContextKind::kPrimary, 0);
    if (device.primary == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "no context handle");
  }
  return Status();
}

}  // namespace openmps::softgpu
