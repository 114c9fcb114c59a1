// SPDX-License-Identifier: Apache-2.0
// The root of the device model, one per process (start.h): the devices, the address space and the
// objects behind handles. The parts that work on these borrow the driver and are reached from it.
// Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "cuda/status.h"
#include "softgpu/device/handles.h"
#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/machine/config.h"
#include "softgpu/device/machine/segment.h"
#include "softgpu/device/machine/trace.h"
#include "softgpu/device/user_object.h"

namespace openmps::softgpu {

class Captures;
class Context;
class GraphMemory;
class Ipc;
class Memory;
class Scheduler;
class VirtualMemory;
struct Stream;
struct Event;
struct Module;
struct Function;
struct Library;
struct Kernel;
struct Link;
struct Graph;
struct GraphNode;
struct GraphExec;
struct MemoryPool;
struct GreenContext;
struct ResourceDescriptor;
struct Array;
struct MipmappedArray;
struct TextureObject;
struct SurfaceObject;
struct Condition;
class DeviceNode;

// One device of the machine that this process sees.
struct Device {
  int ordinal = 0;               // as the program counts
  uint32_t machine_ordinal = 0;  // before CUDA_VISIBLE_DEVICES
  std::unique_ptr<DeviceSegment> segment;
  std::shared_ptr<Context> primary;  // exists always, is active between retain and release
};

// The parts that work on the driver's state; start.cc makes them beside it.
struct Parts {
  Scheduler& scheduler;
  Memory& memory;
  VirtualMemory& virtual_memory;
  GraphMemory& graph_memory;
  Ipc& ipc;
  Captures& captures;
};

class Driver : public Parts {
 public:
  Driver(const Config& read, const Parts& parts) : Parts(parts), config(read) {
    trace.open(config.trace_path);
  }

  [[nodiscard]] Device* device(int ordinal) {
    return ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size() ? &devices[ordinal]
                                                                         : nullptr;
  }
  [[nodiscard]] uint64_t new_id() { return next_id_.fetch_add(1) + 1; }

  const Config config;
  AddressSpace address_space;
  Trace trace;
  std::vector<Device> devices;

  HandleTable<CUcontext, Context, HandleKind::kContext> contexts;
  HandleTable<CUstream, Stream, HandleKind::kStream> streams;
  HandleTable<CUevent, Event, HandleKind::kEvent> events;
  HandleTable<CUmodule, Module, HandleKind::kModule> modules;
  HandleTable<CUfunction, Function, HandleKind::kFunction> functions;
  HandleTable<CUlibrary, Library, HandleKind::kLibrary> libraries;
  HandleTable<CUkernel, Kernel, HandleKind::kKernel> kernels;
  HandleTable<CUlinkState, Link, HandleKind::kLink> links;
  HandleTable<CUgraph, Graph, HandleKind::kGraph> graphs;
  HandleTable<CUgraphNode, GraphNode, HandleKind::kGraphNode> graph_nodes;
  HandleTable<CUgraphExec, GraphExec, HandleKind::kGraphExec> graph_execs;
  HandleTable<CUgraphConditionalHandle, Condition, HandleKind::kCondition> conditions;
  // A node ends with the last graph, executable graph and launch that has it.
  HandleTable<CUgraphDeviceNode, std::weak_ptr<DeviceNode>, HandleKind::kDeviceNode> device_nodes;
  HandleTable<CUmemoryPool, MemoryPool, HandleKind::kMemoryPool> memory_pools;
  HandleTable<CUgreenCtx, GreenContext, HandleKind::kGreenContext> green_contexts;
  HandleTable<CUdevResourceDesc, ResourceDescriptor, HandleKind::kResourceDescriptor>
      resource_descriptors;
  HandleTable<CUarray, Array, HandleKind::kArray> arrays;
  HandleTable<CUmipmappedArray, MipmappedArray, HandleKind::kMipmappedArray> mipmapped_arrays;
  HandleTable<CUtexObject, TextureObject, HandleKind::kTextureObject> texture_objects;
  HandleTable<CUsurfObject, SurfaceObject, HandleKind::kSurfaceObject> surface_objects;
  UserObjectTable user_objects;

 private:
  std::atomic<uint64_t> next_id_{0};
};

}  // namespace openmps::softgpu
