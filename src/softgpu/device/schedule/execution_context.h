// SPDX-License-Identifier: Apache-2.0
// The part of a context that the device sees: its queues, its sticky error, and the services that
// its kernels may call. A context that is reset gets a new one; operations in flight keep the old.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/program_switches.h"
#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/machine/backing.h"
#include "softgpu/device/schedule/connections.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/schedule/parameter_buffers.h"
#include "softgpu/device/schedule/residency.h"
#include "softgpu/device/schedule/scheduler_mutex.h"

namespace openmps::softgpu {

class Driver;
struct SurfaceObject;
struct TextureObject;

inline constexpr uint64_t kDefaultStackBytes = 1024;  // of a thread, as on a GPU

// The device's view of a stream: the operation that the next one has to wait for.
struct StreamQueue {
  uint64_t id = 0;
  bool legacy = false;   // the NULL stream: a barrier with every blocking stream
  bool blocking = true;  // takes part in that barrier
  uint32_t level = 0;    // priority level, 0 is the highest
  uint32_t queue = 0;    // hardware queue
  SmSet sms;             // where its kernels may run
  uint64_t green = 0;    // id of its green context
  OperationPtr tail GUARDED_BY(scheduler_mutex);  // null or done: idle
  std::shared_ptr<StreamItems> items = std::make_shared<StreamItems>();
  // The stream was destroyed; it is kept in the list of its context until it is idle.
  bool retired GUARDED_BY(scheduler_mutex) = false;
};

class ExecutionContext final : public DeviceServices {
 public:
  // `reclaim` gives memory back once no kernel can see it any more.
  ExecutionContext(Driver& driver, int device, std::function<void(const Backing&)> reclaim);
  ~ExecutionContext() override;

  const uint64_t id;
  const int device;  // ordinal
  // CUDA_LAUNCH_BLOCKING: launches return when all work of the context is done.
  const bool launches_block = openmps::launches_block();

  // The sticky error of a kernel fault; CUDA_SUCCESS while the context is healthy.
  std::atomic<CUresult> error{CUDA_SUCCESS};

  // Calls that wait for quiescence of the context or have it; changes under scheduler_mutex.
  std::atomic<uint32_t> quiescences{0};

  bool closing GUARDED_BY(scheduler_mutex) = false;
  uint64_t outstanding GUARDED_BY(scheduler_mutex) = 0;  // operations submitted and not done
  std::shared_ptr<StreamQueue> legacy;                   // set before the context is active
  // Without the legacy stream.
  std::vector<std::shared_ptr<StreamQueue>> streams GUARDED_BY(scheduler_mutex);
  std::vector<std::deque<std::shared_ptr<KernelOperation>>> hardware_queues
      GUARDED_BY(scheduler_mutex);
  Connections connections GUARDED_BY(scheduler_mutex);
  uint32_t next_queue GUARDED_BY(scheduler_mutex) = 0;
  uint32_t take_queue_locked() REQUIRES(scheduler_mutex) {
    return next_queue++ % static_cast<uint32_t>(hardware_queues.size());
  }
  Residency residency GUARDED_BY(scheduler_mutex);
  // Ends of graph launches in streams of other contexts that run kernels of this context.
  std::vector<OperationPtr> visits GUARDED_BY(scheduler_mutex);
  std::string fault_text;  // written once, before `error`

  // Limits of cuCtxSetLimit that change what kernels can do.
  std::atomic<uint64_t> stack_limit{kDefaultStackBytes};
  std::atomic<uint64_t> heap_limit{8ull << 20};
  std::atomic<uint64_t> printf_limit{1ull << 20};
  ParameterBuffers parameters;  // of kernels that kernels launch
  // A kernel has asked for memory of the heap, whose size is final from then on.
  [[nodiscard]] bool heap_in_use() const { return heap_in_use_.load(std::memory_order_acquire); }

  // Write what kernels printed to stdout, and why asserts failed to stderr: called where CUDA does
  // so, at synchronisation.
  void flush_output();

  void print(std::string_view text) override;
  void print_failure(std::string_view text) override;
  uint64_t allocate_device_heap(uint64_t bytes) override;
  uint64_t stack_bytes() override { return stack_limit.load(std::memory_order_relaxed); }
  void free_device_heap(uint64_t address) override;
  uint64_t global_timer_ns() override;
  bool set_condition(uint64_t handle, uint32_t value) override;
  CUresult update_node(uint64_t handle, const NodeUpdate& update) override;
  std::shared_ptr<const Texture> texture(uint64_t handle) override;
  std::shared_ptr<const Image> surface(uint64_t handle) override;

  // A texture or surface object was destroyed: kernels launched before still find it.
  void retire_texture(uint64_t handle, const std::shared_ptr<TextureObject>& object);
  void retire_surface(uint64_t handle, const std::shared_ptr<SurfaceObject>& object);

 private:
  const Driver& driver_;
  AddressSpace& memory_;
  const std::function<void(const Backing&)> reclaim_;
  Mutex services_mutex_{LockRank::kSoftServices};
  std::string output_ GUARDED_BY(services_mutex_);
  std::string failures_ GUARDED_BY(services_mutex_);
  std::atomic<bool> heap_in_use_{false};
  uint64_t heap_used_ GUARDED_BY(services_mutex_) = 0;
  std::unordered_map<uint64_t, uint64_t> heap_ GUARDED_BY(services_mutex_);  // address -> bytes
  // Destroyed objects by their former handles. Operations that are not done keep them alive.
  std::unordered_map<uint64_t, std::weak_ptr<TextureObject>> retired_textures_
      GUARDED_BY(services_mutex_);
  std::unordered_map<uint64_t, std::weak_ptr<SurfaceObject>> retired_surfaces_
      GUARDED_BY(services_mutex_);
};

}  // namespace openmps::softgpu
