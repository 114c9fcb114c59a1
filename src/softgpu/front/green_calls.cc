// SPDX-License-Identifier: Apache-2.0
// Device resources and green contexts. Any thread.
#include <algorithm>
#include <cstring>

#include "softgpu/device/contexts/green_context.h"
#include "softgpu/device/issue/event_issue.h"
#include "softgpu/device/lifetime/green_lifetime.h"
#include "softgpu/device/work/event.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// What a CUdevResource carries beside its public count, in its private bytes. Values come back from
// the program: everything is checked again.
struct ResourceBody {
  uint64_t magic;
  uint32_t device;
  uint32_t reserved;
  uint64_t sms[kMaxSms / 64];
};
constexpr uint64_t kResourceMagic = 0x736d7367707531ull;
static_assert(sizeof(ResourceBody) <= sizeof(CUdevResource::_internal_padding));

CUdevResource make_resource(int device, const SmSet& sms) {
  CUdevResource resource{};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource.sm = {static_cast<unsigned>(sms.count()), kSmGranularity, kSmGranularity};
  ResourceBody body{};
  body.magic = kResourceMagic;
  body.device = static_cast<uint32_t>(device);
  for (uint32_t i = 0; i < kMaxSms; ++i) {
    if (sms[i]) body.sms[i / 64] |= 1ull << (i % 64);
  }
  memcpy(resource._internal_padding, &body, sizeof body);
  return resource;
}

Status read_resource(const Driver& driver, const CUdevResource& resource,
                     ResourceDescriptor* descriptor) {
  ResourceBody body;
  memcpy(&body, resource._internal_padding, sizeof body);
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) {
    return Status(CUDA_ERROR_INVALID_RESOURCE_TYPE, "not an SM resource");
  }
  if (body.magic != kResourceMagic || body.device >= driver.devices.size()) {
    return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "not a resource of a device");
  }
  descriptor->device = static_cast<int>(body.device);
  descriptor->sms.reset();
  for (uint32_t i = 0; i < driver.config.sm_count; ++i) {
    if ((body.sms[i / 64] >> (i % 64) & 1) != 0) descriptor->sms.set(i);
  }
  return descriptor->sms.any() ? Status()
                               : Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "no SMs");
}

// The first `count` SMs of a set, which they leave.
SmSet take_sms(SmSet* from, uint32_t count) {
  SmSet taken;
  for (uint32_t i = 0; i < kMaxSms && taken.count() < count; ++i) {
    if (!(*from)[i]) continue;
    taken.set(i);
    from->reset(i);
  }
  return taken;
}

