// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation and memory pools. Any thread.
#include <cstring>

#include "softgpu/device/issue/issue.h"
#include "softgpu/device/lifetime/start.h"
#include "softgpu/device/memory/graph_memory.h"
#include "softgpu/device/memory/memory.h"
#include "softgpu/device/memory/pool.h"
#include "softgpu/front/front.h"
#include "softgpu/front/graph_front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

// Of a process on x86-64.
constexpr size_t kMostAddresses = size_t{1} << 47;

// Every device has one pool that is always there; made on first use.
CUmemoryPool default_pool(Driver& driver, int device) {
  auto found = driver.memory_pools.find_if(
      [&](const MemoryPool& pool) { return pool.is_default && pool.device == device; });
  if (!found.empty()) return found.front()->handle;
  auto pool = std::make_shared<MemoryPool>();
  pool->device = device;
  pool->is_default = true;
  pool->handle = driver.memory_pools.add(pool);
  return pool->handle;
}

// The one that cuDeviceSetMemPool chose, else the default one.
CUmemoryPool current_pool(Driver& driver, int device) {
  auto found = driver.memory_pools.find_if(
      [&](const MemoryPool& pool) { return pool.is_current && pool.device == device; });
  return found.empty() ? default_pool(driver, device) : found.front()->handle;
}

CUresult get_pool(CUmemoryPool* out, CUdevice ordinal, CUmemoryPool (*choose)(Driver&, int)) {
  return with_driver([&](Driver& driver) -> Status {
    if (driver.device(ordinal) == nullptr) {
      return Status(CUDA_ERROR_INVALID_DEVICE, "no such device");
    }
    if (out == nullptr) return no_result();
    *out = choose(driver, ordinal);
    return Status();
  });
}

// Captured, an allocation is a node, whatever pool was named.
Status capture_allocation(Stream& stream, uint64_t bytes, CUdeviceptr* out) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, stream.context->device().ordinal};
  params.bytesize = bytes;
  Result<AllocationWork> work = allocation_work(*stream.context, &params);
  if (!work.ok()) return work.status();
  OPENMPS_RETURN_IF_ERROR(issue(stream, std::move(*work)));
  *out = params.dptr;
  return Status();
}

// The memory of a graph that its launch left to the program.
Status free_of_graph(GraphMemory& memory, Stream& stream, uint64_t address) {
  OperationPtr end;
  OPENMPS_RETURN_IF_ERROR(issue(stream, MarkerWork{}, &end));
  return memory.close(address, end) ? Status() : invalid_value("it was freed already");
}

// `pool`: null: the one that cuMemAllocAsync takes.
CUresult allocate_async(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return with_stream(stream, [&](Caller& caller, Stream& target) -> Status {
    if (out == nullptr) return no_result();
    if (bytes == 0) {
      *out = 0;
      return Status();
    }
    if (target.capturing) return capture_allocation(target, bytes, out);
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    Result<uint64_t> address =
        caller.driver.memory.allocate_device(*target.context, bytes, RangeKind::kDevice, 0);
    if (!address.ok()) return address.status();
    const CUmemoryPool from =
        pool != nullptr ? pool : current_pool(caller.driver, target.context->device().ordinal);
    caller.driver.address_space.change(*address, [from](MappedRange& range) { range.pool = from; });
    *out = *address;
    return Status();
  });
}

template <typename Body>
CUresult with_pool(CUmemoryPool handle, Body&& body) {
  return with_driver([&](Driver& driver) -> Status {
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
    std::shared_ptr<MemoryPool> pool = driver.memory_pools.find(handle);
    if (pool == nullptr) return invalid_value("not a memory pool");
    return body(driver, *pool);
  });
}

// The integer attributes of a pool; null: one of the 64-bit ones.
std::atomic<int>* switch_of(MemoryPool& pool, CUmemPool_attribute attribute) {
  if (attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES) return &pool.reuse_follow_event;
  if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC) return &pool.reuse_opportunistic;
  if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) return &pool.reuse_internal;
  return nullptr;
}

