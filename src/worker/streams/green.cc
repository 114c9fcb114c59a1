// SPDX-License-Identifier: Apache-2.0
// Resources, descriptors and green contexts. See green.h.
#include "worker/streams/green.h"

#include <algorithm>
#include <bit>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"
#include "worker/device/log.h"

namespace openmps::worker {

Status GreenContexts::check_supported() const {
  const DriverTable& d = core_.driver;
  if (d.cuDeviceGetDevResource != nullptr && d.cuGreenCtxGetDevResource != nullptr &&
      d.cuDevSmResourceSplitByCount != nullptr && d.cuDevResourceGenerateDesc != nullptr &&
      d.cuGreenCtxCreate != nullptr && d.cuGreenCtxDestroy != nullptr &&
      d.cuCtxFromGreenCtx != nullptr && d.cuGreenCtxStreamCreate != nullptr) {
    return Status();
  }
  return Status(CUDA_ERROR_NOT_SUPPORTED, "the driver has no green contexts with streams");
}

Status GreenContexts::give(const Origin& origin, const CUdevResource& resource) {
  const auto bytes = std::bit_cast<Bytes>(resource);
  if (given_.contains(bytes)) return Status();
  if (given_.size() == wire::kMaxResources) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the session has too many different resources");
  }
  given_.emplace(bytes, origin);
  return Status();
}

Status GreenContexts::known(const CUdevResource& resource, Origin* origin) const {
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) {
    return Status(CUDA_ERROR_INVALID_RESOURCE_TYPE, "not an SM resource");
  }
  const auto found = given_.find(std::bit_cast<Bytes>(resource));
  if (found == given_.end()) {
    return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "not a resource of the session");
  }
  *origin = found->second;
  return Status();
}

namespace {

// The resource as the driver would describe it, of a green context that is not made yet.
Status resource_of(const ClientGreen& green, CUdevResourceType type, CUdevResource* resource) {
  if (type != CU_DEV_RESOURCE_TYPE_SM || green.resources.size() != 1) {
    return Status(CUDA_ERROR_NOT_READY, "the green context is not there yet");
  }
  *resource = green.resources.front();
  return Status();
}

CUresult make_green(const DriverTable& driver, CUdevResourceDesc descriptor, CUdevice device,
                    uint32_t flags, StreamSlots& slots, CUgreenCtx* handle, CUcontext* context) {
  const CUresult made = driver.cuGreenCtxCreate(handle, descriptor, device, flags);
  if (made != CUDA_SUCCESS) return made;
  const CUresult viewed = driver.cuCtxFromGreenCtx(context, *handle);
  if (viewed == CUDA_SUCCESS) {
    // Without slots the driver makes what streams need by itself.
    static_cast<void>(slots.grow(driver, *context, StreamSlots::kFirstOfPart));
  } else {
    driver.cuGreenCtxDestroy(std::exchange(*handle, nullptr));
  }
  return viewed;
}

}  // namespace

Status GreenContexts::handle(const wire::DeviceResource& command, ClientGreen* green,
                             ReplyTo<wire::DeviceResource> reply) {
  OPENMPS_RETURN_IF_ERROR(check_supported());
  const uint32_t device = green != nullptr ? green->device : command.device;
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  // A session that is limited to some SMs of the device may split these.
  SmPart part;
  OPENMPS_RETURN_IF_ERROR(core_.parts.get_limit(device, command.sms, &part));
  const GreenContext* of = green;
  if (of == nullptr) of = part.get();
  CUdevResource resource{};
  const auto type = static_cast<CUdevResourceType>(command.type);
  if (green != nullptr && !green->is_there()) {
    OPENMPS_RETURN_IF_ERROR(resource_of(*green, type, &resource));
  } else if (of != nullptr) {
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuGreenCtxGetDevResource(of->handle, &resource, type),
              "cuGreenCtxGetDevResource"));
  } else {
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuDeviceGetDevResource(core_.devices.at(device).handle, &resource, type),
              "cuDeviceGetDevResource"));
  }
  Origin origin{device, command.green};
  if (green != nullptr) {
    origin.of = green->of;
  } else if (part != nullptr) {
    origin.of = part->set;
  }
  OPENMPS_RETURN_IF_ERROR(give(origin, resource));
  reply.put({resource});
  return Status();
}

