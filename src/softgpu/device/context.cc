// SPDX-License-Identifier: Apache-2.0
// Life and death of contexts, and each thread's stack of them. See context.h.
#include "softgpu/device/context.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "softgpu/device/array.h"
#include "softgpu/device/capture.h"
#include "softgpu/device/driver.h"
#include "softgpu/device/event.h"
#include "softgpu/device/green_context.h"
#include "softgpu/device/module.h"
#include "softgpu/device/stream.h"

namespace openmps::softgpu {
namespace {

thread_local std::vector<std::shared_ptr<Context>> stack;
// Default streams of this thread, by id of the ExecutionContext or of a green context's view.
thread_local std::unordered_map<uint64_t, std::shared_ptr<Stream>> thread_streams;

}  // namespace

Context::Context(Driver& driver, Device& device, ContextKind kind, unsigned flags_at_creation)
    : flags(flags_at_creation),
      driver_(driver),
      device_(device),
      kind_(kind),
      id_(driver.new_id()) {}

std::shared_ptr<Context> Context::create(Driver& driver, Device& device, ContextKind kind,
                                         unsigned flags) {
  std::shared_ptr<Context> context(new Context(driver, device, kind, flags));
  context->handle_ = driver.contexts.add(context);
  return context->handle_ == nullptr ? nullptr : context;
}

uint64_t Context::storage_bytes() const {
  const SmLimits sm = sm_limits(driver_.config.compute_capability);
  constexpr uint64_t kHeap = 8ull << 20;
  constexpr uint64_t kPrintf = 1ull << 20;
  uint64_t local = static_cast<uint64_t>(driver_.config.sm_count) * sm.threads * kDefaultStackBytes;
  // A device smaller than the model's usual storage still runs something.
  return std::min(local + kHeap + kPrintf, driver_.config.memory_bytes / 16);
}

std::shared_ptr<ExecutionContext> Context::execution() const {
  if (green_parent != nullptr) return green_parent->execution();
  std::lock_guard lock(mutex_);
  return execution_;
}

std::shared_ptr<Stream> Context::legacy_stream() const {
  if (green_parent != nullptr) return green_default;
  std::lock_guard lock(mutex_);
  return legacy_stream_;
}

bool Context::set_peer(const Context& peer, bool enabled) {
  std::lock_guard lock(mutex_);
  return enabled ? peers_.insert(peer.id()).second : peers_.erase(peer.id()) != 0;
}

std::shared_ptr<Stream> Context::per_thread_stream() {
  std::shared_ptr<ExecutionContext> execution = this->execution();
  if (execution == nullptr) return nullptr;
  std::shared_ptr<Stream>& stream = thread_streams[green_parent != nullptr ? id_ : execution->id];
  if (stream == nullptr) stream = make_stream(shared_from_this(), execution, CU_STREAM_DEFAULT, 0);
  return stream;
}

Status Context::activate() {
  std::lock_guard lifetime(lifetime_mutex_);
  if (execution() != nullptr) return Status();
  storage_ = storage_bytes();
  OPENMPS_RETURN_IF_ERROR(device_.segment->reserve_memory(storage_));
  Status listed = device_.segment->add_context(id_, kind_);
  if (!listed.ok()) {
    device_.segment->return_memory(storage_);
    return listed;
  }
  auto execution =
      std::make_shared<ExecutionContext>(driver_.new_id(), device_.ordinal, driver_.config,
                                         &driver_.address_space, &driver_.scheduler);
  driver_.scheduler.open(execution);
  std::shared_ptr<Stream> legacy = make_legacy_stream(shared_from_this(), execution);
  std::lock_guard lock(mutex_);
  execution_ = std::move(execution);
  legacy_stream_ = std::move(legacy);
  return Status();
}

void Context::deactivate() {
  std::lock_guard lifetime(lifetime_mutex_);
  std::shared_ptr<ExecutionContext> execution = this->execution();
  if (execution == nullptr) return;
  invalidate_captures(*execution);
  driver_.scheduler.close(*execution);
  execution->flush_output();
  {
    std::lock_guard lock(mutex_);
    execution_.reset();
    legacy_stream_.reset();
  }
  {
    // The last operation of each stream refers to the execution, which refers to the streams.
    std::lock_guard lock(driver_.scheduler.mutex);
    execution->legacy->tail.reset();
    for (const auto& stream : execution->streams) stream->tail.reset();
    execution->visits.clear();
    execution->streams.clear();
  }
  auto of_this = [&](const auto& object) { return object.execution == execution; };
  driver_.streams.remove_if(of_this);
  driver_.events.remove_if(of_this);
  for (const auto& module : driver_.modules.remove_if(of_this)) module->forget_functions();
  driver_.libraries.find_if([&](Library& library) {
    library.drop_instance(execution->id);
    return false;
  });
  driver_.texture_objects.remove_if(of_this);
  driver_.surface_objects.remove_if(of_this);
  driver_.arrays.remove_if(of_this);
  driver_.mipmapped_arrays.remove_if(of_this);
  driver_.memory.release_context(this);
  const ContextLimits usual;
  limits.pending_launches = usual.pending_launches.load();
  limits.l2_fetch_bytes = usual.l2_fetch_bytes.load();
  limits.persisting_l2_bytes = usual.persisting_l2_bytes.load();
  device_.segment->remove_context(id_);
  device_.segment->return_memory(storage_);
}

Status Context::retain_primary() {
  OPENMPS_RETURN_IF_ERROR(activate());
  std::lock_guard lock(mutex_);
  ++retained_;
  return Status();
}

Status Context::release_primary() {
  {
    std::lock_guard lock(mutex_);
    if (retained_ == 0)
      return Status(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained");
    if (--retained_ > 0) return Status();
  }
  deactivate();
  return Status();
}

// Whoever retained it has his reference still, to give back, but no context: that takes a new one.
void Context::reset_primary() {
  flags = CU_CTX_SCHED_AUTO;
  deactivate();
}

namespace context_stack {

std::shared_ptr<Context> current() { return stack.empty() ? nullptr : stack.back(); }

void push(std::shared_ptr<Context> context) { stack.push_back(std::move(context)); }

std::shared_ptr<Context> pop() {
  if (stack.empty()) return nullptr;
  std::shared_ptr<Context> top = std::move(stack.back());
  stack.pop_back();
  return top;
}

void set(std::shared_ptr<Context> context) {
  if (context == nullptr) {
    if (!stack.empty()) stack.pop_back();
  } else if (stack.empty()) {
    stack.push_back(std::move(context));
  } else {
    stack.back() = std::move(context);
  }
}

}  // namespace context_stack

std::shared_ptr<ExecutionContext> find_execution(Driver& driver, const Context* context) {
  auto found = driver.contexts.find_if([&](const Context& other) { return &other == context; });
  return found.empty() ? nullptr : found.front()->execution();
}

}  // namespace openmps::softgpu
