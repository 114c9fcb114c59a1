// SPDX-License-Identifier: Apache-2.0
// The root of the device model: one Driver per process, made by cuInit, never destroyed (threads of
// the program may call until the very end). It owns the devices, the address space, the scheduler
// and the handle tables; everything else is reached from here.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "cuda/status.h"
#include "softgpu/device/address_space.h"
#include "softgpu/device/config.h"
#include "softgpu/device/graph_memory.h"
#include "softgpu/device/handles.h"
#include "softgpu/device/ipc.h"
#include "softgpu/device/link.h"
#include "softgpu/device/memory.h"
#include "softgpu/device/scheduler.h"
#include "softgpu/device/segment.h"
#include "softgpu/device/trace.h"
#include "softgpu/device/vmm.h"

namespace openmps::softgpu {

class Context;
struct Stream;
struct Event;
struct Module;
struct Function;
struct Library;
struct Kernel;
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

// One device of the machine that this process sees.
struct Device {
  int ordinal = 0;               // as the program counts
  uint32_t machine_ordinal = 0;  // before CUDA_VISIBLE_DEVICES
  std::unique_ptr<DeviceSegment> segment;
  std::shared_ptr<Context> primary;  // exists always, is active between retain and release
};

class Driver {
 public:
  // cuInit: idempotent, thread-safe.
  static Status initialise();
  // Null before cuInit and, for ever, in a child that was forked after it.
  static Driver* get();
  // Leave the shared segments; called when the library is unloaded or the process exits.
  static void shut_down();

  [[nodiscard]] Device* device(int ordinal) {
    return ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size() ? &devices[ordinal]
                                                                         : nullptr;
  }
  [[nodiscard]] uint64_t new_id() { return next_id_.fetch_add(1) + 1; }

  const Config config;
  AddressSpace address_space;
  Trace trace;
  Scheduler scheduler;
  std::vector<Device> devices;
  Memory memory;
  VirtualMemory virtual_memory;
  GraphMemory graph_memory;
  Ipc ipc;

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
  HandleTable<CUmemoryPool, MemoryPool, HandleKind::kMemoryPool> memory_pools;
  HandleTable<CUgreenCtx, GreenContext, HandleKind::kGreenContext> green_contexts;
  HandleTable<CUdevResourceDesc, ResourceDescriptor, HandleKind::kResourceDescriptor>
      resource_descriptors;
  HandleTable<CUarray, Array, HandleKind::kArray> arrays;
  HandleTable<CUmipmappedArray, MipmappedArray, HandleKind::kMipmappedArray> mipmapped_arrays;
  HandleTable<CUtexObject, TextureObject, HandleKind::kTextureObject> texture_objects;
  HandleTable<CUsurfObject, SurfaceObject, HandleKind::kSurfaceObject> surface_objects;

 private:
  explicit Driver(const Config& read);
  Status open_devices();

  std::atomic<uint64_t> next_id_{0};
};

}  // namespace openmps::softgpu
