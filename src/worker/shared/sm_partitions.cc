// SPDX-License-Identifier: Apache-2.0
// See sm_partitions.h.
#include "worker/shared/sm_partitions.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "worker/device/driver_check.h"
#include "worker/shared/resource_descriptors.h"

namespace openmps::worker {
namespace {

// Of a device, kept for who comes next: each holds 5 MiB of an H200's memory, and to make one
// takes a quiet moment of the device.
constexpr size_t kMostUnused = 8;

}  // namespace

SmGroups least_used(std::span<const uint32_t> users, size_t count) {
  std::vector<size_t> order(users.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [users](size_t group) { return users[group]; });
  SmGroups chosen;
  for (const size_t group : std::span(order).first(std::min(count, order.size()))) {
    chosen.set(group);
  }
  return chosen;
}

SmPartitions::~SmPartitions() {
  for (OfDevice& of : of_) {
    for (const std::unique_ptr<Made>& made : of.made) destroy(made->partition);
  }
}

void SmPartitions::destroy(const SmPartition& partition) {
  driver_.cuGreenCtxDestroy(partition.handle);
}

// The groups are of the device's own step: where clusters of blocks need SMs that lie together, as
// on compute capability 9.0, those of a smaller one would launch none.
Status SmPartitions::split_locked(uint32_t device) {
  OfDevice& of = of_[device];
  if (!of.groups.empty()) return Status();
  const Device& on = devices_.at(device);
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
  of.users.assign(groups.size(), 0);
  of.groups = std::move(groups);
  return Status();
}

SmPartitions::Made* SmPartitions::find_locked(uint32_t device, const SmGroups& groups) {
  for (const std::unique_ptr<Made>& made : of_[device].made) {
    if (made->partition.groups == groups) return made.get();
  }
  return nullptr;
}

Result<std::unique_ptr<SmPartitions::Made>> SmPartitions::make(uint32_t device,
                                                               const SmGroups& groups,
                                                               ResourceDescriptors& descriptors,
                                                               ContextGate& gate,
                                                               const ContextGate::Feeder* feeder) {
  std::vector<CUdevResource> resources;
  auto made = std::make_unique<Made>();
  SmPartition& partition = made->partition;
  partition.device = device;
  partition.groups = groups;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < of_[device].groups.size(); ++i) {
      if (!groups.test(i)) continue;
      resources.push_back(of_[device].groups[i]);
      partition.sms += resources.back().sm.smCount;
    }
  }
  Result<CUdevResourceDesc> descriptor = descriptors.get(driver_, resources);
  if (!descriptor.ok()) return descriptor.status();
  const CUresult result = gate.run(GatedCall::kGreenCreate, device, feeder, [&] {
    return driver_.cuGreenCtxCreate(&partition.handle, *descriptor, devices_.at(device).handle,
                                    CU_GREEN_CTX_DEFAULT_STREAM);
  });
  if (Status status = check(result, "cuGreenCtxCreate"); !status.ok()) return status;
  if (Status status = check(driver_.cuCtxFromGreenCtx(&partition.context, partition.handle),
                            "cuCtxFromGreenCtx");
      !status.ok()) {
    destroy(partition);
    return status;
  }
  return made;
}

// The groups count as used from the choice on, so that who comes while a set is made gets others.
Result<std::shared_ptr<const SmPartition>> SmPartitions::take(uint32_t device, uint32_t sms,
                                                              ResourceDescriptors& descriptors,
                                                              ContextGate& gate,
                                                              const ContextGate::Feeder* feeder) {
  OfDevice& of = of_[device];
  SmGroups groups;
  const auto count = [&](bool used) {
    for (size_t i = 0; i < of.users.size(); ++i) of.users[i] += groups.test(i) ? used ? 1 : -1 : 0;
  };
  Made* mine = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (Status status = split_locked(device); !status.ok()) return status;
    groups = least_used(of.users, sms / devices_.at(device).sm_steps.step);
    count(true);
    mine = find_locked(device, groups);
    if (mine != nullptr) ++mine->users;
  }
  if (mine == nullptr) {
    Result<std::unique_ptr<Made>> made = Status(CUDA_ERROR_OUT_OF_MEMORY, "no memory for a part");
    try {
      made = make(device, groups, descriptors, gate, feeder);
    } catch (const std::bad_alloc&) {  // the groups are given back below
    }
    const std::lock_guard lock(mutex_);
    if (!made.ok()) {
      count(false);
      return made.status();
    }
    mine = find_locked(device, groups);
    if (mine != nullptr) {  // somebody else has made the same meanwhile
      destroy((*made)->partition);
    } else {
      mine = of.made.emplace_back(std::move(*made)).get();
    }
    ++mine->users;
  }
  // Without memory for this it is given back at once, which takes the lock.
  return std::shared_ptr<const SmPartition>(&mine->partition,
                                            [this, mine](const SmPartition*) { give_back(*mine); });
}

void SmPartitions::give_back(Made& made) {
  const std::lock_guard lock(mutex_);
  OfDevice& of = of_[made.partition.device];
  for (size_t i = 0; i < of.users.size(); ++i) of.users[i] -= made.partition.groups.test(i) ? 1 : 0;
  if (--made.users != 0) return;
  const auto is_unused = [](const std::unique_ptr<Made>& one) { return one->users == 0; };
  if (static_cast<size_t>(std::ranges::count_if(of.made, is_unused)) <= kMostUnused) return;
  const auto oldest = std::ranges::find_if(of.made, is_unused);
  destroy((*oldest)->partition);
  of.made.erase(oldest);
}

}  // namespace openmps::worker
