// SPDX-License-Identifier: Apache-2.0
// See launch_check.h.
#include "client/session/launch_check.h"

#include <algorithm>

#include "client/session/occupancy.h"
#include "wire/commands/stream.h"

namespace openmps::client {
namespace {

// Function::known_block: the driver has accepted two different shapes, so the function requires
// none.
constexpr uint64_t kAnyBlock = ~0ull;

// Dimensions of blocks and clusters are far below 2^16.
uint64_t packed(uint32_t x, uint32_t y, uint32_t z) {
  return x | uint64_t{y} << 16 | uint64_t{z} << 32;
}
uint64_t packed_block(const LaunchConfiguration& config) {
  return packed(config.block[0], config.block[1], config.block[2]);
}
uint64_t packed_cluster(const LaunchConfiguration& config) {
  return packed(config.cluster[0], config.cluster[1], config.cluster[2]);
}

// Checks dimensions, threads and registers.
CUresult check_dimensions(const wire::DeviceFacts& facts, const Function& function,
                          const LaunchConfiguration& config) {
  const int32_t* limit = facts.attribute;
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    const auto most_grid = static_cast<uint32_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]);
    const auto most_block = static_cast<uint32_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]);
    if (config.grid[i] - 1 >= most_grid || config.block[i] - 1 >= most_block) {
      return CUDA_ERROR_INVALID_VALUE;  // a zero wraps around to the largest number
    }
    threads *= config.block[i];
  }
  if (threads > static_cast<uint64_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The device allows the block but this kernel does not, because of its registers or of the launch
  // bounds that it was compiled with (error codes of an H200).
  if (threads >
      static_cast<uint64_t>(function.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    const uint64_t registers =
        threads * static_cast<uint64_t>(function.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS]);
    return registers > static_cast<uint64_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK])
               ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
               : CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// The most dynamic shared memory that the function was allowed on any device.
uint32_t most_shared(const Function& function) {
  return static_cast<uint32_t>(
      std::max(function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
               function.shared_elsewhere.load(std::memory_order_relaxed)));
}

bool concerns_clusters(const Function& function, const LaunchConfiguration& config) {
  return (config.cluster[0] | config.cluster[1] | config.cluster[2] | config.preferred_cluster[0] |
          config.preferred_cluster[1] | config.preferred_cluster[2]) != 0 ||
         (function.attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] |
          function.attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH]) != 0;
}

CUresult check_function_clusters(const wire::DeviceFacts& facts, const Function& function,
                                 const LaunchConfiguration& config) {
  const int32_t* attribute = function.attributes;
  const auto required = [attribute](CUfunction_attribute which) {
    return static_cast<uint32_t>(attribute[which]);
  };
  cuda::ClusterRequest request;
  request.grid = {config.grid[0], config.grid[1], config.grid[2]};
  request.asked = config.cluster;
  request.preferred = config.preferred_cluster;
  request.required = {required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
                      required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
                      required(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)};
  request.must_be_set = attribute[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] != 0;
  request.non_portable = attribute[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] != 0;
  uint64_t size = 0;
  OPENMPS_CUDA_CHECK(cuda::check_clusters(request, &size));
  return size > 1 && facts.attribute[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] == 0
             ? CUDA_ERROR_NOT_SUPPORTED
             : CUDA_SUCCESS;
}

CUresult check_attributes(const wire::DeviceFacts& facts, const LaunchConfiguration& config) {
  const cuda::LaunchAttributeLimits limits = attribute_limits(facts);
  for (const CUlaunchAttribute& attribute : config.attributes) {
    OPENMPS_CUDA_CHECK(cuda::check_launch_attribute(attribute, limits));
  }
  return CUDA_SUCCESS;
}

// The blocks of a cooperative launch wait for each other, so all of them must fit on the device at
// once; otherwise the launch itself fails.
CUresult check_cooperative(Session& session, const Context& context, const Function& function,
                           const LaunchConfiguration& config) {
  const uint32_t threads = config.block[0] * config.block[1] * config.block[2];
  uint64_t fit = 0;  // blocks on an SM
  OPENMPS_CUDA_CHECK(
      occupancy(session, function, static_cast<int>(threads), config.shared_bytes, 0, &fit));
  const uint64_t room = fit * session.contexts.kernel_sms(context);
  // No product overflows: check_dimensions() has seen the grid.
  const uint64_t blocks = uint64_t{config.grid[0]} * config.grid[1] * config.grid[2];
  return blocks <= room ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

}  // namespace

cuda::Dimensions set_clusters(const Function& function) {
  cuda::Dimensions cluster{};
  if (!function.clusters_are_set.load(std::memory_order_relaxed)) return cluster;
  for (int i = 0; i < 3; ++i) {
    cluster[i] =
        static_cast<uint32_t>(function.attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i]);
  }
  return cluster;
}

CUresult check_launch(Session& session, const Context& context, const Function& function,
                      const LaunchConfiguration& config) {
  const wire::DeviceFacts& facts = session.device(context.device);
  OPENMPS_CUDA_CHECK(check_dimensions(facts, function, config));
  if (!config.attributes.empty()) OPENMPS_CUDA_CHECK(check_attributes(facts, config));
  if (concerns_clusters(function, config)) {
    OPENMPS_CUDA_CHECK(check_function_clusters(facts, function, config));
  }
  const bool cooperative = (config.flags & wire::kLaunchCooperative) != 0;
  if (config.shared_bytes > most_shared(function)) {
    return cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE;
  }
  return cooperative ? check_cooperative(session, context, function, config) : CUDA_SUCCESS;
}

bool is_known_shape(const Function& function, const LaunchConfiguration& config) {
  const uint64_t block = function.known_block.load(std::memory_order_relaxed);
  if (block != kAnyBlock && block != packed_block(config)) return false;
  if (config.attributes.empty()) return true;
  const uint64_t cluster = packed_cluster(config);
  return cluster == 0 || cluster == function.known_cluster.load(std::memory_order_relaxed);
}

void remember_shape(Function& function, const LaunchConfiguration& config) {
  const uint64_t block = packed_block(config);
  uint64_t known = 0;
  if (!function.known_block.compare_exchange_strong(known, block, std::memory_order_relaxed) &&
      known != block) {
    function.known_block.store(kAnyBlock, std::memory_order_relaxed);
  }
  if (const uint64_t cluster = packed_cluster(config); cluster != 0) {
    function.known_cluster.store(cluster, std::memory_order_relaxed);
  }
}

}  // namespace openmps::client