Status GreenContexts::handle(const wire::ResourceSplit& command,
                             ReplyTo<wire::ResourceSplit> reply) {
  if (command.count_only == 0 && command.groups > wire::kMaxResourceGroups) {
    return violation("a split into " + std::to_string(command.groups) + " groups");
  }
  OPENMPS_RETURN_IF_ERROR(check_supported());
  Origin origin;
  OPENMPS_RETURN_IF_ERROR(known(command.input, &origin));
  OPENMPS_RETURN_IF_ERROR(core_.use(origin.device));
  // An array of no groups is still an array: without one the call would only count.
  const bool counts = command.count_only != 0;
  std::vector<CUdevResource> groups(counts ? 0 : std::max(1u, command.groups));
  CUdevResource remainder{};
  unsigned made = counts ? 0 : command.groups;
  split_.clear();
  OPENMPS_RETURN_IF_ERROR(check(
      core_.driver.cuDevSmResourceSplitByCount(
          counts ? nullptr : groups.data(), &made, &command.input,
          command.with_remainder != 0 ? &remainder : nullptr, command.flags, command.min_count),
      "cuDevSmResourceSplitByCount"));
  groups.resize(counts ? 0 : std::min(made, command.groups));
  if (command.with_remainder != 0) groups.push_back(remainder);
  for (const CUdevResource& resource : groups) {
    OPENMPS_RETURN_IF_ERROR(give(origin, resource));
  }
  split_ = std::move(groups);
  reply.put({made, static_cast<uint32_t>(split_.size())});
  return Status();
}

Status GreenContexts::handle(const wire::ResourceRead& command, ReplyTo<wire::ResourceRead> reply) {
  if (command.first >= split_.size()) {
    return violation("the last split made no resource " + std::to_string(command.first));
  }
  const size_t count = std::min<size_t>(split_.size() - command.first, wire::kMaxResourcesRead);
  reply.put({}, wire::ResourceRead::ReplyTail{std::span(split_).subspan(command.first, count)});
  return Status();
}

Status GreenContexts::handle(const wire::ResourceDescribe& command,
                             const wire::ResourceDescribe::Tail& tail) {
  if (command.count == 0) return violation("a descriptor of nothing");
  OPENMPS_RETURN_IF_ERROR(check_supported());
  if (descriptors_.live() == wire::kMaxDescriptors) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the session has too many resource descriptors");
  }
  const std::vector<CUdevResource> resources(tail.resources.begin(), tail.resources.end());
  auto descriptor = std::make_unique<Descriptor>();
  for (size_t i = 0; i < resources.size(); ++i) {
    Origin origin;
    OPENMPS_RETURN_IF_ERROR(known(resources[i], &origin));
    if (i != 0 && origin.device != descriptor->device) {
      return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "resources of several devices");
    }
    descriptor->device = origin.device;
    // Resources of several sets belong to more than any one of these.
    descriptor->of = i == 0 || descriptor->of == origin.of ? origin.of : std::nullopt;
    descriptor->sms += resources[i].sm.smCount;
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(descriptor->device));
  Result<CUdevResourceDesc> made = kept_descriptors_.get(core_.driver, resources);
  if (!made.ok()) return made.status();
  descriptor->handle = *made;
  descriptor->resources = resources;
  return descriptors_.insert(command.descriptor, std::move(descriptor));
}

