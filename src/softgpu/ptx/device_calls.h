// SPDX-License-Identifier: Apache-2.0
// The device runtime: the functions by which kernels launch kernels (dynamic parallelism of CUDA 12
// and newer). nvcc declares them, links a library with their code, and calls them; here they are
// part of the interpreter. Called while images are read and lowered; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace openmps::softgpu::ptx {

enum class DeviceCall : uint8_t {
  kNone,
  kParameterBuffer,
  kLaunch,
  kGetLastError,
  kPeekAtLastError,
  kErrorString,
  kErrorName,
  kGetDevice,
  kStreamCreate,
  kStreamDestroy,
  kStreamWaitEvent,
  kEventCreate,
  kEventRecord,
  kEventDestroy,
  kMalloc,
  kFree,
  kCopy,
  kFill,
  kGraphLaunch,  // of a kernel in a graph; the others are for any kernel
  // Changes of nodes of graphs, which need neither.
  kNodeParameter,
  kNodeGrid,
  kNodeEnabled,
  kNodeUpdates,
};

struct DeviceFunction {
  std::string_view name;
  DeviceCall call;
  uint8_t arguments;
};

// Whether the kernel that makes the call changes a node of a graph.
constexpr bool updates_node(DeviceCall call) { return call >= DeviceCall::kNodeParameter; }

// All of them have one result. Null: none of them.
const DeviceFunction* find_device_function(std::string_view name);

// The text is the device runtime library that nvcc links; nothing of it is needed.
bool is_device_runtime(const std::string& text);

}  // namespace openmps::softgpu::ptx
