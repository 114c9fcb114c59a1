// SPDX-License-Identifier: Apache-2.0
// Kernel launches and occupancy. Any thread.
#include <algorithm>
#include <vector>

#include "cuda/launch_attributes.h"
#include "softgpu/device/graphs/capture.h"
#include "softgpu/device/graphs/graph.h"
#include "softgpu/device/issue/event_issue.h"
#include "softgpu/device/issue/issue.h"
#include "softgpu/device/work/event.h"
#include "softgpu/device/work/launch.h"
#include "softgpu/device/work/module.h"
#include "softgpu/front/families.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// What the attributes of cuLaunchKernelEx ask for.
struct LaunchOptions {
  bool cooperative = false;
  cuda::Dimensions cluster{};            // blocks; zeros: not given
  cuda::Dimensions preferred_cluster{};  // blocks; zeros: not given
  bool has_priority = false;
  int priority = 0;
  // Recorded when the kernel has ended: later than a GPU may, which is always correct.
  std::vector<CUevent> events;
  CUlaunchAttributeValue* updatable = nullptr;  // the node is to be; it gets its handle
};

Status read_attributes(const CUlaunchConfig& config, LaunchOptions* options) {
  if (config.numAttrs > 0 && config.attrs == nullptr) return invalid_value("no attributes");
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (cuda::check_launch_attribute(attribute, kAttributeLimits) != CUDA_SUCCESS) {
      return invalid_value("a launch attribute that is not, or its value");
    }
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        options->cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        options->has_priority = true;
        options->priority = attribute.value.priority;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        options->cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                            attribute.value.clusterDim.z};
        break;
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        options->preferred_cluster = {attribute.value.preferredClusterDim.x,
                                      attribute.value.preferredClusterDim.y,
                                      attribute.value.preferredClusterDim.z};
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        options->events.push_back(attribute.value.programmaticEvent.event);
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        options->events.push_back(attribute.value.launchCompletionEvent.event);
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        if (attribute.value.deviceUpdatableKernelNode.deviceUpdatable != 0) {
          options->updatable = &config.attrs[i].value;
        }
        break;
      default:
        // Caching, clustering preference, programmatic serialisation: hints. Without them a launch
        // runs after its predecessor has ended, which is always correct.
        break;
    }
  }
  return Status();
}

CUresult launch(CUfunction f, const LaunchShape& shape, const LaunchOptions& options,
                CUstream stream, void** parameters, void** extra) {
  return with_stream(CallKind::kLaunch, stream, [&](Caller& caller, Stream& target) -> Status {
    Result<std::shared_ptr<Function>> function = resolve_function(target.context, f);
    if (!function.ok()) return function.status();
    if ((*function)->module->execution != target.execution) {
      return Status(CUDA_ERROR_INVALID_HANDLE, "function and stream are of different contexts");
    }
    Result<LaunchWork> work =
        make_launch(caller.driver.config, *function, shape, options.cooperative,
                    placement_of(target), parameters, extra);
    if (!work.ok()) {
      caller.driver.captures.invalidate(target);
      return work.status();
    }
    work->has_priority = options.has_priority;
    work->priority = options.priority;
    if (options.updatable != nullptr) {
      if (!target.capturing.load(std::memory_order_acquire)) {
        return Status(CUDA_ERROR_NOT_SUPPORTED, "only nodes of graphs are updatable");
      }
      OPENMPS_RETURN_IF_ERROR(make_updatable(caller.driver, *work, options.updatable));
    }
    std::vector<std::shared_ptr<Event>> events;
    for (CUevent handle : options.events) {
      events.push_back(caller.driver.events.find(handle));
      if (events.back() == nullptr) return invalid_handle("not an event");
      if ((events.back()->flags & CU_EVENT_DISABLE_TIMING) == 0) {
        return Status(CUDA_ERROR_NOT_SUPPORTED, "an event that takes times");
      }
    }
    OPENMPS_RETURN_IF_ERROR(issue(target, std::move(*work)));
    for (const auto& event : events) OPENMPS_RETURN_IF_ERROR(record_event(*event, target));
    return Status();
  });
}

// Blocks of a kernel that one SM holds.
uint32_t resident_blocks(const Driver& driver, const Function& function, uint32_t threads,
                         uint64_t dynamic_shared) {
  const SmLimits limits = sm_limits(driver.config.compute_capability);
  if (threads > std::min(kMaxThreadsPerBlock, function.info->max_threads)) return 0;
  if (function.info->static_shared_bytes + dynamic_shared > limits.shared_per_block_optin) return 0;
  return blocks_per_sm(limits, block_demand(limits, threads, function.info->registers,
                                            function.info->static_shared_bytes + dynamic_shared));
}

}  // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  return launch(f, shape, {}, hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  LaunchShape shape{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  LaunchOptions options;
  options.cooperative = true;
  return launch(f, shape, options, hStream, kernelParams, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchShape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes};
  LaunchOptions options;
  Status status = read_attributes(*config, &options);
  if (!status.ok()) return report(status);
  shape.cluster = options.cluster;
  shape.preferred_cluster = options.preferred_cluster;
  return launch(f, shape, options, config->hStream, kernelParams, extra);
}