Status GreenContexts::handle(const wire::GreenCreate& command, const Descriptor& descriptor) {
  if (descriptor.device != command.device) {
    return Status(CUDA_ERROR_INVALID_DEVICE, "the resources are another device's");
  }
  if (green_count_ == wire::kMaxGreenContexts) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the session has too many green contexts");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(command.device));
  OPENMPS_RETURN_IF_ERROR(memory_.charge(command.device, wire::kGreenContextBytes));
  auto green = std::make_shared<ClientGreen>(*this);
  green->device = command.device;
  green->sms = descriptor.sms;
  green->of = descriptor.of;
  green->number = ++last_number_;
  green->resources = descriptor.resources;
  const std::optional<CUresult> result = core_.gate.run_quiescent(
      {GatedCall::kGreenCreate, command.device, &core_.gate_client, Patience::kUnlessStuck}, [&] {
        return make_green(core_.driver, descriptor.handle, core_.devices.at(command.device).handle,
                          command.flags, *green->slots, &green->handle, &green->context);
      });
  if (!result) {
    put_off(*green, descriptor.handle, command.flags);
  } else if (*result != CUDA_SUCCESS) {
    memory_.refund(command.device, wire::kGreenContextBytes);
    return check(*result, "cuGreenCtxCreate");
  }
  ++green_count_;
  return greens_.insert(command.green, std::move(green));
}

// The driver would wait for work that may never end, and all sessions for the driver (measured). So
// it is made in the next quiescence.
void GreenContexts::put_off(ClientGreen& green, CUdevResourceDesc descriptor, uint32_t flags) {
  log("Session " + std::to_string(core_.info.id) +
      ": a green context of its own is made later, and what is in it runs on all SMs of the " +
      "session until then: to make it waits for work that may not end");
  green.later_ = std::make_shared<ClientGreen::Made>(core_.parts);
  core_.gate.defer(
      GatedCall::kGreenCreate, green.device,
      [later = green.later_, &driver = core_.driver, descriptor, flags,
       &device = core_.devices.at(green.device)] {
        const MutexLock lock(later->mutex);
        if (later->parts == nullptr) return CUDA_SUCCESS;
        const InContext current(driver, device.context);
        const CUresult result = make_green(driver, descriptor, device.handle, flags, *later->slots,
                                           &later->handle, &later->context);
        if (result == CUDA_SUCCESS) {
          later->parts->touch();
        } else {
          log("A green context that was put off can't be made: " +
              check(result, "cuGreenCtxCreate").message());
        }
        return result;
      },
      ContextGate::Urgency::kSoon);
}

bool ClientGreen::arrive() {
  if (later_ == nullptr) return false;
  const MutexLock lock(later_->mutex);
  if (later_->handle == nullptr) return false;
  handle = std::exchange(later_->handle, nullptr);
  context = later_->context;
  slots = later_->slots;
  return true;
}

void GreenContexts::give_back(const GreenContext& green) {
  --green_count_;
  if (green.handle == nullptr) return memory_.refund(green.device, wire::kGreenContextBytes);
  static_cast<void>(core_.use(green.device).ok());
  core_.releases.add_quiescent(
      {wire::ReturnKind::kGreenContext, 0, wire::kGreenContextBytes},
      {GatedCall::kGreenDestroy, green.device, core_.context({green.device}),
       [&driver = core_.driver, handle = green.handle] {
         return driver.cuGreenCtxDestroy(handle);
       }},
      [&memory = memory_, device = green.device] {
        memory.refund(device, wire::kGreenContextBytes);
      });
}

ClientGreen::~ClientGreen() {
  if (later_ != nullptr) {
    const MutexLock lock(later_->mutex);
    later_->parts = nullptr;
  }
  if (!is_there() && later_ == nullptr) return;  // the driver has refused it
  try {
    owner.give_back(*this);
  } catch (const std::bad_alloc&) {
    // The green context is kept until the worker is replaced.
  }
}

std::shared_ptr<ClientGreen> GreenContexts::take(wire::Id id) {
  std::erase_if(given_, [id](const auto& entry) { return entry.second.green == id; });
  return greens_.take(id);
}

void GreenContexts::release_all() { greens_.clear(); }

}  // namespace openmps::worker
