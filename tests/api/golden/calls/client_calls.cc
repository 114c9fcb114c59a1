// SPDX-License-Identifier: Apache-2.0
// Generated from api/*.toml by api/generate.py; do not edit.
// Implementations of which the description says how they begin (`enter`), or all that
// they do (`get`, `returns`). On the program's threads.

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/entry/entry.h"
#include "client/entry/families.h"
#include "wire/commands/device.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace openmps::client::impl {

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(context_or_current(ctx, &session, &context));
  return synchronize_context(*session, *context);
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter_local(&session));
  if (!session->valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (major == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = session->device(dev).major;
  if (minor != nullptr) *minor = session->device(dev).minor;
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent event, CUevent hEnd) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Event* event_event = session->events.find(event);
  if (event_event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Event* event_hEnd = session->events.find(hEnd);
  if (event_hEnd == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return impl::cuEventElapsedTime(*session, pMilliseconds, *event_event, *event_hEnd);
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode after, CUgraphNode* nodes, size_t* numNodes) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  const MutexLock guard(session->graphs.lock);
  Graph* graph = session->graphs.find(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return impl::cuGraphGetNodes(*session, *graph, after, nodes, numNodes);
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, hStream, &stream));
  GraphExec* exec = session->graph_execs.find(hGraph);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session->captures.refuse(*stream));
  OPENMPS_CUDA_CHECK(check_unsafe(*session));
  return impl::cuGraphLaunch(*session, *exec, *stream);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool_argument, size_t minBytesToKeep) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  OPENMPS_CUDA_CHECK(check_unsafe(*session));
  MemoryPool* pool = session->pools.find(pool_argument);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return impl::cuMemPoolTrimTo(*session, *pool, minBytesToKeep);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, CUstream hStream) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, hStream, &stream));
  OPENMPS_CUDA_CHECK(impl::cuMemPrefetchAsync(*session, devPtr, *stream));
  return session->captures.refuse(*stream);
}

CUresult cuMemcpyPeer(CUcontext dstContext, CUcontext srcContext) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  Context* other_dstContext = nullptr;
  OPENMPS_CUDA_CHECK(session->contexts.look_up(dstContext, &other_dstContext));
  Context* other_srcContext = nullptr;
  OPENMPS_CUDA_CHECK(session->contexts.look_up(srcContext, &other_srcContext));
  OPENMPS_CUDA_CHECK(check_unsafe(*session));
  return impl::cuMemcpyPeer(*session, *other_dstContext, *other_srcContext);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return fill({dstDevice, 0, uc, 1, N, 1}, hStream);
}

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return impl::cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(enter_unsafe(&session, &context));
  if (phStream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return impl::cuStreamCreateWithPriority(*session, *context, phStream, flags, priority);
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, hStream, &stream));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  OPENMPS_CUDA_CHECK(session->captures.refuse(*stream));
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

}  // namespace openmps::client::impl
