// SPDX-License-Identifier: Apache-2.0
// Launches: look the handles up, check the arguments as the driver does, pack the parameters by the
// kernel's layout straight into the ring. No allocation, no round trip except for what cooperative
// launches ask. Implementations behind the generated entry points, on the program's threads.
#include <string.h>

#include <utility>

#include "api/client_impl.h"
#include "client/graph_params.h"
#include "client/launch_attributes.h"
#include "client/launch_request.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

// The blocks of a cooperative launch wait for each other, so all of them have to fit at once; the
// program learns from the launch itself when they don't. How many do is asked of the worker, once
// for the launches of a thread that are alike.
CUresult check_cooperative(Session& session, const Context& context, CUfunction handle,
                           const Function& function, const LaunchConfiguration& config) {
  struct Asked {
    CUfunction handle;
    const Context* context;
    uint32_t threads;
    uint32_t shared_bytes;
    uint64_t blocks;
  };
  static thread_local Asked last{};
  const uint32_t threads = config.block[0] * config.block[1] * config.block[2];
  if (last.handle != handle || last.context != &context || last.threads != threads ||
      last.shared_bytes != config.shared_bytes) {
    wire::OccupancyReply reply{};
    OPENMPS_CUDA_CHECK(session.channel.call(
        wire::Opcode::kOccupancy,
        wire::Occupancy{function.id, static_cast<int32_t>(threads), config.shared_bytes, 0,
                        static_cast<uint32_t>(wire::OccupancyQuery::kMaxActiveBlocks)},
        {}, &reply, sizeof(reply)));
    const int processors =
        session.device(context.device).attribute[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    last = {handle, &context, threads, config.shared_bytes,
            reply.value * static_cast<uint64_t>(processors)};
  }
  // No product overflows: check_dimensions() has seen the grid.
  const uint64_t blocks = uint64_t{config.grid[0]} * config.grid[1] * config.grid[2];
  return blocks <= last.blocks ? CUDA_SUCCESS : CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

CUresult launch(CUfunction handle, const LaunchConfiguration& config, CUstream stream_handle,
                void** pointers, void** extra) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, stream_handle, &stream));
  const Function* function = session->functions.find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(check_dimensions(session->device(context->device), *function, config));
  LaunchParameters parameters;
  OPENMPS_CUDA_CHECK(choose_parameters(*function, pointers, extra, &parameters));
  OPENMPS_CUDA_CHECK(check_implicit_capture(*session, *stream));

  if (stream->capture.load(std::memory_order_relaxed) != 0) {
    bool programmatic = false;
    KernelWork kernel = captured_kernel(*function, *context, config, parameters, &programmatic);
    return capture_work(*session, *stream, CU_GRAPH_NODE_TYPE_KERNEL, std::move(kernel),
                        programmatic);
  }
  if ((config.flags & wire::kLaunchCooperative) != 0) {
    OPENMPS_CUDA_CHECK(check_cooperative(*session, *context, handle, *function, config));
  }
  if (session->managed.any()) OPENMPS_CUDA_CHECK(session->managed.send(*session, *stream));
  const uint32_t attribute_bytes =
      config.attribute_count * static_cast<uint32_t>(sizeof(CUlaunchAttribute));
  wire::Launch command{};
  command.stream = stream->id;
  command.function = function->id;
  memcpy(command.grid, config.grid, sizeof(command.grid));
  memcpy(command.block, config.block, sizeof(command.block));
  command.shared_bytes = config.shared_bytes;
  command.attribute_count = config.attribute_count;
  command.parameter_bytes = parameters.bytes;
  command.flags = config.flags;
  const uint32_t bytes =
      static_cast<uint32_t>(sizeof(command)) + attribute_bytes + parameters.bytes;

  const Channel::Order order = session->channel.order();
  unsigned char* payload = session->channel.reserve(order, wire::Opcode::kLaunch, bytes);
  if (payload == nullptr) return session->channel.status();
  memcpy(payload, &command, sizeof(command));
  if (attribute_bytes != 0) memcpy(payload + sizeof(command), config.attributes, attribute_bytes);
  pack_parameters(*function, parameters, payload + sizeof(command) + attribute_bytes);
  session->channel.publish(order);
  session->fences.after_work(order, *stream);
  if (function->prints) session->output.expect();
  return CUDA_SUCCESS;
}

// Events of a launch happen somewhere in its kernel. Streams wait for just that; for the program
// itself they are reached when the kernel has ended.
CUresult record_events(const LaunchAttributes& attributes, CUstream stream_handle) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, stream_handle, &stream));
  const Channel::Order order = session->channel.order();
  FencePoint point;
  OPENMPS_CUDA_CHECK(session->fences.cover(order, *stream, &point));
  for (uint32_t i = 0; i < attributes.event_count; ++i) {
    attributes.events[i]->recorded.store(point.bits(), std::memory_order_release);
    attributes.events[i]->capture.store(0, std::memory_order_release);
  }
  return CUDA_SUCCESS;
}

CUresult check_not_capturing(CUstream stream_handle) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, stream_handle, &stream));
  return stream->capture.load(std::memory_order_relaxed) == 0 ? CUDA_SUCCESS
                                                              : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

namespace impl {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  const LaunchConfiguration config{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  return launch(f, config, hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  LaunchAttributes attributes;
  OPENMPS_CUDA_CHECK(take_attributes(config, &attributes));
  LaunchConfiguration taken{{config->gridDimX, config->gridDimY, config->gridDimZ},
                            {config->blockDimX, config->blockDimY, config->blockDimZ},
                            config->sharedMemBytes,
                            attributes.list,
                            attributes.count,
                            attributes.flags};
  if (attributes.event_count == 0) return launch(f, taken, config->hStream, kernelParams, extra);
  OPENMPS_CUDA_CHECK(check_not_capturing(config->hStream));
  OPENMPS_CUDA_CHECK(launch(f, taken, config->hStream, kernelParams, extra));
  return record_events(attributes, config->hStream);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  LaunchConfiguration config{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  config.flags = wire::kLaunchCooperative;
  return launch(f, config, hStream, kernelParams, nullptr);
}

}  // namespace impl
}  // namespace openmps::client
