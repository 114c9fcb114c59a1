// SPDX-License-Identifier: Apache-2.0
// Services of a context to its kernels: device printf, the heap of malloc(), the global timer.
// Called by workers from inside the engine, and by API threads (flush_output).
#include "softgpu/device/schedule/execution_context.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "softgpu/device/driver.h"
#include "softgpu/device/image_objects.h"
#include "softgpu/device/schedule/device_node.h"

namespace openmps::softgpu {
namespace {

constexpr uint64_t kHeapAlignment = 16;  // of malloc() in a kernel, as on a GPU

}  // namespace

ExecutionContext::ExecutionContext(Driver& driver, int device_ordinal,
                                   std::function<void(const Backing&)> reclaim)
    : id(driver.new_id()),
      device(device_ordinal),
      hardware_queues(driver.config.hardware_queues),
      connections(driver.config.connections),
      parameters(&driver.address_space, device_ordinal),
      driver_(driver),
      memory_(driver.address_space),
      reclaim_(std::move(reclaim)) {}

ExecutionContext::~ExecutionContext() {
  for (const auto& [address, bytes] : heap_) {
    MappedRange range;
    memory_.remove(address, &range);
    free(reinterpret_cast<void*>(address));
  }
}

void ExecutionContext::print(std::string_view text) {
  const MutexLock lock(services_mutex_);
  // The FIFO of a GPU wraps around and loses output; ours keeps the first part.
  if (output_.size() + text.size() <= printf_limit.load()) output_.append(text);
}

void ExecutionContext::print_failure(std::string_view text) {
  const MutexLock lock(services_mutex_);
  if (failures_.size() + text.size() <= printf_limit.load()) failures_.append(text);
}

void ExecutionContext::flush_output() {
  std::string text;
  std::string failures;
  {
    const MutexLock lock(services_mutex_);
    text.swap(output_);
    failures.swap(failures_);
  }
  if (!text.empty()) {
    fwrite(text.data(), 1, text.size(), stdout);
    fflush(stdout);
  }
  if (!failures.empty()) fwrite(failures.data(), 1, failures.size(), stderr);
}

uint64_t ExecutionContext::allocate_device_heap(uint64_t bytes) {
  const MutexLock lock(services_mutex_);
  heap_in_use_.store(true, std::memory_order_release);
  uint64_t limit = heap_limit.load();
  if (bytes == 0 || bytes > limit) return 0;
  uint64_t rounded = (bytes + kHeapAlignment - 1) / kHeapAlignment * kHeapAlignment;
  if (heap_used_ + rounded > limit) return 0;
  uint64_t address = reinterpret_cast<uint64_t>(aligned_alloc(kHeapAlignment, rounded));
  if (address == 0) return 0;
  MappedRange range;
  range.begin = address;
  range.bytes = rounded;
  range.end = address + rounded;
  range.kind = RangeKind::kInternal;
  range.device = device;
  if (!memory_.insert(range).ok()) {
    free(reinterpret_cast<void*>(address));
    return 0;
  }
  heap_used_ += rounded;
  heap_.emplace(address, rounded);
  return address;
}

void ExecutionContext::free_device_heap(uint64_t address) {
  const MutexLock lock(services_mutex_);
  auto found = heap_.find(address);
  if (found == heap_.end()) return;  // a wild free in a kernel: ignored, as it can't be reported
  MappedRange range;
  memory_.remove(address, &range);
  heap_used_ -= found->second;
  heap_.erase(found);
  // The caller runs inside a kernel, which is a reader of the range: the memory is freed later.
  reclaim_(Backing{address, range.bytes, false, nullptr});
}

uint64_t ExecutionContext::global_timer_ns() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

bool ExecutionContext::set_condition(uint64_t handle, uint32_t value) {
  const std::shared_ptr<Condition> condition = driver_.conditions.find(handle);
  if (condition == nullptr || condition->execution.get() != this) return false;
  condition->value.store(value, std::memory_order_relaxed);  // read when the kernel is done
  return true;
}

CUresult ExecutionContext::update_node(uint64_t handle, const NodeUpdate& update) {
  const auto found = driver_.device_nodes.find(reinterpret_cast<CUgraphDeviceNode>(handle));
  const std::shared_ptr<DeviceNode> node = found == nullptr ? nullptr : found->lock();
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE : node->update(update);
}

namespace {

template <class T>
void forget_expired(std::unordered_map<uint64_t, std::weak_ptr<T>>* retired) {
  std::erase_if(*retired, [](const auto& entry) { return entry.second.expired(); });
}

template <class T>
std::shared_ptr<T> find_retired(const std::unordered_map<uint64_t, std::weak_ptr<T>>& retired,
                                uint64_t handle) {
  const auto found = retired.find(handle);
  return found == retired.end() ? nullptr : found->second.lock();
}

}  // namespace

void ExecutionContext::retire_texture(uint64_t handle,
                                      const std::shared_ptr<TextureObject>& object) {
  const MutexLock lock(services_mutex_);
  forget_expired(&retired_textures_);
  retired_textures_[handle] = object;
}

void ExecutionContext::retire_surface(uint64_t handle,
                                      const std::shared_ptr<SurfaceObject>& object) {
  const MutexLock lock(services_mutex_);
  forget_expired(&retired_surfaces_);
  retired_surfaces_[handle] = object;
}

// An object of another context is nothing to this one's kernels.
std::shared_ptr<const Texture> ExecutionContext::texture(uint64_t handle) {
  std::shared_ptr<TextureObject> object = driver_.texture_objects.find(handle);
  if (object == nullptr) {
    const MutexLock lock(services_mutex_);
    object = find_retired(retired_textures_, handle);
  }
  if (object == nullptr || object->execution.get() != this) return nullptr;
  return {object, &object->texture};
}

std::shared_ptr<const Image> ExecutionContext::surface(uint64_t handle) {
  std::shared_ptr<SurfaceObject> object = driver_.surface_objects.find(handle);
  if (object == nullptr) {
    const MutexLock lock(services_mutex_);
    object = find_retired(retired_surfaces_, handle);
  }
  if (object == nullptr || object->execution.get() != this) return nullptr;
  return {object, &object->image};
}

}  // namespace openmps::softgpu
