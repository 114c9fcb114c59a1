// SPDX-License-Identifier: Apache-2.0
// cuCtx* and cuDevicePrimaryCtx*: implementations behind the generated entry points, on the
// program's threads. Everything is local except what a reset or a synchronisation waits for.
#include <algorithm>

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/session/context.h"
#include "client/session/enter.h"
#include "wire/commands/device.h"

namespace openmps::client {
namespace {

bool valid_flags(unsigned int flags) {
  const unsigned int scheduling = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<unsigned int>(CU_CTX_FLAGS_MASK)) == 0 &&
         (scheduling & (scheduling - 1)) == 0;
}

// No client's cuCtxSetLimit changes it, nor does the driver (decision 12). A transformer of
// PyTorch's asks for CU_LIMIT_CIG_ENABLED before each of its products.
bool is_fixed(CUlimit limit) {
  switch (limit) {
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: return true;
    default: return false;
  }
}

CUresult make_current(Session& session, CUcontext* made, unsigned int flags, uint32_t device,
                      uint32_t sms) {
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(create_context(session, device, flags, sms, &context));
  this_thread().contexts.push_back(context->handle);
  *made = context->as<CUcontext>();
  return CUDA_SUCCESS;
}

// The SMs that execution affinity speaks of; of two the later counts (CUDA documentation). A device
// that makes no parts is as one without MPS.
CUresult read_affinity(const Session& session, uint32_t device, const CUexecAffinityParam* wished,
                       int count, uint32_t* sms) {
  if (count <= 0) return CUDA_SUCCESS;
  if (wished == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (session.devices.steps(device).step == 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  for (int i = 0; i < count; ++i) {
    if (wished[i].type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) {
      return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    if (wished[i].param.smCount.val == 0) return CUDA_ERROR_INVALID_VALUE;
    *sms = wished[i].param.smCount.val;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult synchronize_context(Session& session, Context& context) {
  OPENMPS_CUDA_CHECK(session.captures.refuse(context));
  OPENMPS_CUDA_CHECK(session.synchronize(&context));
  return session.channel.take_async_error();
}

namespace impl {

CUresult cuDevicePrimaryCtxRetain(Session& session, CUcontext* pctx, uint32_t dev) {
  const MutexLock guard(session.contexts.lock);
  Context* context = session.contexts.primary[dev];
  retain_primary_locked(session, *context);
  *pctx = context->as<CUcontext>();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(Session& session, uint32_t dev) {
  const MutexLock guard(session.contexts.lock);
  return release_primary_locked(session, dev);
}

CUresult cuDevicePrimaryCtxReset_v2(Session& session, uint32_t dev) {
  const MutexLock guard(session.contexts.lock);
  Context* context = session.contexts.primary[dev];
  // A caller of retain still has a reference to release, but no context: that takes a new
  // one.
  context->flags.store(CU_CTX_SCHED_AUTO, std::memory_order_relaxed);
  if (!context->active.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const CUresult result = destroy_context_objects(session, *context);
  context->active.store(false, std::memory_order_release);
  return result;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(Session& session, uint32_t dev, unsigned int flags) {
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  session.contexts.primary[dev]->flags.store(flags, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(Session& session, CUcontext* pctx, unsigned int flags, uint32_t dev) {
  return make_current(session, pctx, flags, dev, 0);
}

CUresult cuCtxCreate_v3(Session& session, CUcontext* pctx, CUexecAffinityParam* paramsArray,
                        int numParams, unsigned int flags, uint32_t dev) {
  uint32_t sms = 0;
  OPENMPS_CUDA_CHECK(read_affinity(session, dev, paramsArray, numParams, &sms));
  return make_current(session, pctx, flags, dev, sms);
}

CUresult cuCtxCreate_v4(Session& session, CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                        unsigned int flags, uint32_t dev) {
  uint32_t sms = 0;
  if (ctxCreateParams != nullptr) {
    OPENMPS_CUDA_CHECK(read_affinity(session, dev, ctxCreateParams->execAffinityParams,
                                     ctxCreateParams->numExecAffinityParams, &sms));
    if (ctxCreateParams->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return make_current(session, pctx, flags, dev, sms);
}

CUresult cuCtxDestroy_v2(Session& session, Context& context) {
  if (context.primary || context.green != nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const MutexLock guard(session.contexts.lock);
  if (!session.contexts.retire(&context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const CUresult result = destroy_context_objects(session, context);
  // If it is current here it is popped; other threads that have it current get
  // CUDA_ERROR_CONTEXT_IS_DESTROYED.
  std::vector<uint64_t>& stack = this_thread().contexts;
  if (!stack.empty() && stack.back() == context.handle) stack.pop_back();
  session.contexts.recycle(&context);
  return result;
}

CUresult cuCtxAttach(Session&, Context& context, CUcontext* pctx, unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  context.attached.fetch_add(1, std::memory_order_relaxed);
  *pctx = context.as<CUcontext>();
  return CUDA_SUCCESS;
}

// The last of a context's users destroys it; it has to be current, as CUDA documents.
CUresult cuCtxDetach(Session&, Context& context, CUcontext ctx) {
  if (ctx == nullptr || context.as<CUcontext>() != ctx) return CUDA_ERROR_INVALID_CONTEXT;
  uint32_t attached = context.attached.load(std::memory_order_relaxed);
  while (attached != 0) {
    if (context.attached.compare_exchange_weak(attached, attached - 1)) return CUDA_SUCCESS;
  }
  return impl::cuCtxDestroy_v2(ctx);
}

CUresult cuCtxSetCacheConfig(Session&, Context& context, CUfunc_cache config) {
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  context.cache_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(Session&, Context& context, CUsharedconfig config) {
  if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
      config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  context.shared_config = config;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(Session&, CUcontext* pctx) {
  const ThreadState& thread = this_thread();
  *pctx = thread.contexts.empty() ? nullptr : reinterpret_cast<CUcontext>(thread.contexts.back());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(Session& session, CUcontext ctx) {
  std::vector<uint64_t>& stack = this_thread().contexts;
  if (ctx == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(session.contexts.look_up(ctx, &context));
  if (stack.empty()) {
    stack.push_back(context->handle);
  } else {
    stack.back() = context->handle;
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(Session& session, CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(session.contexts.look_up(ctx, &context));
  this_thread().contexts.push_back(context->handle);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(Session&, CUcontext* pctx) {
  std::vector<uint64_t>& stack = this_thread().contexts;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  // Also answered for a primary context that is not active yet: CUDA's run time asks early.
  Session* session = nullptr;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  const ThreadState& thread = this_thread();
  if (thread.contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  return impl::cuCtxGetDevice_v2(device, reinterpret_cast<CUcontext>(thread.contexts.back()));
}

CUresult cuCtxSetFlags(Session&, Context& context, unsigned int flags) {
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  context.flags.store(flags, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(Session&, Context& context, unsigned long long* ctxId) {
  if (!context.active.load(std::memory_order_acquire)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *ctxId = context.unique_id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(Session& session, Context& context,
                              CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  pExecAffinity->type = type;
  pExecAffinity->param.smCount.val = session.contexts.sms(context);
  return CUDA_SUCCESS;
}

// Limits are those of the context that the worker shares between its clients.
CUresult cuCtxGetLimit(Session& session, Context& context, size_t* value, CUlimit limit) {
  const bool keeps = session.keeps_answers && is_fixed(limit);
  std::atomic<uint64_t>* const fixed = keeps ? &context.fixed_limits[limit] : nullptr;
  if (fixed != nullptr) {
    const uint64_t known = fixed->load(std::memory_order_relaxed);
    if (known != 0) {
      *value = known - 1;
      return CUDA_SUCCESS;
    }
  }
  wire::LimitGet::Reply reply;
  OPENMPS_CUDA_CHECK(session.channel.call(
      wire::LimitGet{context.wire_device, static_cast<uint32_t>(limit)}, &reply));
  *value = reply.value;
  if (fixed != nullptr) fixed->store(reply.value + 1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(Session& session, Context& context, CUlimit limit, size_t value) {
  constexpr size_t kMostFetched = 128;  // bytes, by the L2 cache
  const int persisting =
      session.device(context.device).attribute[CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE];
  if ((limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > kMostFetched) ||
      (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE && value > static_cast<size_t>(persisting))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (limit == CU_LIMIT_STACK_SIZE) {
    size_t now = 0;
    OPENMPS_CUDA_CHECK(impl::cuCtxGetLimit(session, context, &now, limit));
    // The driver waits for the context's work before it grows a stack: of ours, here.
    if (value > now) OPENMPS_CUDA_CHECK(synchronize_context(session, context));
  }
  const wire::LimitRaise command{context.wire_device, static_cast<uint32_t>(limit), value};
  return session.memory.retry_after_reclaim([&] { return session.channel.call(command); });
}

// All memory of the peer's device becomes accessible: the worker has one context on each.
CUresult cuCtxEnablePeerAccess(Session& session, Context& context, CUcontext peerContext,
                               unsigned int Flags) {
  Context* peer = nullptr;
  OPENMPS_CUDA_CHECK(session.contexts.look_up(peerContext, &peer));
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (peer->device == context.device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  int can = 0;
  OPENMPS_CUDA_CHECK(impl::cuDeviceCanAccessPeer(&can, static_cast<CUdevice>(context.device),
                                                 static_cast<CUdevice>(peer->device)));
  if (can == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const uint32_t bit = 1u << peer->device;
  if ((context.peers.fetch_or(bit) & bit) != 0) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  const CUresult result =
      session.channel.call(wire::PeerAccess{context.wire_device, peer->wire_device, 1});
  if (result != CUDA_SUCCESS) context.peers.fetch_and(~bit);
  return result;
}

// The memory stays accessible: work of another context of the device may use it.
CUresult cuCtxDisablePeerAccess(Session& session, Context& context, CUcontext peerContext) {
  Context* peer = nullptr;
  OPENMPS_CUDA_CHECK(session.contexts.look_up(peerContext, &peer));
  const uint32_t bit = 1u << peer->device;
  const bool had = (context.peers.fetch_and(~bit) & bit) != 0;
  return had ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace impl
}  // namespace openmps::client
