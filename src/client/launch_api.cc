// SPDX-License-Identifier: Apache-2.0
// Launches: look the handles up, check the arguments as the driver does, pack the parameters by the
// kernel's layout straight into the ring. No allocation, no round trip. Implementations behind the
// generated entry points, on the program's threads.
#include <string.h>

#include "api/client_impl.h"
#include "client/launch_attributes.h"
#include "client/stream.h"
#include "client/thread_state.h"

namespace openmps::client {
namespace {

struct Configuration {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
  const CUlaunchAttribute* attributes = nullptr;
  uint32_t attribute_count = 0;
  uint32_t flags = 0;
};

// Where the parameter bytes come from: pointers by the kernel's layout, or the program's own
// buffer.
struct Parameters {
  void** pointers = nullptr;
  const void* buffer = nullptr;
  uint32_t bytes = 0;
};

CUresult check_dimensions(const wire::DeviceFacts& facts, const Function& function,
                          const Configuration& config) {
  const int32_t* limit = facts.attribute;
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    const auto most_grid = static_cast<uint32_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i]);
    const auto most_block = static_cast<uint32_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i]);
    if (config.grid[i] - 1 >= most_grid || config.block[i] - 1 >= most_block) {
      return CUDA_ERROR_INVALID_VALUE;  // zero wraps to the largest number
    }
    threads *= config.block[i];
  }
  if (threads > static_cast<uint64_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A block that the device allows but this kernel doesn't: for its registers, or for the launch
  // bounds that it was compiled with (codes as an H200 gives them).
  if (threads >
      static_cast<uint64_t>(function.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK])) {
    const uint64_t registers =
        threads * static_cast<uint64_t>(function.attributes[CU_FUNC_ATTRIBUTE_NUM_REGS]);
    return registers > static_cast<uint64_t>(limit[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK])
               ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
               : CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t most = function.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
  return config.shared_bytes > static_cast<uint32_t>(most) ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

// `extra` is a list of names and values that ends with CU_LAUNCH_PARAM_END.
CUresult parse_extra(void** extra, Parameters* parameters) {
  const size_t* bytes = nullptr;
  while (*extra != CU_LAUNCH_PARAM_END) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      parameters->buffer = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    extra += 2;
  }
  if (parameters->buffer == nullptr || bytes == nullptr ||
      *bytes > wire::kMaxKernelParameterBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  parameters->bytes = static_cast<uint32_t>(*bytes);
  return CUDA_SUCCESS;
}

CUresult choose_parameters(const Function& function, void** pointers, void** extra,
                           Parameters* parameters) {
  if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) {
    OPENMPS_CUDA_CHECK(parse_extra(extra, parameters));
    return parameters->bytes < function.parameter_bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  if (pointers == nullptr && !function.parameters.empty()) return CUDA_ERROR_INVALID_VALUE;
  parameters->pointers = pointers;
  parameters->bytes = function.parameter_bytes;
  return parameters->bytes <= wire::kMaxKernelParameterBytes ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
}

void pack(const Function& function, const Parameters& parameters, unsigned char* target) {
  if (parameters.buffer != nullptr) {
    memcpy(target, parameters.buffer, parameters.bytes);
    return;
  }
  uint32_t end = 0;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const auto [offset, bytes] = function.parameters[i];
    if (offset > end) memset(target + end, 0, offset - end);
    memcpy(target + offset, parameters.pointers[i], bytes);
    end = offset + bytes;
  }
  if (parameters.bytes > end) memset(target + end, 0, parameters.bytes - end);
}

CUresult launch(CUfunction handle, const Configuration& config, CUstream stream_handle,
                void** pointers, void** extra) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, stream_handle, &stream));
  const Function* function = session->functions.find(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  OPENMPS_CUDA_CHECK(check_dimensions(session->device(context->device), *function, config));
  Parameters parameters;
  OPENMPS_CUDA_CHECK(choose_parameters(*function, pointers, extra, &parameters));
  OPENMPS_CUDA_CHECK(check_implicit_capture(*session, *stream));

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
  pack(*function, parameters, payload + sizeof(command) + attribute_bytes);
  session->channel.publish(order);
  if (stream->capture.load(std::memory_order_relaxed) == 0) {
    session->fences.after_work(order, *stream);
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace impl {

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  const Configuration config{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  return launch(f, config, hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  LaunchAttributes attributes;
  OPENMPS_CUDA_CHECK(take_attributes(config, &attributes));
  Configuration taken{{config->gridDimX, config->gridDimY, config->gridDimZ},
                      {config->blockDimX, config->blockDimY, config->blockDimZ},
                      config->sharedMemBytes,
                      attributes.list,
                      attributes.count,
                      attributes.flags};
  return launch(f, taken, config->hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  Configuration config{
      {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
  config.flags = wire::kLaunchCooperative;
  return launch(f, config, hStream, kernelParams, nullptr);
}

}  // namespace impl
}  // namespace openmps::client
