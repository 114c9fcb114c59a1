// SPDX-License-Identifier: Apache-2.0
// Launch checks. See launch.h.
#include "softgpu/device/work/launch.h"

#include <algorithm>
#include <cstring>

#include "softgpu/device/machine/config.h"
#include "softgpu/device/work/module.h"

namespace openmps::softgpu {
namespace {

Status check_shape(const KernelInfo& info, const FunctionSettings& settings, const SmLimits& limits,
                   const LaunchShape& shape, bool cooperative) {
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.grid[i] > kMaxGridDim[i]) {
      return invalid_value("a grid dimension of " + std::to_string(shape.grid[i]));
    }
    if (shape.block[i] == 0 || shape.block[i] > kMaxBlockDim[i]) {
      return invalid_value("a block dimension of " + std::to_string(shape.block[i]));
    }
  }
  uint64_t threads = static_cast<uint64_t>(shape.block[0]) * shape.block[1] * shape.block[2];
  if (threads > std::min(kMaxThreadsPerBlock, info.max_threads)) {
    return invalid_value(std::to_string(threads) + " threads per block");
  }
  if (info.required_block[0] != 0 &&
      !std::equal(shape.block, shape.block + 3, info.required_block)) {
    return invalid_value("the kernel requires another block shape");
  }
  if (shape.dynamic_shared_bytes > settings.max_dynamic_shared.load()) {
    return Status(cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE,
                  std::to_string(shape.dynamic_shared_bytes) + " bytes of dynamic shared memory");
  }
  SmDemand demand =
      block_demand(limits, static_cast<uint32_t>(threads), info.registers,
                   static_cast<uint64_t>(info.static_shared_bytes) + shape.dynamic_shared_bytes);
  if (demand.registers > limits.registers) {
    return Status(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many registers for the block size");
  }
  if (blocks_per_sm(limits, demand) == 0) return invalid_value("the block does not fit an SM");
  return Status();
}

// CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, in any order, until CU_LAUNCH_PARAM_END.
Status read_extra(void** extra, const KernelInfo& info, std::vector<std::byte>* out) {
  const void* buffer = nullptr;
  const size_t* size = nullptr;
  for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[i + 1];
    } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[i + 1]);
    } else {
      return invalid_value("an unknown launch parameter");
    }
  }
  if (size == nullptr || (buffer == nullptr && *size > 0)) {
    return invalid_value("a parameter buffer without address or size");
  }
  if (*size > info.parameter_bytes) {
    return Status(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "more parameters than the kernel has");
  }
  if (*size == 0 && info.parameter_bytes != 0) return invalid_value("no parameters");
  // A short buffer is no error, as on an H200; what is missing is zero here.
  out->assign(info.parameter_bytes, std::byte{0});
  if (*size > 0) memcpy(out->data(), buffer, *size);
  return Status();
}

Status read_parameters(void** parameters, const KernelInfo& info, std::vector<std::byte>* out) {
  out->assign(info.parameter_bytes, std::byte{0});
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    const ParameterInfo& parameter = info.parameters[i];
    if (parameters == nullptr || parameters[i] == nullptr) {
      return invalid_value("parameter " + std::to_string(i) + " is missing");
    }
    memcpy(out->data() + parameter.offset, parameters[i], parameter.size);
  }
  return Status();
}

// What one block takes of an SM.
SmDemand demand_of(const SmLimits& limits, const LaunchWork& work) {
  const KernelInfo& info = *work.function->info;
  return block_demand(limits, work.block[0] * work.block[1] * work.block[2], info.registers,
                      static_cast<uint64_t>(info.static_shared_bytes) + work.dynamic_shared_bytes);
}

}  // namespace

Result<LaunchWork> make_launch(const Config& config, std::shared_ptr<Function> function,
                               const LaunchShape& shape, bool cooperative, const Placement& place,
                               void** parameters, void** extra) {
  const KernelInfo& info = *function->info;
  const SmLimits limits = sm_limits(config.compute_capability);
  OPENMPS_RETURN_IF_ERROR(check_usable(info));
  OPENMPS_RETURN_IF_ERROR(check_shape(info, function->settings, limits, shape, cooperative));
  if (parameters != nullptr && extra != nullptr) {
    return invalid_value("both kernelParams and extra are given");
  }
  LaunchWork work;
  OPENMPS_RETURN_IF_ERROR(extra != nullptr ? read_extra(extra, info, &work.parameters)
                                           : read_parameters(parameters, info, &work.parameters));
  work.packed = extra != nullptr;
  std::copy_n(shape.grid, 3, work.grid.begin());
  std::copy_n(shape.block, 3, work.block.begin());
  work.dynamic_shared_bytes = shape.dynamic_shared_bytes;
  work.cooperative = cooperative;
  work.function = std::move(function);
  work.place = place;
  OPENMPS_RETURN_IF_ERROR(set_clusters(config, work, shape.cluster, shape.preferred_cluster));
  OPENMPS_RETURN_IF_ERROR(check_cooperative(config, work));
  return work;
}