// Does what a device's call does for the device that a location is.
template <typename Body>
CUresult at_location(const CUmemLocation* location, CUmemAllocationType type, Body&& body) {
  Driver* driver = nullptr;
  Status status = check_entry(&driver);
  if (!status.ok()) return report(status);
  if (location == nullptr) return report(invalid_value("no location"));
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return report(Status(CUDA_ERROR_NOT_SUPPORTED, "pools are of devices"));
  }
  if (driver->device(location->id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return body(location->id);
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate_async(dptr, bytesize, nullptr, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  Driver* driver = started_driver();
  if (driver != nullptr) {
    const std::shared_ptr<MemoryPool> found = driver->memory_pools.find(pool);
    if (found == nullptr || found->imported) return CUDA_ERROR_INVALID_VALUE;
  }
  return allocate_async(dptr, bytesize, pool, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return with_stream(hStream, [&](Caller& caller, Stream& stream) -> Status {
    if (dptr == 0) return Status();
    if (stream.capturing) return issue(stream, GraphFreeWork{dptr});
    OPENMPS_RETURN_IF_ERROR(caller.driver.captures.check_unsafe_call());
    GraphMemory& graphs = caller.driver.graph_memory;
    if (graphs.is_open(dptr)) return free_of_graph(graphs, stream, dptr);
    if (!caller.driver.memory.is_device_allocation(dptr)) {
      return invalid_value("not the begin of an allocation");
    }
    return issue(stream, FreeWork{dptr});
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  return get_pool(pool_out, dev, default_pool);
}

// Of no device: another error than that of the default pool, as on an H200.
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  const CUresult result = get_pool(pool, dev, current_pool);
  return result == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  return with_pool(pool, [&](Driver& driver, MemoryPool& object) -> Status {
    if (driver.device(dev) == nullptr) return invalid_value("no such device");
    if (object.device != dev) return invalid_value("the pool is on another device");
    for (const auto& other :
         driver.memory_pools.find_if([&](const MemoryPool& pool) { return pool.device == dev; })) {
      other->is_current = false;
    }
    object.is_current = true;
    return Status();
  });
}

// Pools are of devices; those of the host and of managed memory are not there.
CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  return at_location(location, type,
                     [&](CUdevice device) { return cuDeviceGetDefaultMemPool(pool_out, device); });
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return at_location(location, type,
                     [&](CUdevice device) { return cuDeviceGetMemPool(pool, device); });
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return at_location(location, type,
                     [&](CUdevice device) { return cuDeviceSetMemPool(device, pool); });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  return with_driver([&](Driver& driver) -> Status {
    OPENMPS_RETURN_IF_ERROR(driver.captures.check_unsafe_call());
    if (pool == nullptr || poolProps == nullptr) return no_result();
    const bool exported = poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
      return invalid_value("a pool has pinned memory");
    }
    if (!exported && poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
      return invalid_value("pools are exported as descriptors only");
    }
    if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        driver.device(poolProps->location.id) == nullptr) {
      return invalid_value("a pool is on a device");
    }
    if (poolProps->maxSize > kMostAddresses) {
      return Status(CUDA_ERROR_OUT_OF_MEMORY, "more than there are addresses for");
    }
    auto made = std::make_shared<MemoryPool>();
    made->device = poolProps->location.id;
    if (exported) {
      made->file = make_shared_file(0);
      if (made->file == nullptr) return Status(CUDA_ERROR_OUT_OF_MEMORY, "no descriptors are left");
      made->key = made->file->key;
    }
    made->handle = driver.memory_pools.add(made);
    *pool = made->handle;
    return Status();
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return with_pool(pool, [&](Driver& driver, MemoryPool& object) -> Status {
    if (object.is_default) return invalid_value("the default pool stays");
    driver.memory_pools.remove(pool);
    return Status();
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return with_pool(pool, [](Driver&, MemoryPool&) { return Status(); });
}

// Every device reaches all memory: there is nothing to do.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  return with_pool(pool, [&](Driver& driver, MemoryPool& object) -> Status {
    if (map == nullptr) return invalid_value("no descriptions");
    for (size_t i = 0; i < count; ++i) {
      const auto& [location, flags] = map[i];
      if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
          flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return invalid_value("no such access");
      }
      const bool there =
          location.type != CU_MEM_LOCATION_TYPE_DEVICE || driver.device(location.id) != nullptr;
      const bool own = location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == object.device;
      if (!there || (own && flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)) {
        return Status(CUDA_ERROR_INVALID_DEVICE, "no device, or the pool's own without access");
      }
      if (flags == CU_MEM_ACCESS_FLAGS_PROT_READ) {
        return Status(CUDA_ERROR_NOT_SUPPORTED, "memory that can only be read");
      }
    }
    return Status();
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  return with_pool(memPool, [&](Driver& driver, MemoryPool&) -> Status {
    if (flags == nullptr || location == nullptr) return no_result();
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && driver.device(location->id) == nullptr) {
      return invalid_value("no such device");
    }
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return Status();
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return with_pool(pool, [&](Driver& driver, MemoryPool& object) -> Status {
    if (value == nullptr) return no_result();
    if (std::atomic<int>* stored = switch_of(object, attr)) {
      int current = stored->load();
      memcpy(value, &current, sizeof current);
      return Status();
    }
    const AddressSpace::DeviceUse use = driver.address_space.use_of(object.device);
    uint64_t answer = 0;
    switch (attr) {
      case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: answer = object.release_threshold; break;
      // Nothing is kept, so what the device's allocations use is what the pool has.
      case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: answer = use.now; break;
      case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: answer = use.reserved_high; break;
      case CU_MEMPOOL_ATTR_USED_MEM_HIGH: answer = use.used_high; break;
      default: return invalid_value("no such attribute");
    }
    memcpy(value, &answer, sizeof answer);
    return Status();
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return with_pool(pool, [&](Driver& driver, MemoryPool& object) -> Status {
    if (value == nullptr) return invalid_value("no value");
    if (std::atomic<int>* stored = switch_of(object, attr)) {
      int wanted = 0;
      memcpy(&wanted, value, sizeof wanted);
      *stored = wanted;
      return Status();
    }
    uint64_t wanted = 0;
    memcpy(&wanted, value, sizeof wanted);
    if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      object.release_threshold = wanted;
      return Status();
    }
    const bool used = attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    if ((!used && attr != CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) || wanted != 0) {
      return invalid_value("the attribute can't be set");
    }
    using Use = AddressSpace::DeviceUse;
    driver.address_space.set_back(object.device, used ? &Use::used_high : &Use::reserved_high);
    return Status();
  });
}
