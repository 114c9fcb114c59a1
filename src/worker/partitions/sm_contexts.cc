// SPDX-License-Identifier: Apache-2.0
// See sm_contexts.h.
#include "worker/partitions/sm_contexts.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"
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
    for (const std::unique_ptr<Made>& made : of.made) {
      driver_.cuGreenCtxDestroy(made->partition.handle);
    }
  }
}

// The groups are of the device's own step: where clusters of blocks need SMs that lie together, as
// on compute capability 9.0, groups of a smaller step would launch none.
Status SmContexts::divide(uint32_t device, std::vector<uint32_t>* group_sms,
                          bool* has_partial_group) {
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
  *has_partial_group = rest.type == CU_DEV_RESOURCE_TYPE_SM && rest.sm.smCount != 0;
  if (*has_partial_group) groups.push_back(rest);
  group_sms->clear();
  for (const CUdevResource& group : groups) group_sms->push_back(group.sm.smCount);
  of_[device].groups = std::move(groups);
  return Status();
}

// What the driver leaves may be fewer SMs than what fills no group.
bool SmContexts::split_off_few(uint32_t device, uint32_t remaining) {
  const Device& on = devices_.at(device);
  CUdevResource all{};
  CUdevResource part{};
  CUdevResource left{};
  unsigned count = 1;
  CUresult result = driver_.cuDeviceGetDevResource(on.handle, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuDevSmResourceSplitByCount(&part, &count, &all, &left, 0, remaining);
  }
  const bool is_split = result == CUDA_SUCCESS && count == 1 && part.sm.smCount == remaining &&
                        left.type == CU_DEV_RESOURCE_TYPE_SM &&
                        left.sm.smCount == on.sms - remaining;
  if (!is_split) return false;
  of_[device].remaining = part;
  of_[device].few = left;
  return true;
}

Status SmContexts::create_green(const SmPartition& partition,
                                std::span<const CUdevResource> resources, CUgreenCtx* made) {
  Result<CUdevResourceDesc> descriptor = descriptors_.get(driver_, resources);
  if (!descriptor.ok()) return descriptor.status();
  return check(driver_.cuGreenCtxCreate(made, *descriptor, devices_.at(partition.device).handle,
                                        CU_GREEN_CTX_DEFAULT_STREAM),
               "cuGreenCtxCreate");
}

// Some of the resources of a set, whose last is the partial group. The driver splits what a device
// or a green context has, but not what is left of a split (measured: 915). The SMs that have been
// split off stay when the green context goes.
Status SmContexts::trim(const SmPartition& partition, std::vector<CUdevResource>* resources) {
  CUgreenCtx whole = nullptr;
  OPENMPS_RETURN_IF_ERROR(create_green(partition, *resources, &whole));
  CUdevResource all{};
  CUdevResource part{};
  CUdevResource left{};
  unsigned count = 1;
  CUresult result = driver_.cuGreenCtxGetDevResource(whole, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuDevSmResourceSplitByCount(&part, &count, &all, &left, 0, partition.sms);
  }
  driver_.cuGreenCtxDestroy(whole);
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
  OPENMPS_RETURN_IF_ERROR(create_green(*partition, resources, &partition->handle));
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
Status SmContexts::make(uint32_t device, const SmSet& set, SmPart* made) {
  auto fresh = std::make_unique<Made>();
  SmPartition& partition = fresh->partition;
  partition.device = device;
  partition.sms = set.sms;
  partition.is_limit = set.kind == SmSet::Kind::kGroups;
  partition.set = set;
  OPENMPS_RETURN_IF_ERROR(create(&partition));
  const MutexLock lock(mutex_);
  *made = find_locked(device, set);
  if (*made != nullptr) {
    driver_.cuGreenCtxDestroy(partition.handle);
  } else {
    *made = hold_locked(*of_[device].made.emplace_back(std::move(fresh)));
  }
  return Status();
}

SmPart SmContexts::find(uint32_t device, const SmSet& set) {
  const MutexLock lock(mutex_);
  return find_locked(device, set);
}

SmPart SmContexts::find_locked(uint32_t device, const SmSet& set) {
  for (const std::unique_ptr<Made>& made : of_[device].made) {
    if (made->partition.set == set) return hold_locked(*made);
  }
  return nullptr;
}

SmPart SmContexts::hold_locked(Made& made) {
  struct Use {
    Use(SmContexts& of, Made& used) : contexts(of), made(used) {}
    ~Use() { contexts.release(made); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    SmContexts& contexts;
    Made& made;
  };
  auto use = std::make_shared<Use>(*this, made);
  ++made.users;
  return {std::move(use), &made.partition};
}

void SmContexts::release(Made& made) {
  const MutexLock lock(mutex_);
  OfDevice& of = of_[made.partition.device];
  if (--made.users != 0) return;
  const auto is_unused = [](const std::unique_ptr<Made>& one) { return one->users == 0; };
  if (static_cast<size_t>(std::ranges::count_if(of.made, is_unused)) <= kMostUnused) return;
  const auto oldest = std::ranges::find_if(of.made, is_unused);
  driver_.cuGreenCtxDestroy((*oldest)->partition.handle);
  of.made.erase(oldest);
}

}  // namespace openmps::worker