Status check_cooperative(const Config& config, const LaunchWork& work) {
  if (!work.cooperative) return Status();
  const SmLimits limits = sm_limits(config.compute_capability);
  const uint64_t resident =
      uint64_t{blocks_per_sm(limits, demand_of(limits, work))} * work.place.sms.count();
  const uint64_t blocks = uint64_t{work.grid[0]} * work.grid[1] * work.grid[2];
  if (blocks <= resident) return Status();
  return Status(
      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
      std::to_string(blocks) + " blocks, " + std::to_string(resident) + " can be resident");
}

Status check_cooperative_node(const Config& config, const LaunchWork& work) {
  if (work.cooperative && work.packed) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a cooperative node with packed parameters");
  }
  return check_cooperative(config, work);
}

uint32_t max_cluster_blocks(const Config& config, const Function& function) {
  if (config.compute_capability < kClusterCapability) return 1;
  const uint32_t most = function.settings.non_portable_cluster.load() != 0 ? kMaxClusterBlocks
                                                                           : kPortableClusterBlocks;
  const uint32_t own = function.info->max_cluster_blocks;
  return own != 0 ? std::min(own, most) : most;
}

Status cluster_size(const Config& config, const Function& function, const ClusterShape& shape,
                    uint32_t* size) {
  cuda::ClusterRequest request;
  request.grid = shape.grid;
  request.asked = shape.asked;
  request.preferred = shape.preferred;
  request.required = required_cluster(*function.info, function.settings);
  request.must_be_set = function.info->explicit_cluster;
  request.non_portable = function.settings.non_portable_cluster.load() != 0;
  uint64_t blocks = 1;
  if (const CUresult result = cuda::check_clusters(request, &blocks); result != CUDA_SUCCESS) {
    return Status(result, "clusters that do not fit the grid, or that are too large");
  }
  if (blocks > 1 && config.compute_capability < kClusterCapability) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "the device has no thread block clusters");
  }
  if (blocks > max_cluster_blocks(config, function)) {
    return Status(CUDA_ERROR_INVALID_CLUSTER_SIZE,
                  "clusters of " + std::to_string(blocks) + " blocks");
  }
  *size = static_cast<uint32_t>(blocks);
  return Status();
}

Status set_clusters(const Config& config, LaunchWork& work, const cuda::Dimensions& asked,
                    const cuda::Dimensions& preferred) {
  const Function& function = *work.function;
  uint32_t size = 1;
  OPENMPS_RETURN_IF_ERROR(cluster_size(config, function, {work.grid, asked, preferred}, &size));
  const SmLimits limits = sm_limits(config.compute_capability);
  if (size > 1 && blocks_per_sm(limits, demand_of(limits, work)) * work.place.sms.count() < size) {
    return Status(CUDA_ERROR_INVALID_CLUSTER_SIZE,
                  "no room for clusters of " + std::to_string(size) + " blocks");
  }
  const cuda::Dimensions required = required_cluster(*function.info, function.settings);
  const cuda::Dimensions& taken = asked != cuda::Dimensions{} ? asked : required;
  work.explicit_cluster = taken != cuda::Dimensions{};
  work.cluster = work.explicit_cluster ? taken : cuda::Dimensions{1, 1, 1};
  return Status();
}

Status keep_settings(const Config& config, const LaunchWork& before, LaunchWork& after) {
  after.cooperative = before.cooperative;
  after.has_priority = before.has_priority;
  after.priority = before.priority;
  after.device_node = before.device_node;
  after.device_handle = before.device_handle;
  OPENMPS_RETURN_IF_ERROR(check_cooperative_node(config, after));
  // A kernel that requires clusters has brought them along, and its successor brings its own.
  if (!before.explicit_cluster ||
      required_cluster(*before.function->info, before.function->settings) != cuda::Dimensions{}) {
    return Status();
  }
  return set_clusters(config, after, before.cluster, {});
}

}  // namespace openmps::softgpu
