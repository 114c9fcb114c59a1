// SPDX-License-Identifier: Apache-2.0
// cuOccupancy*: how much of a kernel fits on a device is the worker's driver's to say.
// Implementations behind the generated entry points, on the program's threads.
#include <algorithm>

#include "api/client_handlers.h"
#include "client/context/launch_attributes.h"
#include "client/session/context.h"
#include "client/session/enter.h"
#include "client/session/occupancy.h"

namespace openmps::client {
namespace {

// On the SMs of the stream of the configuration, which may be a green context's.
CUresult cluster_occupancy(Session& session, const Function& function, const CUlaunchConfig* config,
                           wire::ClusterQuery query, int* value) {
  LaunchAttributes attributes;
  OPENMPS_CUDA_CHECK(take_attributes(session.events, config, &attributes));
  Context* context = nullptr;
  if (session.contexts.current(&context) != CUDA_SUCCESS) context = nullptr;
  if (Stream* stream = nullptr; context != nullptr && config->hStream != nullptr) {
    OPENMPS_CUDA_CHECK(session.streams.look_up(*context, config->hStream, &stream));
    context = stream->context;
  }
  const wire::ClusterOccupancy command{
      .function = function.id,
      .query = query,
      .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
      .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
      .shared_bytes = config->sharedMemBytes,
      .sms = context != nullptr ? context->sms : 0,
      .green = context != nullptr ? context->green_id() : 0};
  wire::ReplyOf<wire::ClusterOccupancy> reply;
  OPENMPS_CUDA_CHECK(session.channel.call(command, {{attributes.list, attributes.count}}, &reply));
  *value = static_cast<int>(reply->value);
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(Session& session, int* numBlocks,
                                                              Function& function, int blockSize,
                                                              size_t dynamicSMemSize,
                                                              unsigned int flags) {
  if (blockSize <= 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t value = 0;
  OPENMPS_CUDA_CHECK(occupancy(session, function, blockSize, dynamicSMemSize, flags, &value));
  *numBlocks = static_cast<int>(value);
  return CUDA_SUCCESS;
}

// The block size with the most resident threads, tried from large to small in warps, as the
// documentation describes. The callback is the program's, so this can't run in the worker.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(Session& session, Context& context,
                                                   int* minGridSize, int* blockSize,
                                                   Function& function,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  if (blockSizeLimit < 0) return CUDA_ERROR_INVALID_VALUE;
  const int32_t* device = session.device(context.device).attribute;
  const int warp = device[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  const int most = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
  int limit = std::min(device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
                       function.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK]);
  if (blockSizeLimit > 0) limit = std::min(limit, blockSizeLimit);
  int best_threads = 0;
  *blockSize = *minGridSize = 0;  // of a kernel of which no block fits
  for (int block = (limit + warp - 1) / warp * warp; block > 0; block -= warp) {
    const int size = std::min(block, limit);
    const size_t shared =
        blockSizeToDynamicSMemSize != nullptr ? blockSizeToDynamicSMemSize(size) : dynamicSMemSize;
    uint64_t blocks = 0;
    OPENMPS_CUDA_CHECK(occupancy(session, function, size, shared, flags, &blocks));
    const int threads = static_cast<int>(blocks) * size;
    if (threads <= best_threads) continue;
    best_threads = threads;
    *blockSize = size;
    *minGridSize = static_cast<int>(blocks * session.contexts.kernel_sms(context));
    if (best_threads == most) break;
  }
  return CUDA_SUCCESS;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(Session& session, size_t* dynamicSmemSize,
                                                 Function& function, int numBlocks, int blockSize) {
  Context* context = nullptr;
  OPENMPS_CUDA_CHECK(session.contexts.current(&context));
  wire::SharedMemoryRoom::Reply reply;
  OPENMPS_CUDA_CHECK(session.channel.call(
      wire::SharedMemoryRoom{function.id, numBlocks, blockSize, context->wire_device}, &reply));
  *dynamicSmemSize = reply.bytes;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(Session& session, int* numClusters, Function& function,
                                      const CUlaunchConfig* config) {
  return cluster_occupancy(session, function, config, wire::ClusterQuery::kMaxActive, numClusters);
}

CUresult cuOccupancyMaxPotentialClusterSize(Session& session, int* clusterSize, Function& function,
                                            const CUlaunchConfig* config) {
  return cluster_occupancy(session, function, config, wire::ClusterQuery::kMaxPotentialSize,
                           clusterSize);
}

}  // namespace impl
}  // namespace openmps::client
