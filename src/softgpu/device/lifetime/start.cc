// SPDX-License-Identifier: Apache-2.0
// The making of the driver and its parts. See start.h.
#include "softgpu/device/lifetime/start.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_end.h"
#include "softgpu/device/contexts/context.h"
#include "softgpu/device/contexts/green_context.h"
#include "softgpu/device/contexts/stream.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/graphs/graph_exec.h"
#include "softgpu/device/image_objects.h"
#include "softgpu/device/link.h"
#include "softgpu/device/machine/config.h"
#include "softgpu/device/memory/graph_memory.h"
#include "softgpu/device/memory/ipc.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/memory/pool.h"
#include "softgpu/device/memory/vmm.h"
#include "softgpu/device/schedule/scheduler.h"
#include "softgpu/device/work/event.h"
#include "softgpu/device/work/module.h"

namespace openmps::softgpu {
namespace {

// The driver and its parts, in the order of use.
struct Model {
  explicit Model(const Config& config);
  // `visible`: ordinals of the machine, in the program's order.
  Status open_devices(std::span<const uint32_t> visible);

  Driver driver;
  Scheduler scheduler;
  Memory memory;
  VirtualMemory virtual_memory;
  GraphMemory graph_memory;
  Ipc ipc;
  Captures captures;
};

Model::Model(const Config& config)
    : driver(config, {scheduler, memory, virtual_memory, graph_memory, ipc, captures}),
      scheduler(&driver.address_space, &driver.trace, config,
                [this](uint64_t address) { return memory.end_allocation(address); }),
      memory(&driver),
      virtual_memory(&driver),
      graph_memory(&driver),
      ipc(&driver),
      captures(&driver) {}

Status Model::open_devices(std::span<const uint32_t> visible) {
  const Config& config = driver.config;
  for (size_t i = 0; i < visible.size(); ++i) {
    Device device;
    device.ordinal = static_cast<int>(i);
    device.machine_ordinal = visible[i];
    Result<std::unique_ptr<DeviceSegment>> segment =
        DeviceSegment::attach(segment_name(config, device.machine_ordinal), config.memory_bytes);
    if (!segment.ok()) return segment.status();
    device.segment = std::move(*segment);
    driver.devices.push_back(std::move(device));
  }
  for (Device& device : driver.devices) {
    scheduler.add_device(config, device.ordinal, device.segment.get());
    device.primary = Context::create(driver, device, ContextKind::kPrimary, 0);
    if (device.primary == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "no context handle");
  }
  return Status();
}

// The driver of this process; set once, cleared for good in a forked child.
std::atomic<Driver*> the_driver{nullptr};
std::atomic<bool> forked{false};
// The parent's driver in a forked child: out of use, but never destroyed, since its locks may be
// held and its threads are not there.
std::atomic<Driver*> abandoned_driver{nullptr};
// Not of base/mutex.h: a forked child makes it anew.
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

Driver* started_driver() { return the_driver.load(std::memory_order_acquire); }

namespace {

std::atomic<bool> exiting{false};

void begin_exit() { exiting.store(true, std::memory_order_relaxed); }

// The process exits without destructors: the calls that follow find no device.
void leave_quickly() {
  begin_exit();
  stop_driver();
}

// Under the mutex, once.
Status make_driver() {
  prepare_unwinding();
  Result<Config> config = read_config();
  if (!config.ok()) return config.status();
  const Result<std::vector<uint32_t>> visible = visible_devices(*config);
  if (!visible.ok()) return visible.status();
  auto model = std::make_unique<Model>(*config);
  OPENMPS_RETURN_IF_ERROR(model->open_devices(*visible));
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  // A process that ends in the middle of its work leaves the device, too (front.cc has exit's).
  (void)at_quick_exit(leave_quickly);
  (void)atexit(begin_exit);
  the_driver.store(&model.release()->driver, std::memory_order_release);
  return Status();
}

}  // namespace

Status start_driver() {
  if (started_driver() != nullptr) return Status();
  if (forked) return Status(CUDA_ERROR_NOT_INITIALIZED, "this process was forked after cuInit");
  pthread_mutex_lock(&initialise_mutex);
  const Status status = started_driver() == nullptr ? make_driver() : Status();
  pthread_mutex_unlock(&initialise_mutex);
  return status;
}

bool is_forked() { return forked.load(std::memory_order_relaxed); }

bool is_exiting() { return exiting.load(std::memory_order_relaxed); }

void stop_driver() {
  Driver* driver = started_driver();
  if (driver == nullptr) return;
  for (Device& device : driver->devices) device.segment->detach();
}

}  // namespace openmps::softgpu
