// SPDX-License-Identifier: Apache-2.0
// The names of the device runtime. See device_calls.h.
#include "softgpu/ptx/device_calls.h"

#include <algorithm>
#include <iterator>

namespace openmps::softgpu::ptx {
namespace {

// As nvcc 13 declares them; PTX from other sources may call them by their names in the
// API, which the library has too. Those for per-thread default streams end in _ptsz: the block's
// default stream, which serves them too, only keeps more in order.
constexpr std::string_view kPrefixes[] = {"__cudaCDP2", "cuda"};
constexpr std::string_view kPerThread = "_ptsz";
constexpr DeviceFunction kFunctions[] = {
    {"GetParameterBufferV2", DeviceCall::kParameterBuffer, 4},
    {"LaunchDeviceV2", DeviceCall::kLaunch, 2},
    {"GetLastError", DeviceCall::kGetLastError, 0},
    {"PeekAtLastError", DeviceCall::kPeekAtLastError, 0},
    {"GetErrorString", DeviceCall::kErrorString, 1},
    {"GetErrorName", DeviceCall::kErrorName, 1},
    {"GetDevice", DeviceCall::kGetDevice, 1},
    {"StreamCreateWithFlags", DeviceCall::kStreamCreate, 2},
    {"StreamDestroy", DeviceCall::kStreamDestroy, 1},
    {"StreamWaitEvent", DeviceCall::kStreamWaitEvent, 3},
    {"EventCreateWithFlags", DeviceCall::kEventCreate, 2},
    {"EventRecord", DeviceCall::kEventRecord, 2},
    {"EventDestroy", DeviceCall::kEventDestroy, 1},
    {"Malloc", DeviceCall::kMalloc, 2},
    {"Free", DeviceCall::kFree, 1},
    {"MemcpyAsync", DeviceCall::kCopy, 5},
    {"MemsetAsync", DeviceCall::kFill, 4},
};
// Without the prefix.
constexpr DeviceFunction kGraphFunctions[] = {
    {"cudaGraphLaunch", DeviceCall::kGraphLaunch, 2},
    {"cudaGraphKernelNodeSetParam", DeviceCall::kNodeParameter, 4},
    {"cudaGraphKernelNodeSetGridDim", DeviceCall::kNodeGrid, 2},
    {"cudaGraphKernelNodeSetEnabled", DeviceCall::kNodeEnabled, 2},
    {"cudaGraphKernelNodeUpdatesApply", DeviceCall::kNodeUpdates, 2},
};

template <size_t kCount>
const DeviceFunction* find(const DeviceFunction (&functions)[kCount], std::string_view name) {
  const auto* found = std::find_if(std::begin(functions), std::end(functions),
                                   [name](const DeviceFunction& f) { return f.name == name; });
  return found == std::end(functions) ? nullptr : found;
}

}  // namespace

const DeviceFunction* find_device_function(std::string_view name) {
  if (const DeviceFunction* found = find(kGraphFunctions, name)) return found;
  const auto* prefix = std::find_if(std::begin(kPrefixes), std::end(kPrefixes),
                                    [name](std::string_view p) { return name.starts_with(p); });
  if (prefix == std::end(kPrefixes)) return nullptr;
  name.remove_prefix(prefix->size());
  if (name.ends_with(kPerThread)) name.remove_suffix(kPerThread.size());
  return find(kFunctions, name);
}

// A program declares such a function; only the library has its version.
bool is_device_runtime(const std::string& text) {
  return text.find("__CNPRT_VERSION_NUMBER__") != std::string::npos;
}

}  // namespace openmps::softgpu::ptx
