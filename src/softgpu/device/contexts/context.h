// SPDX-License-Identifier: Apache-2.0
// Contexts: primary ones, which always exist and are active between retain and release, and created
// ones. A context owns streams, events, modules and memory, which are destroyed with it
// (context_lifetime.h). API threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>

#include "base/mutex.h"
#include "cuda/abi.h"
#include "softgpu/device/contexts/stream_lots.h"
#include "softgpu/device/machine/segment.h"
#include "softgpu/device/schedule/execution_context.h"

namespace openmps::softgpu {

class Driver;
struct Device;
struct Stream;
struct GreenContext;

// Values of cuCtxSetLimit that only answer cuCtxGetLimit: nothing in the model depends on them.
struct ContextLimits {
  std::atomic<uint64_t> pending_launches{2048};
  std::atomic<uint64_t> l2_fetch_bytes{64};
  std::atomic<uint64_t> persisting_l2_bytes{0};
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  // A context with a handle that is not active yet. Null: no handle is left.
  static std::shared_ptr<Context> create(Driver& driver, Device& device, ContextKind kind,
                                         unsigned flags);

  // The device's side; null while it is not active.
  [[nodiscard]] std::shared_ptr<ExecutionContext> execution() const;
  [[nodiscard]] std::shared_ptr<Stream> legacy_stream() const;
  // Access to the memory of another device's context, which kernels have in any case. False: the
  // access is already as wanted.
  bool set_peer(const Context& peer, bool enabled);

  [[nodiscard]] Driver& driver() const { return driver_; }
  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] CUcontext handle() const { return handle_; }
  [[nodiscard]] ContextKind kind() const { return kind_; }
  [[nodiscard]] bool is_primary() const { return kind_ == ContextKind::kPrimary; }
  [[nodiscard]] uint64_t id() const { return id_; }

  std::atomic<unsigned> flags{0};
  std::atomic<CUfunc_cache> cache_config{CU_FUNC_CACHE_PREFER_NONE};
  std::atomic<CUsharedconfig> shared_config{CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE};
  unsigned api_version = 13000;
  ContextLimits limits;
  // A green context has lots of its own.
  const std::shared_ptr<StreamLots> stream_lots = std::make_shared<StreamLots>();

  // The view of a green context: same execution as its primary, its own handle, default streams and
  // SMs.
  std::weak_ptr<GreenContext> green;
  std::shared_ptr<Context> green_parent;
  std::shared_ptr<Stream> green_default;
  // The primary context if this is the view of a green one, else this.
  [[nodiscard]] const Context& owner() const { return green_parent ? *green_parent : *this; }

  // For context_lifetime.h.
  struct Lifetime {
    Mutex order{LockRank::kSoftContextOrder};  // of activation and deactivation
    uint64_t storage GUARDED_BY(order) = 0;    // reserved at activation
    Mutex mutex{LockRank::kSoftContextRetains};
    uint32_t retained GUARDED_BY(mutex) = 0;
  };
  Lifetime lifetime;
  // Makes the context active, or with nulls inactive.
  void set_execution(std::shared_ptr<ExecutionContext> execution, std::shared_ptr<Stream> legacy);

 private:
  Context(Driver& driver, Device& device, ContextKind kind, unsigned flags_at_creation);

  Driver& driver_;
  Device& device_;
  const ContextKind kind_;
  const uint64_t id_;
  CUcontext handle_ = nullptr;

  mutable Mutex mutex_{LockRank::kSoftContext};
  std::set<uint64_t> peers_ GUARDED_BY(mutex_);  // ids of contexts
  std::shared_ptr<ExecutionContext> execution_ GUARDED_BY(mutex_);
  std::shared_ptr<Stream> legacy_stream_ GUARDED_BY(mutex_);
};

// cuCtxGetId's number of the context while that is active: a primary context that was reset and
// retained is another one.
uint64_t context_number(const Context& context, const ExecutionContext& execution);

// The calling thread's stack of current contexts. current() is null if it is empty.
namespace context_stack {
std::shared_ptr<Context> current();
void push(std::shared_ptr<Context> context);
// Null if the stack was empty.
std::shared_ptr<Context> pop();
// Replace the top; null pops it.
void set(std::shared_ptr<Context> context);
}  // namespace context_stack

// The execution of the live context at that address; null if that context was destroyed.
std::shared_ptr<ExecutionContext> find_execution(Driver& driver, const Context* context);

}  // namespace openmps::softgpu
