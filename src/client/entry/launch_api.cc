// SPDX-License-Identifier: Apache-2.0
// Launches: look the handles up, check the arguments as the driver does, pack the parameters by the
// kernel's layout straight into the ring. No allocation; a round trip only for shapes that the
// driver has not taken before (launch_check.h). Implementations behind the generated entry points,
// on the program's threads.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

#include "api/client_impl.h"
#include "client/context/launch_attributes.h"
#include "client/graphs/launch_request.h"
#include "client/session/enter.h"
#include "client/session/graph_params.h"
#include "client/session/launch_check.h"
#include "client/session/submit.h"

namespace openmps::client {
namespace {

// Events of a launch happen somewhere in its kernel. Streams wait for just that; for the program
// itself they are reached when the kernel has ended.
CUresult record_events(Session& session, Stream& stream, std::span<Event* const> events) {
  const Channel::Order order = session.channel.order();
  FencePoint point;
  OPENMPS_CUDA_CHECK(session.fences.cover(order, stream, &point));
  for (Event* event : events) {
    event->recorded.store(point.bits(), std::memory_order_release);
    event->capture.store(0, std::memory_order_release);
  }
  return CUDA_SUCCESS;
}

struct Launch {
  Function& function;
  const Context& context;
  const LaunchConfiguration& config;
  LaunchParameters parameters;

  CUresult describe(Session&, Work* work) const {
    if (!config.events.empty()) return CUDA_ERROR_NOT_SUPPORTED;
    *work = kernel_work(function, context, config, parameters);
    return CUDA_SUCCESS;
  }
  static bool is_launch() { return true; }
  CUresult issue(Session& session, Stream& stream) const;
};

CUresult Launch::issue(Session& session, Stream& stream) const {
  OPENMPS_CUDA_CHECK(session.registered.make_all_ready());
  if (session.managed.any()) OPENMPS_CUDA_CHECK(session.managed.send(stream));
  const wire::Launch command = launch_command(function, config, parameters.bytes, stream.id);
  const auto write = [this](unsigned char* tail) {
    const std::span<const CUlaunchAttribute> attributes = config.attributes;
    if (!attributes.empty()) memcpy(tail, attributes.data(), attributes.size_bytes());
    pack_parameters(function, parameters, tail + attributes.size_bytes());
  };
  CUresult result = CUDA_SUCCESS;
  if (is_known_shape(function, config)) [[likely]] {
    const Channel::Order order = session.channel.order();
    OPENMPS_CUDA_CHECK(session.channel.push_written(order, command, write));
    session.fences.after_work(order, stream);
  } else {
    result = session.channel.call_written(command, write, [&](const Channel::Order& order) {
      session.fences.after_work(order, stream);
    });
    if (result == CUDA_SUCCESS) remember_shape(function, config);
  }
  if (function.prints) session.output.expect();
  if (result != CUDA_SUCCESS || config.events.empty()) return result;
  return record_events(session, stream, config.events);
}

CUresult launch(Session& session, Stream& stream, Function& function,
                const LaunchConfiguration& config, void** pointers, void** extra) {
  if (const CUresult result = check_launch(session, *stream.context, function, config);
      result != CUDA_SUCCESS) {
    session.captures.invalidate(stream.capture.load(std::memory_order_relaxed));
    return result;
  }
  Launch made{function, *stream.context, config, {}};
  OPENMPS_CUDA_CHECK(choose_parameters(function, pointers, extra, &made.parameters));
  return submit(session, stream, made);
}

// With the clusters that the program has set as the function's own, unless the launch says some.
CUresult launch_in_clusters(Session& session, Stream& stream, Function& function,
                            const LaunchConfiguration& config, void** pointers, void** extra) {
  const cuda::Dimensions cluster = set_clusters(function);
  if (config.cluster != cuda::Dimensions{} || cluster == cuda::Dimensions{}) {
    return launch(session, stream, function, config, pointers, extra);
  }
  CUlaunchAttribute list[wire::kMaxLaunchAttributes] = {};
  if (config.attributes.size() == std::size(list)) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchAttribute* last = std::copy(config.attributes.begin(), config.attributes.end(), list);
  last->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  last->value.clusterDim = {cluster[0], cluster[1], cluster[2]};
  LaunchConfiguration whole = config;
  whole.attributes = {list, config.attributes.size() + 1};
  whole.cluster = cluster;
  return launch(session, stream, function, whole, pointers, extra);
}

CUresult launch(CUfunction handle, const LaunchConfiguration& config, CUstream stream_handle,
                void** pointers, void** extra) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, stream_handle, &stream));
  Function* function = session->modules.functions.find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A library's kernel runs in any context, a module's function in its own.
  const Context* owner = function->module->context;
  if (owner != nullptr && owner != stream->context->owner()) return CUDA_ERROR_INVALID_HANDLE;
  if (function->clusters_are_set.load(std::memory_order_relaxed)) [[unlikely]] {
    return launch_in_clusters(*session, *stream, *function, config, pointers, extra);
  }
  return launch(*session, *stream, *function, config, pointers, extra);
}

}  // namespace

namespace impl {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  const LaunchConfiguration config{
      {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes}};
  return launch(f, config, hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  Session* session = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session));
  LaunchAttributes attributes;
  OPENMPS_CUDA_CHECK(take_attributes(session->events, config, &attributes));
  const LaunchConfiguration taken{{{config->gridDimX, config->gridDimY, config->gridDimZ},
                                   {config->blockDimX, config->blockDimY, config->blockDimZ},
                                   config->sharedMemBytes,
                                   attributes.flags},
                                  {attributes.list, attributes.count},
                                  attributes.cluster,
                                  attributes.preferred_cluster,
                                  {attributes.events, attributes.event_count}};
  return launch(f, taken, config->hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  const LaunchConfiguration config{{{gridDimX, gridDimY, gridDimZ},
                                    {blockDimX, blockDimY, blockDimZ},
                                    sharedMemBytes,
                                    wire::kLaunchCooperative}};
  return launch(f, config, hStream, kernelParams, nullptr);
}

}  // namespace impl
}  // namespace openmps::client
