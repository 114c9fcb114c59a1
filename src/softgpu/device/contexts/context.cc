// SPDX-License-Identifier: Apache-2.0
// Contexts, and each thread's stack of them. See context.h.
#include "softgpu/device/contexts/context.h"

#include <utility>
#include <vector>

#include "softgpu/device/contexts/thread_value.h"
#include "softgpu/device/driver.h"

namespace openmps::softgpu {
namespace {

using Stack = std::vector<std::shared_ptr<Context>>;

Stack& own_stack() { return thread_value<Stack>(); }

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

std::shared_ptr<ExecutionContext> Context::execution() const {
  if (green_parent != nullptr) return green_parent->execution();
  const MutexLock lock(mutex_);
  return execution_;
}

std::shared_ptr<Stream> Context::legacy_stream() const {
  if (green_parent != nullptr) return green_default;
  const MutexLock lock(mutex_);
  return legacy_stream_;
}

bool Context::set_peer(const Context& peer, bool enabled) {
  const MutexLock lock(mutex_);
  return enabled ? peers_.insert(peer.id()).second : peers_.erase(peer.id()) != 0;
}

void Context::set_execution(std::shared_ptr<ExecutionContext> execution,
                            std::shared_ptr<Stream> legacy) {
  const MutexLock lock(mutex_);
  execution_ = std::move(execution);
  legacy_stream_ = std::move(legacy);
}

uint64_t context_number(const Context& context, const ExecutionContext& execution) {
  return context.is_primary() ? execution.id : context.id();
}

namespace context_stack {

std::shared_ptr<Context> current() {
  const Stack& stack = own_stack();
  return stack.empty() ? nullptr : stack.back();
}

void push(std::shared_ptr<Context> context) { own_stack().push_back(std::move(context)); }

std::shared_ptr<Context> pop() {
  Stack& stack = own_stack();
  if (stack.empty()) return nullptr;
  std::shared_ptr<Context> top = std::move(stack.back());
  stack.pop_back();
  return top;
}

void set(std::shared_ptr<Context> context) {
  Stack& stack = own_stack();
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