template <typename Body>
CUresult with_green(CUgreenCtx handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<GreenContext> green = driver.green_contexts.find(handle);
    if (green == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "not a green context");
    return body(driver, green);
  });
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  return with_driver([&](Driver& driver) -> Status {
    if (driver.device(device) == nullptr) {
      return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    }
    if (resource == nullptr) return no_result();
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
      return Status(CUDA_ERROR_INVALID_RESOURCE_TYPE, "only SMs are a resource");
    }
    *resource = make_resource(device, all_sms(driver.config));
    return Status();
  });
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  return with_driver([&](Driver& driver) -> Status {
    if (hCtx == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "no context");
    Result<std::shared_ptr<Context>> context = context_or_current(driver, hCtx);
    if (!context.ok()) return context.status();
    if (resource == nullptr) return no_result();
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
      return Status(CUDA_ERROR_INVALID_RESOURCE_TYPE, "only SMs are a resource");
    }
    std::shared_ptr<GreenContext> green = (*context)->green.lock();
    *resource = make_resource((*context)->device().ordinal,
                              green != nullptr ? green->sms : all_sms(driver.config));
    return Status();
  });
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned int useFlags, unsigned int minCount) {
  return with_driver([&](Driver& driver) -> Status {
    // Unknown flags are for nothing, as on an H200.
    if (nbGroups == nullptr || input == nullptr) return invalid_value("a bad argument");
    ResourceDescriptor available;
    OPENMPS_RETURN_IF_ERROR(read_resource(driver, *input, &available));
    uint32_t step =
        (useFlags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0 ? 1 : kSmGranularity;
    uint32_t group = std::max(1u, minCount);
    group = (group + step - 1) / step * step;
    uint32_t most = static_cast<uint32_t>(available.sms.count()) / group;
    if (most == 0) {
      return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "fewer SMs than one group needs");
    }
    uint32_t groups = result == nullptr ? most : std::min(most, *nbGroups);
    for (uint32_t i = 0; i < groups && result != nullptr; ++i) {
      result[i] = make_resource(available.device, take_sms(&available.sms, group));
    }
    *nbGroups = groups;
    if (remaining != nullptr && result != nullptr) {
      *remaining = make_resource(available.device, available.sms);
      if (available.sms.none()) remaining->type = CU_DEV_RESOURCE_TYPE_INVALID;
    }
    return Status();
  });
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                   unsigned int nbResources) {
  return with_driver([&](Driver& driver) -> Status {
    if (phDesc == nullptr || resources == nullptr || nbResources == 0) {
      return invalid_value("no resources");
    }
    auto all = std::make_shared<ResourceDescriptor>();
    for (unsigned i = 0; i < nbResources; ++i) {
      ResourceDescriptor one;
      OPENMPS_RETURN_IF_ERROR(read_resource(driver, resources[i], &one));
      if (i > 0 && one.device != all->device) {
        return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "resources of several devices");
      }
      all->device = one.device;
      all->sms |= one.sms;
    }
    *phDesc = driver.resource_descriptors.add(all);
    return Status();
  });
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  return with_driver([&](Driver& driver) -> Status {
    if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) {
      return invalid_value("a bad argument");
    }
    std::shared_ptr<ResourceDescriptor> descriptor = driver.resource_descriptors.find(desc);
    if (descriptor == nullptr) return invalid_value("not a resource descriptor");
    if (driver.device(dev) == nullptr || descriptor->device != dev) {
      return Status(CUDA_ERROR_INVALID_DEVICE, "the resources are another device's");
    }
    return deliver_handle(create_green_context(driver, dev, descriptor->sms), phCtx);
  });
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  return with_driver([&](Driver& driver) { return destroy_green_context(driver, hCtx); });
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_green(hCtx, [&](Driver&, const std::shared_ptr<GreenContext>& green) -> Status {
    *pContext = green->view->handle();
    return Status();
  });
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                  CUdevResourceType type) {
  return with_green(hCtx, [&](Driver&, const std::shared_ptr<GreenContext>& green) -> Status {
    if (resource == nullptr) return no_result();
    if (type != CU_DEV_RESOURCE_TYPE_SM) {
      return Status(CUDA_ERROR_INVALID_RESOURCE_TYPE, "only SMs are a resource");
    }
    *resource = make_resource(green->primary->device().ordinal, green->sms);
    return Status();
  });
}

// NULL means the green context that is current.
CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  return with_driver([&](Driver& driver) -> Status {
    std::shared_ptr<Context> current = context_stack::current();
    std::shared_ptr<GreenContext> green = driver.green_contexts.find(greenCtx);
    if (greenCtx == nullptr && current != nullptr) green = current->green.lock();
    if (green == nullptr) return Status(CUDA_ERROR_INVALID_CONTEXT, "not a green context");
    if (greenCtxId == nullptr) return no_result();
    *greenCtxId = green->id;
    return Status();
  });
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) {
  return with_green(greenCtx, [&](Driver&, const std::shared_ptr<GreenContext>& green) -> Status {
    if (phStream == nullptr) return no_result();
    // Only such streams exist in a green context.
    if (flags != CU_STREAM_NON_BLOCKING) return invalid_value("the stream must be non-blocking");
    return deliver_handle(create_stream(green->view, flags, priority), phStream);
  });
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return with_green(hCtx,
                    [&](Driver& driver, const std::shared_ptr<GreenContext>& green) -> Status {
                      std::shared_ptr<Event> event = driver.events.find(hEvent);
                      if (event == nullptr) return invalid_handle("not an event");
                      return record_context_event(driver, *green->view, *event);
                    });
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return with_green(hCtx,
                    [&](Driver& driver, const std::shared_ptr<GreenContext>& green) -> Status {
                      std::shared_ptr<Event> event = driver.events.find(hEvent);
                      if (event == nullptr) return invalid_handle("not an event");
                      return wait_context_event(driver, *green->view, *event);
                    });
}