// ---- Occupancy --------------------------------------------------------------------------------

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
  if (numBlocks == nullptr || blockSize <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return with_function(func, [&](const Caller& caller, Function& function) -> Status {
    *numBlocks = static_cast<int>(resident_blocks(
        caller.driver, function, static_cast<uint32_t>(blockSize), dynamicSMemSize));
    return Status();
  });
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
  return with_function(func, [&](const Caller& caller, Function& function) -> Status {
    const Driver& driver = caller.driver;
    const SmLimits limits = sm_limits(driver.config.compute_capability);
    if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0) {
      return invalid_value("a bad argument");
    }
    uint32_t without = resident_blocks(driver, function, static_cast<uint32_t>(blockSize), 0);
    if (static_cast<uint32_t>(numBlocks) > without) {
      return invalid_value("so many blocks do not fit an SM");
    }
    uint64_t share = limits.shared_bytes / static_cast<uint32_t>(numBlocks);
    share = share / kSharedUnit * kSharedUnit;
    uint64_t taken = limits.reserved_shared_per_block + function.info->static_shared_bytes;
    uint64_t most = limits.shared_per_block_optin - function.info->static_shared_bytes;
    *dynamicSmemSize = share > taken ? std::min(share - taken, most) : 0;
    return Status();
  });
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  return with_function(func, [&](const Caller& caller, Function& function) -> Status {
    if (minGridSize == nullptr || blockSize == nullptr || blockSizeLimit < 0 ||
        flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) {
      return invalid_value("a bad argument");
    }
    uint32_t limit = std::min(kMaxThreadsPerBlock, function.info->max_threads);
    if (blockSizeLimit > 0) limit = std::min(limit, static_cast<uint32_t>(blockSizeLimit));
    uint32_t best_threads = 0;
    uint32_t best_blocks = 0;
    uint32_t best_size = 0;
    // From the largest block down, in whole warps; the limit itself may be none.
    for (uint32_t size = limit; size > 0;
         size = size % kWarpSize == 0 ? size - kWarpSize : size / kWarpSize * kWarpSize) {
      uint64_t shared = blockSizeToDynamicSMemSize == nullptr
                            ? dynamicSMemSize
                            : blockSizeToDynamicSMemSize(static_cast<int>(size));
      uint32_t blocks = resident_blocks(caller.driver, function, size, shared);
      if (blocks * size <= best_threads) continue;
      best_threads = blocks * size;
      best_blocks = blocks;
      best_size = size;
    }
    *blockSize = static_cast<int>(best_size);
    *minGridSize = static_cast<int>(best_blocks * placement_of(*caller.context).sms.count());
    return Status();
  });
}

namespace {

// How many clusters of `blocks` blocks of that configuration the multiprocessors of its stream
// hold; 0 if a block fits none. CUDA_ERROR_INVALID_HANDLE: no stream.
Status active_clusters(const Caller& caller, const Function& function, const CUlaunchConfig& config,
                       uint64_t blocks, uint64_t* clusters) {
  Result<std::shared_ptr<Stream>> stream = resolve_stream(caller.context, config.hStream, false);
  if (!stream.ok()) return stream.status();
  const uint64_t threads =
      static_cast<uint64_t>(config.blockDimX) * config.blockDimY * config.blockDimZ;
  if (threads == 0) return invalid_value("a bad block");
  const uint64_t per_sm =
      threads > kMaxThreadsPerBlock
          ? 0
          : resident_blocks(caller.driver, function, static_cast<uint32_t>(threads),
                            config.sharedMemBytes);
  *clusters = per_sm * (*stream)->queue->sms.count() / blocks;
  return Status();
}

}  // namespace

CUresult cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                      const CUlaunchConfig* config) {
  if (numClusters == nullptr || func == nullptr || config == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return with_function(func, [&](const Caller& caller, Function& function) -> Status {
    LaunchOptions options;
    OPENMPS_RETURN_IF_ERROR(read_attributes(*config, &options));
    const cuda::Dimensions grid{config->gridDimX, config->gridDimY, config->gridDimZ};
    uint32_t blocks = 1;
    OPENMPS_RETURN_IF_ERROR(cluster_size(caller.driver.config, function,
                                         {grid, options.cluster, options.preferred_cluster},
                                         &blocks));
    uint64_t clusters = 0;
    OPENMPS_RETURN_IF_ERROR(active_clusters(caller, function, *config, blocks, &clusters));
    *numClusters = static_cast<int>(clusters);
    return Status();
  });
}

// The largest power of two of blocks that fit the stream's multiprocessors at once. The cluster
// size in the launch's own attributes does not matter here.
CUresult cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                            const CUlaunchConfig* config) {
  if (clusterSize == nullptr || func == nullptr || config == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return with_function(func, [&](const Caller& caller, Function& function) -> Status {
    uint64_t size = 1;
    for (uint64_t next = 2; next <= max_cluster_blocks(caller.driver.config, function); next *= 2) {
      uint64_t clusters = 0;
      OPENMPS_RETURN_IF_ERROR(active_clusters(caller, function, *config, next, &clusters));
      if (clusters == 0) break;
      size = next;
    }
    *clusterSize = static_cast<int>(size);
    return Status();
  });
}
