// SPDX-License-Identifier: Apache-2.0
// See sm_contexts.h.
#include "worker/partitions/sm_contexts.h"

#include <algorithm>
#include <utility>

#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"
#include "worker/device/resource_descriptors.h"

namespace openmps::worker {
namespace {

// The most unused green contexts of a device that are kept: each holds 5 MiB of an H200's memory,
// and to make one takes a moment in which nothing of the device runs.
constexpr size_t kMostUnused = 8;

}  // namespace

SmContexts::~SmContexts() {
  for (const OfDevice& of : of_) {
    for (const std::unique_ptr<Made>& made : of.made) driver_.cuGreenCtxDestroy(made->handle);
  }
}

// The groups are of the device's own step: where clusters of blocks need SMs that lie together, as
// on compute capability 9.0, groups of a smaller step would launch none.
Status SmContexts::divide(uint32_t device, SmLayout* layout) {
  const Device& on = devices_.at(device);
  if (on.sm_steps.step == 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "the driver makes no parts of this device");
  }
  CUdevResource all{};
  OPENMPS_RETURN_IF_ERROR(
      check(driver_.cuDeviceGetDevResource(on.handle, &all, CU_DEV_RESOURCE_TYPE_SM),
            "cuDeviceGetDevResource"));
  std::vector<CUdevResource> groups(on.sm_steps.most / on.sm_steps.step);
  auto count = static_cast<unsigned>(groups.size());
  CUdevResource rest{};
  OPENMPS_RETURN_IF_ERROR(check(
      driver_.cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, on.sm_steps.step),
      "cuDevSmResourceSplitByCount"));
  groups.resize(std::min<size_t>(count, groups.size()));
  if (groups.empty()) return Status(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "no groups of SMs");
  layout->has_partial_group = rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount != 0;
  if (layout->has_partial_group) groups.push_back(rest);
  for (const CUdevResource& group : groups) layout->group_sms.push_back(group.sm.smCount);
  of_[device].groups = std::move(groups);
  return Status();
}

CUresult SmContexts::split(const CUdevResource& all, uint32_t sms, CUdevResource* part,
                           CUdevResource* left) {
  unsigned count = 1;
  return driver_.cuDevSmResourceSplitByCount(part, &count, &all, left, 0, sms);
}

// What the driver leaves may be fewer SMs than what fills no group.
bool SmContexts::split_off_few(uint32_t device, uint32_t remaining) {
  const Device& on = devices_.at(device);
  CUdevResource all{};
  CUdevResource part{};
  CUdevResource left{};
  CUresult result = driver_.cuDeviceGetDevResource(on.handle, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) result = split(all, remaining, &part, &left);
  const bool is_split = result == CUDA_SUCCESS && part.sm.smCount == remaining &&
                        left.type == CU_DEV_RESOURCE_TYPE_SM &&
                        left.sm.smCount == on.sms - remaining;
  if (!is_split) return false;
  of_[device].remaining = part;
  of_[device].few = left;
  return true;
}

Result<CUgreenCtx> SmContexts::create_green(uint32_t device,
                                            std::span<const CUdevResource> resources) {
  Result<CUdevResourceDesc> descriptor = descriptors_.get(driver_, resources);
  if (!descriptor.ok()) return descriptor.status();
  CUgreenCtx made = nullptr;
  OPENMPS_RETURN_IF_ERROR(
      check(driver_.cuGreenCtxCreate(&made, *descriptor, devices_.at(device).handle,
                                     CU_GREEN_CTX_DEFAULT_STREAM),
            "cuGreenCtxCreate"));
  return made;
}

