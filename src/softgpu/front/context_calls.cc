// SPDX-License-Identifier: Apache-2.0
// Contexts: primary and created ones, the thread's stack, limits, flags. Any thread.
#include <algorithm>

#include "interop/export_tables.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/lifetime/context_lifetime.h"
#include "softgpu/front/device_facts.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

template <typename Body>
CUresult with_primary(CUdevice ordinal, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    Device* device = driver.device(ordinal);
    if (device == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    return body(*device->primary);
  });
}

// One scheduling policy at most, and nothing unknown.
Status check_flags(unsigned flags) {
  unsigned policy = flags & CU_CTX_SCHED_MASK;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0 || (policy & (policy - 1)) != 0) {
    return invalid_value("unknown or contradictory context flags");
  }
  return Status();
}

CUresult create_context(CUcontext* out, unsigned flags, CUdevice ordinal) {
  return with_driver([&](Driver& driver) -> Status {
    Device* device = driver.device(ordinal);
    if (device == nullptr) return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    if (out == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(check_flags(flags));
    std::shared_ptr<Context> context =
        Context::create(driver, *device, ContextKind::kCreated, flags);
    if (context == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "too many contexts");
    Status active = activate(*context);
    if (!active.ok()) {
      driver.contexts.remove(context->handle());
      return active;
    }
    *out = context->handle();
    context_stack::push(std::move(context));
    return Status();
  });
}

// What the driver makes of a wish, as seen on an H200: whole units, and a heap that is worth the
// name.
constexpr uint64_t kStackUnit = 16;
constexpr uint64_t kPrintfUnit = 256;
constexpr uint64_t kLeastPrintf = 512 << 10;
constexpr uint64_t kMostPrintf = 2ull << 30;
constexpr uint64_t kHeapUnit = 64 << 10;
constexpr uint64_t kLeastHeap = 4 << 20;
constexpr uint64_t kHeapShare = 8;  // of the device's memory, at most

uint64_t granted_limit(const Caller& caller, CUlimit limit, uint64_t wish) {
  const auto whole = [&](uint64_t unit) { return (wish + unit - 1) / unit * unit; };
  const uint64_t memory = caller.driver.config.memory_bytes;
  wish = std::min(wish, memory);  // so that no sum overflows
  switch (limit) {
    case CU_LIMIT_STACK_SIZE: return whole(kStackUnit);
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      return std::clamp(whole(kPrintfUnit), kLeastPrintf, kMostPrintf);
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      return std::clamp(whole(kHeapUnit), kLeastHeap, std::max(kLeastHeap, memory / kHeapShare));
    default: return wish;
  }
}

uint64_t most_persisting(const Caller& caller) {
  int most = 0;
  device_attribute(caller.driver, caller.context->device(),
                   CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, &most);
  return static_cast<uint64_t>(most);
}

Status check_limit(CUlimit limit) {
  return limit >= CU_LIMIT_STACK_SIZE && limit < CU_LIMIT_MAX ? Status()
                                                              : invalid_value("no such limit");
}

// Of contexts that work within graphics; for others they are off.
bool is_of_graphics(CUlimit limit) {
  return limit == CU_LIMIT_SHMEM_SIZE || limit == CU_LIMIT_CIG_ENABLED;
}

// Where the value of a limit is kept; null: no such limit, or one that does not exist here (the
// depth of synchronisation on the device: not since compute capability 9.0).
std::atomic<uint64_t>* limit_of(Caller& caller, CUlimit limit) {
  ContextLimits& limits = caller.context->limits;
  switch (limit) {
    case CU_LIMIT_STACK_SIZE: return &caller.execution->stack_limit;
    case CU_LIMIT_PRINTF_FIFO_SIZE: return &caller.execution->printf_limit;
    case CU_LIMIT_MALLOC_HEAP_SIZE: return &caller.execution->heap_limit;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: return &limits.pending_launches;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: return &limits.l2_fetch_bytes;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: return &limits.persisting_l2_bytes;
    default: return nullptr;
  }
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return with_primary(dev, [&](Context& primary) -> Status {
    if (pctx == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(retain_primary(primary));
    *pctx = primary.handle();
    return Status();
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return with_primary(dev, [&](Context& primary) { return release_primary(primary); });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return with_primary(dev, [&](Context& primary) -> Status {
    interop_context_destroyed(primary.handle());
    reset_primary(primary);
    return Status();
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_primary(dev, [&](Context& primary) -> Status {
    *flags = primary.flags;
    *active = primary.execution() != nullptr;
    return Status();
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return with_primary(dev, [&](Context& primary) -> Status {
    OPENMPS_RETURN_IF_ERROR(check_flags(flags));
    primary.flags = flags;
    return Status();
  });
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create_context(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
  if (paramsArray == nullptr && numParams > 0) return CUDA_ERROR_INVALID_VALUE;
  if (paramsArray != nullptr && numParams >= 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create_context(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  if (ctxCreateParams != nullptr && ctxCreateParams->numExecAffinityParams != 0) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  if (ctxCreateParams != nullptr && ctxCreateParams->cigParams != nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return create_context(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return with_driver([&](Driver& driver) -> Status {
    if (ctx == nullptr) return invalid_value("no context");
    std::shared_ptr<Context> context = driver.contexts.find(ctx);
    if (context == nullptr || context->is_primary() || context->green_parent != nullptr) {
      return Status(CUDA_ERROR_INVALID_CONTEXT, "not a context that can be destroyed");
    }
    interop_context_destroyed(ctx);
    driver.contexts.remove(ctx);
    deactivate(*context);
    if (context_stack::current() == context) context_stack::pop();
    return Status();
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return with_driver([&](Driver& driver) -> Status {
    if (ctx == nullptr) return invalid_value("no context");
    std::shared_ptr<Context> context = driver.contexts.find(ctx);
    if (context == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "not a context");
    context_stack::push(std::move(context));
    return Status();
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  return with_driver([&](Driver&) -> Status {
    std::shared_ptr<Context> popped = context_stack::pop();
    if (popped == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "no context is current");
    if (pctx != nullptr) *pctx = popped->handle();
    return Status();
  });
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Context> context;
    if (ctx != nullptr) {
      context = driver.contexts.find(ctx);
      if (context == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "not a context");
    }
    context_stack::set(std::move(context));
    return Status();
  });
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  return with_driver([&](Driver&) -> Status {
    if (pctx == nullptr) return no_result();
    std::shared_ptr<Context> current = context_stack::current();
    *pctx = current == nullptr ? nullptr : current->handle();
    return Status();
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  return with_driver([&](Driver& driver) -> Status {
    if (device == nullptr) return no_result();
    Result<std::shared_ptr<Context>> context = context_or_current(driver, ctx);
    if (!context.ok()) return context.status();
    *device = (*context)->device().ordinal;
    return Status();
  });
}

CUresult cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  return with_driver([&](Driver& driver) -> Status {
    if (ctxId == nullptr) return no_result();
    Result<std::shared_ptr<Context>> context = context_or_current(driver, ctx);
    if (!context.ok()) return context.status();
    const std::shared_ptr<ExecutionContext> execution = (*context)->execution();
    if (execution == nullptr) return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "not active");
    *ctxId = context_number(**context, *execution);
    return Status();
  });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  return with_driver([&](Driver& driver) -> Status {
    if (version == nullptr) return no_result();
    Result<std::shared_ptr<Context>> context = context_or_current(driver, ctx);
    if (!context.ok()) return context.status();
    *version = (*context)->api_version;
    return Status();
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_context([&](Caller& caller) -> Status {
    *flags = caller.context->flags;
    return Status();
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return with_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(check_flags(flags));
    caller.context->flags = flags;
    return Status();
  });
}

CUresult cuCtxSynchronize() {
  return with_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_context_use(*caller.execution));
    return synchronize_context(caller.driver.scheduler, *caller.execution);
  });
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  if (ctx == nullptr) return cuCtxSynchronize();
  return with_driver([&](Driver& driver) -> Status {
    Result<std::shared_ptr<Context>> context = context_or_current(driver, ctx);
    if (!context.ok()) return context.status();
    std::shared_ptr<ExecutionContext> execution = (*context)->execution();
    if (execution == nullptr) {
      return Status(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context was destroyed");
    }
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_context_use(*execution));
    return synchronize_context(driver.scheduler, *execution);
  });
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  return with_context([&](Caller& caller) -> Status {
    if (pvalue == nullptr) return no_result();
    OPENMPS_RETURN_IF_ERROR(check_limit(limit));
    if (is_of_graphics(limit)) {
      *pvalue = 0;
      return Status();
    }
    std::atomic<uint64_t>* value = limit_of(caller, limit);
    if (value == nullptr) return Status(CUDA_ERROR_UNSUPPORTED_LIMIT, "no such limit here");
    *pvalue = value->load();
    return Status();
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_context([&](Caller& caller) -> Status {
    OPENMPS_RETURN_IF_ERROR(check_limit(limit));
    if (is_of_graphics(limit)) {
      return Status(CUDA_ERROR_NOT_PERMITTED, "a limit of contexts for graphics");
    }
    std::atomic<uint64_t>* stored = limit_of(caller, limit);
    if (stored == nullptr) return Status(CUDA_ERROR_UNSUPPORTED_LIMIT, "no such limit here");
    constexpr size_t kMostFetched = 128;  // bytes
    if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > kMostFetched) {
      return invalid_value("more than the L2 cache fetches");
    }
    if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE && value > most_persisting(caller)) {
      return invalid_value("more than stays in the L2 cache");
    }
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    constexpr size_t kMaxStack = 512 << 10;
    if (limit == CU_LIMIT_STACK_SIZE && value > kMaxStack) {
      return invalid_value("more stack than a thread can have");
    }
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && caller.execution->heap_in_use()) {
      return invalid_value("kernels use the heap already");
    }
    value = granted_limit(caller, limit, value);
    const bool waits = limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE;
    if (waits && value != stored->load()) {
      OPENMPS_RETURN_IF_ERROR(synchronize_context(caller.driver.scheduler, *caller.execution));
    }
    *stored = value;
    return Status();
  });
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return with_context([&](Caller&) -> Status {
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = kGreatestPriority;
    return Status();
  });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  return with_context([&](Caller& caller) -> Status {
    if (pconfig == nullptr) return no_result();
    *pconfig = caller.context->cache_config;
    return Status();
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  return with_context([&](Caller& caller) -> Status {
    if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
      return invalid_value("no such cache configuration");
    }
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    caller.context->cache_config = config;
    return Status();
  });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  return with_context([&](Caller& caller) -> Status {
    if (pConfig == nullptr) return no_result();
    *pConfig = caller.context->shared_config;
    return Status();
  });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return with_context([&](Caller& caller) -> Status {
    if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
        config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
      return invalid_value("no such size of a bank");
    }
    caller.context->shared_config = config;
    return Status();
  });
}

CUresult cuCtxResetPersistingL2Cache() {
  return with_context([](Caller&) { return Status(); });
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  return with_context([&](Caller& caller) -> Status {
    if (pExecAffinity == nullptr) return no_result();
    if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) {
      return Status(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "no such affinity");
    }
    pExecAffinity->type = type;
    pExecAffinity->param.smCount.val = caller.driver.config.sm_count;
    return Status();
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return with_context([&](Caller& caller) -> Status {
    std::shared_ptr<Context> peer = caller.driver.contexts.find(peerContext);
    if (peer == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "not a context");
    if (Flags != 0) return invalid_value("the flags must be 0");
    if (&peer->device() == &caller.context->device()) {
      return Status(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "a device is no peer of itself");
    }
    if (!caller.context->set_peer(*peer, true)) {
      return Status(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "the peer is accessible already");
    }
    return Status();
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  return with_context([&](Caller& caller) -> Status {
    const std::shared_ptr<Context> peer = caller.driver.contexts.find(peerContext);
    if (peer == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "not a peer context");
    if (!caller.context->set_peer(*peer, false)) {
      return Status(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "the peer is not accessible");
    }
    return Status();
  });
}
