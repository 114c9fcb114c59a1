// SPDX-License-Identifier: Apache-2.0
// Resources of devices and green contexts: implementations behind the generated entry points, on
// the program's threads. What a resource is and how it splits is the worker's driver's answer.

#include <algorithm>
#include <cstring>
#include <string>

#include "api/client_handlers.h"
#include "base/mutex.h"
#include "client/entry/entry.h"
#include "client/session/context.h"
#include "wire/commands/green.h"

namespace openmps::client {
namespace {

// `green` null: all of the device, but at most so many SMs (0: any number).
CUresult get_resource(Session& session, uint32_t wire_device, const GreenContext* green,
                      uint32_t sms, CUdevResourceType type, CUdevResource* resource) {
  wire::DeviceResource::Reply reply;
  const CUresult result =
      session.channel.call(wire::DeviceResource{wire_device, green != nullptr ? green->id : 0,
                                                static_cast<uint32_t>(type), sms},
                           &reply);
  if (result == CUDA_SUCCESS) *resource = reply.resource;
  return result;
}

CUresult read_split(Session& session, uint32_t first, uint32_t count, CUdevResource* resources) {
  while (count != 0) {
    wire::ReplyOf<wire::ResourceRead> reply;
    OPENMPS_CUDA_CHECK(session.channel.call(wire::ResourceRead{first}, {}, &reply));
    // More than wanted may come; it is cut.
    const uint32_t came = std::min(reply->count, count);
    if (came == 0) return CUDA_ERROR_MPS_RPC_FAILURE;
    std::copy_n(reply.tail().resources.begin(), came, resources);
    first += came;
    resources += came;
    count -= came;
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

// ---- Resources ----------------------------------------------------------------------------------

CUresult cuDeviceGetDevResource(Session& session, uint32_t device, CUdevResource* resource,
                                CUdevResourceType type) {
  return get_resource(session, session.devices[device], nullptr, 0, type, resource);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  if (hCtx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;  // not the current one (measured, 580)
  Session* session = nullptr;
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(context_or_current(hCtx, &session, &context));
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return get_resource(*session, context->wire_device, context->green, context->sms, type, resource);
}

CUresult cuGreenCtxGetDevResource(Session& session, GreenContext& green, CUdevResource* resource,
                                  CUdevResourceType type) {
  return get_resource(session, green.view->wire_device, &green, 0, type, resource);
}

CUresult cuDevSmResourceSplitByCount(Session& session, CUdevResource* result,
                                     unsigned int* nbGroups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned int useFlags,
                                     unsigned int minCount) {
  const bool counts = result == nullptr;
  const bool with_remainder = !counts && remaining != nullptr;
  const uint32_t wanted = counts ? 0 : std::min(*nbGroups, wire::kMaxResourceGroups);
  const MutexLock guard(session.resource_lock);
  wire::ResourceSplit::Reply reply{};
  OPENMPS_CUDA_CHECK(
      session.channel.call(wire::ResourceSplit{*input, wanted, useFlags, minCount, counts ? 1u : 0u,
                                               with_remainder ? 1u : 0u},
                           &reply));
  if (!counts && reply.groups > wanted) return CUDA_ERROR_MPS_RPC_FAILURE;
  *nbGroups = reply.groups;
  if (counts) return CUDA_SUCCESS;
  OPENMPS_CUDA_CHECK(read_split(session, 0, reply.groups, result));
  return with_remainder ? read_split(session, reply.groups, 1, remaining) : CUDA_SUCCESS;
}

// Equal resources get one descriptor: CUDA has no call that destroys a descriptor.
CUresult cuDevResourceGenerateDesc(Session& session, CUdevResourceDesc* phDesc,
                                   CUdevResource* resources, unsigned int nbResources) {
  if (resources == nullptr || nbResources == 0 || nbResources > wire::kMaxDescribed) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::string key(reinterpret_cast<const char*>(resources), nbResources * sizeof(*resources));
  const MutexLock guard(session.resource_lock);
  ResourceDescriptor*& known = session.known_descriptors[key];
  if (known == nullptr) {
    const CUresult result = session.descriptors.make(&known, [&](ResourceDescriptor& made) {
      for (unsigned int i = 0; i < nbResources; ++i) made.sms += resources[i].sm.smCount;
      return session.channel.call(wire::ResourceDescribe{made.id}, {{resources, nbResources}});
    });
    if (result != CUDA_SUCCESS) {
      session.known_descriptors.erase(key);
      return result;
    }
  }
  *phDesc = known->as<CUdevResourceDesc>();
  return CUDA_SUCCESS;
}

// ---- Green contexts -----------------------------------------------------------------------------

CUresult cuGreenCtxCreate(Session& session, CUgreenCtx* phCtx, CUdevResourceDesc desc, uint32_t dev,
                          unsigned int flags) {
  const ResourceDescriptor* descriptor = session.descriptors.find(desc);
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock guard(session.contexts.lock);
  GreenContext* green = nullptr;
  OPENMPS_CUDA_CHECK(create_green_locked(session, *descriptor, dev, flags, &green));
  *phCtx = green->as<CUgreenCtx>();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(Session& session, GreenContext& green) {
  const MutexLock guard(session.contexts.lock);
  const uint32_t device = green.view->device;
  const CUresult result = destroy_green_locked(session, &green);
  const CUresult released = release_primary_locked(session, device);
  return result != CUDA_SUCCESS ? result : released;
}

// NULL means the green context that is current.
CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  Session* session = nullptr;
  GreenContext* green = nullptr;
  if (greenCtx == nullptr) {
    Context* context = nullptr;
    OPENMPS_CUDA_CHECK(enter(&session, &context));
    green = context->green;
    if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  } else {
    OPENMPS_CUDA_CHECK(enter(&session));
    green = session->greens.find(greenCtx);
    if (green == nullptr) return missing_green(greenCtx);
  }
  if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *greenCtxId = green->unique_id;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(Session& session, CUstream* phStream, GreenContext& green,
                                unsigned int flags, int priority) {
  if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  return session.streams.create_for_program(*green.view, flags, priority, phStream);
}

}  // namespace impl
}  // namespace openmps::client
