// SPDX-License-Identifier: Apache-2.0
// Launches: look the handles up, check the arguments as the driver does, pack the parameters by the
// kernel's layout straight into the ring. No allocation; a round trip only for shapes that the
// driver has not taken before (launch_check.h). Implementations behind the generated entry points,
// on the program's threads.
#include <string.h>

#include <utility>

#include "api/client_impl.h"
#include "client/graph_params.h"
#include "client/launch_attributes.h"
#include "client/launch_check.h"
#include "client/launch_request.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

CUresult launch(CUfunction handle, const LaunchConfiguration& config, CUstream stream_handle,
                void** pointers, void** extra) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, stream_handle, &stream));
  Function* function = session->functions.find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A library's kernel runs in any context, a module's function in its own.
  const Context* owner = function->module->context;
  if (owner != nullptr && owner != stream->context->owner()) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = check_launch(*session, *context, *function, config);
      result != CUDA_SUCCESS) {
    const uint32_t capture = stream->capture.load(std::memory_order_relaxed);
    if (capture != 0) session->captures.invalidate(capture);
    return result;
  }
  LaunchParameters parameters;
  OPENMPS_CUDA_CHECK(choose_parameters(*function, pointers, extra, &parameters));

  if (stream->capture.load(std::memory_order_relaxed) != 0) {
    bool programmatic = false;
    KernelWork kernel = captured_kernel(*function, *context, config, parameters, &programmatic);
    return capture_work(*session, *stream, CU_GRAPH_NODE_TYPE_KERNEL, std::move(kernel),
                        programmatic);
  }
  if (session->managed.any()) OPENMPS_CUDA_CHECK(session->managed.send(*session, *stream));
  wire::Launch command;
  command.stream = stream->id;
  command.function = function->id;
  memcpy(command.grid, config.grid, sizeof(command.grid));
  memcpy(command.block, config.block, sizeof(command.block));
  command.shared_bytes = config.shared_bytes;
  command.attribute_count = config.attribute_count;
  command.parameter_bytes = parameters.bytes;
  command.flags = config.flags;

  const auto write = [&](unsigned char* tail) {
    const size_t attribute_bytes = config.attribute_count * sizeof(CUlaunchAttribute);
    if (attribute_bytes != 0) memcpy(tail, config.attributes, attribute_bytes);
    pack_parameters(*function, parameters, tail + attribute_bytes);
  };
  CUresult result = CUDA_SUCCESS;
  if (is_known_shape(*function, config)) [[likely]] {
    const Channel::Order order = session->channel.order();
    OPENMPS_CUDA_CHECK(session->channel.push_written(order, command, write));
    session->fences.after_work(order, *stream);
  } else {
    result = session->channel.call_written(command, write, [&](const Channel::Order& order) {
      session->fences.after_work(order, *stream);
    });
    if (result == CUDA_SUCCESS) remember_shape(*function, config);
  }
  if (function->prints) session->output.expect();
  return result;
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
                            attributes.flags,
                            attributes.cluster,
                            attributes.preferred_cluster};
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