// Some of the resources of a set, whose last is the partial group. The driver splits what a device
// or a green context has, but not what is left of a split (measured: 915). The SMs that have been
// split off stay when the green context goes.
Status SmContexts::trim(const SmPartition& partition, std::vector<CUdevResource>* resources) {
  const Result<CUgreenCtx> whole = create_green(partition.device, *resources);
  if (!whole.ok()) return whole.status();
  CUdevResource all{};
  CUdevResource part{};
  CUdevResource left{};
  CUresult result = driver_.cuGreenCtxGetDevResource(*whole, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) result = split(all, partition.sms, &part, &left);
  driver_.cuGreenCtxDestroy(*whole);
  *resources = {part};
  return check(result, "cuDevSmResourceSplitByCount");
}

Status SmContexts::create(SmPartition* partition) {
  const OfDevice& of = of_[partition->device];
  std::vector<CUdevResource> resources;
  switch (partition->set.kind) {
    case SmSet::Kind::kFew: resources = {of.few}; break;
    case SmSet::Kind::kRemaining: resources = {of.remaining}; break;
    case SmSet::Kind::kGroups:
      for (size_t group = 0; group < of.groups.size(); ++group) {
        if (partition->set.groups.test(group)) resources.push_back(of.groups[group]);
      }
  }
  uint32_t sms = 0;
  for (const CUdevResource& resource : resources) sms += resource.sm.smCount;
  const InContext current(driver_, devices_.at(partition->device).context);
  if (sms > partition->sms) OPENMPS_RETURN_IF_ERROR(trim(*partition, &resources));
  const Result<CUgreenCtx> green = create_green(partition->device, resources);
  if (!green.ok()) return green.status();
  partition->handle = *green;
  Status status =
      check(driver_.cuCtxFromGreenCtx(&partition->context, partition->handle), "cuCtxFromGreenCtx");
  if (!status.ok()) {
    driver_.cuGreenCtxDestroy(partition->handle);
    return status;
  }
  // Where that fails the driver makes streams there as it does for any program.
  static_cast<void>(partition->slots->grow(driver_, partition->context, StreamSlots::kFirstOfPart));
  return status;
}

// Another thread may have made it meanwhile.
Result<SmPart> SmContexts::make(uint32_t device, const SmSet& set) {
  auto made = std::make_unique<Made>();
  made->device = device;
  made->sms = set.sms;
  made->is_limit = set.kind == SmSet::Kind::kGroups;
  made->set = set;
  OPENMPS_RETURN_IF_ERROR(create(made.get()));
  Made* used = nullptr;
  {
    const MutexLock lock(mutex_);
    used = use_locked(device, set);
    if (used != nullptr) {
      driver_.cuGreenCtxDestroy(made->handle);
    } else {
      of_[device].made.push_back(std::move(made));
      used = use_locked(device, set);
    }
  }
  return hold(used);
}

SmPart SmContexts::find(uint32_t device, const SmSet& set) {
  Made* found = nullptr;
  {
    const MutexLock lock(mutex_);
    found = use_locked(device, set);
  }
  return hold(found);
}

SmContexts::Made* SmContexts::use_locked(uint32_t device, const SmSet& set) {
  std::vector<std::unique_ptr<Made>>& all = of_[device].made;
  const auto found = std::ranges::find_if(all, [&](const auto& made) { return made->set == set; });
  if (found == all.end()) return nullptr;
  ++(*found)->users;
  return found->get();
}

SmPart SmContexts::hold(Made* used) {
  if (used == nullptr) return nullptr;
  return {used, [this](Made* made) { release(*made); }};
}

void SmContexts::release(Made& made) {
  const MutexLock lock(mutex_);
  OfDevice& of = of_[made.device];
  if (--made.users != 0) return;
  const auto is_unused = [](const std::unique_ptr<Made>& one) { return one->users == 0; };
  if (static_cast<size_t>(std::ranges::count_if(of.made, is_unused)) <= kMostUnused) return;
  const auto oldest = std::ranges::find_if(of.made, is_unused);
  driver_.cuGreenCtxDestroy((*oldest)->handle);
  of.made.erase(oldest);
}

}  // namespace openmps::worker
