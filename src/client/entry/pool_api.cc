// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation and its pools. An allocation is usable at once; a free counts when its
// stream has come that far, or for the same stream at once. Implementations behind the generated
// entry points, on the program's threads.
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <utility>

#include "api/client_handlers.h"
#include "base/shared_memory.h"
#include "client/session/enter.h"
#include "client/session/graph_params.h"
#include "client/session/submit.h"
#include "wire/commands/device.h"

namespace openmps::client {
namespace {

// An exported pool is a file with this in it: pointers carry their own permission, so all that the
// pool itself has to say is that it is one, where, and which.
struct PoolFile {
  uint32_t magic;
  uint32_t wire_device;
  uint64_t handle_types;
  uint64_t key;  // MemoryPool::key
};
constexpr uint32_t kPoolMagic = 0x4c504d4f;  // "OMPL"
constexpr uint64_t kPoolFileBytes = 4096;

// Of a process on x86-64: no pool can have more.
constexpr size_t kMostAddresses = size_t{1} << 47;

// 0: the system gives no random numbers.
uint64_t key_of(MemoryPool& pool) {
  uint64_t key = pool.key.load();
  if (key != 0) return key;
  uint64_t made = 0;
  if (getrandom(&made, sizeof(made), 0) != sizeof(made)) return 0;
  return pool.key.compare_exchange_strong(key, made) ? made : key;
}

// ---- Allocations and frees in stream order ------------------------------------------------------

struct Allocation {
  MemoryPool* pool;  // null: the current one of the device
  Context& context;  // the stream's
  size_t bytes;
  CUdeviceptr* address;

  // A captured allocation belongs to the graph, and lives from launch to launch.
  CUresult describe(Session& session, Work* work) const {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(context.device)};
    parameters.bytesize = bytes;
    OPENMPS_CUDA_CHECK(read_node(session, context, &parameters, work));
    *address = parameters.dptr;
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    OPENMPS_CUDA_CHECK(check_unsafe(session));
    const MemoryPool& from =
        pool != nullptr ? *pool : *session.pools.current[context.device].load();
    Context& owner =
        from.device == context.device ? context : *session.contexts.primary[from.device];
    return session.memory.allocate_async(owner, *from.arena, from.handle, stream, bytes, address);
  }
};

struct Free : FreeWork {
  CUresult describe(Session&, Work* work) const {
    *work = FreeWork(*this);
    return CUDA_SUCCESS;
  }
  CUresult issue(Session& session, Stream& stream) const {
    OPENMPS_CUDA_CHECK(check_unsafe(session));
    // What was imported from a pool is freed like what was allocated.
    if (session.opened.contains(address)) return session.opened.close(address);
    // What a graph's launch left to the program is the graph's.
    const bool of_graph = session.graph_memory.owns(address);
    DeviceMemory::Entry entry;
    if (!of_graph) OPENMPS_CUDA_CHECK(session.memory.forget(address, &entry));
    FencePoint point;
    {
      const Channel::Order order = session.channel.order();
      OPENMPS_CUDA_CHECK(session.fences.cover(order, stream, &point));
    }
    if (of_graph) {
      return session.graph_memory.close(address, point) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    session.memory.release_after(entry, point);
    return CUDA_SUCCESS;
  }
};

CUresult allocate(CUdeviceptr* address, size_t bytes, MemoryPool* pool, CUstream handle) {
  Session* session = nullptr;
  Context* context = nullptr;
  Stream* stream = nullptr;
  OPENMPS_CUDA_CHECK(enter(&session, &context, handle, &stream));
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {
    *address = 0;
    return CUDA_SUCCESS;
  }
  CUdeviceptr made = 0;
  OPENMPS_CUDA_CHECK(submit(*session, *stream, Allocation{pool, *stream->context, bytes, &made}));
  *address = made;
  return CUDA_SUCCESS;
}

// ---- Locations --------------------------------------------------------------------------------

// Pools are of devices and of pinned memory; those of the host are not built.
CUresult find_location(const CUmemLocation* location, CUmemAllocationType type, Session** session,
                       uint32_t* device) {
  OPENMPS_CUDA_CHECK(enter_local(session));
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!(*session)->valid_device(location->id)) return CUDA_ERROR_INVALID_DEVICE;
  *device = static_cast<uint32_t>(location->id);
  return CUDA_SUCCESS;
}

// ---- Attributes -------------------------------------------------------------------------------

// The switches; null: a number.
std::atomic<int>* switch_of(MemoryPool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: return &pool.reuse_follow_event;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return &pool.reuse_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: return &pool.reuse_internal;
    default: return nullptr;
  }
}

CUresult number_of(const Session& session, const MemoryPool& pool, CUmemPool_attribute attribute,
                   cuuint64_t* number) {
  const ArenaUse use = session.memory.use_of(*pool.arena);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: *number = use.keep; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: *number = use.reserved; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: *number = use.reserved_high; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: *number = use.used; return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: *number = use.used_high; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

namespace impl {

// ---- Which pool -------------------------------------------------------------------------------

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  Session* session = nullptr;
  uint32_t device = 0;
  OPENMPS_CUDA_CHECK(find_location(location, type, &session, &device));
  return impl::cuDeviceGetDefaultMemPool(pool_out, static_cast<CUdevice>(device));
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  Session* session = nullptr;
  uint32_t device = 0;
  OPENMPS_CUDA_CHECK(find_location(location, type, &session, &device));
  return impl::cuDeviceGetMemPool(pool, static_cast<CUdevice>(device));
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  Session* session = nullptr;
  uint32_t device = 0;
  OPENMPS_CUDA_CHECK(find_location(location, type, &session, &device));
  return impl::cuDeviceSetMemPool(static_cast<CUdevice>(device), pool);
}

// Of a device that is not there both say what no other call about devices does (so does an H200).
CUresult cuDeviceGetMemPool(Session& session, CUmemoryPool* pool, CUdevice dev) {
  if (!session.valid_device(dev)) return CUDA_ERROR_INVALID_VALUE;
  *pool = session.pools.current[dev].load()->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(Session& session, CUdevice dev, MemoryPool& pool) {
  if (!session.valid_device(dev)) return CUDA_ERROR_INVALID_VALUE;
  if (pool.device != static_cast<uint32_t>(dev) || pool.arena == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  session.pools.current[dev].store(&pool);
  return CUDA_SUCCESS;
}

// ---- Making and ending ------------------------------------------------------------------------

CUresult cuMemPoolCreate(Session& session, CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  constexpr int kExportable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST ||
      poolProps->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
      poolProps->handleTypes == CU_MEM_HANDLE_TYPE_FABRIC) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if ((poolProps->handleTypes & ~kExportable) != 0 ||
      poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      !session.valid_device(poolProps->location.id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (poolProps->maxSize > kMostAddresses) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto device = static_cast<uint32_t>(poolProps->location.id);
  Arena* arena = session.memory.add_arena(session.devices[device], poolProps->maxSize);
  MemoryPool* made = session.pools.add(device, arena);
  if (made == nullptr) {
    session.memory.abandon(arena);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  made->handle_types = static_cast<unsigned int>(poolProps->handleTypes);
  *pool = made->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

// Live allocations stay until they are freed, as CUDA says; a device whose current pool it was has
// its default one again.
CUresult cuMemPoolDestroy(Session& session, MemoryPool& pool) {
  if (&pool == session.pools.defaults[pool.device]) return CUDA_ERROR_INVALID_VALUE;
  MemoryPool* current = &pool;
  session.pools.current[pool.device].compare_exchange_strong(current,
                                                             session.pools.defaults[pool.device]);
  if (!session.pools.retire(&pool)) return CUDA_ERROR_INVALID_VALUE;
  if (pool.arena != nullptr) session.memory.abandon(pool.arena);
  session.pools.recycle(&pool);
  return CUDA_SUCCESS;
}

// ---- Allocations ------------------------------------------------------------------------------

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, nullptr, hStream);
}

CUresult cuMemAllocFromPoolAsync(Session&, CUdeviceptr* dptr, size_t bytesize, MemoryPool& pool,
                                 CUstream hStream) {
  if (pool.arena == nullptr) return CUDA_ERROR_INVALID_VALUE;  // imported: another process has it
  return allocate(dptr, bytesize, &pool, hStream);
}

CUresult cuMemFreeAsync(Session& session, CUdeviceptr dptr, Stream& stream) {
  if (dptr == 0) return CUDA_SUCCESS;
  return submit(session, stream, Free{{dptr}});
}

// ---- Attributes -------------------------------------------------------------------------------

CUresult cuMemPoolTrimTo(Session& session, MemoryPool& pool, size_t minBytesToKeep) {
  if (pool.arena == nullptr) return CUDA_ERROR_INVALID_VALUE;  // imported: another process has it
  session.memory.trim(*pool.arena, minBytesToKeep);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(Session& session, MemoryPool& pool, CUmemPool_attribute attr,
                               void* value) {
  if (pool.arena == nullptr) return CUDA_ERROR_INVALID_VALUE;  // imported: another process has it
  if (std::atomic<int>* stored = switch_of(pool, attr); stored != nullptr) {
    int wanted = 0;
    memcpy(&wanted, value, sizeof(wanted));
    stored->store(wanted);
    return CUDA_SUCCESS;
  }
  cuuint64_t wanted = 0;
  memcpy(&wanted, value, sizeof(wanted));
  if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    session.memory.set_keep_bytes(*pool.arena, wanted);
    return CUDA_SUCCESS;
  }
  const bool used = attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
  const bool reserved = attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
  // The marks can only be set back.
  if ((!used && !reserved) || wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  session.memory.reset_high(*pool.arena, used, reserved);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(Session& session, MemoryPool& pool, CUmemPool_attribute attr,
                               void* value) {
  if (pool.arena == nullptr) return CUDA_ERROR_INVALID_VALUE;  // imported: another process has it
  if (const std::atomic<int>* stored = switch_of(pool, attr); stored != nullptr) {
    const int current = stored->load();
    memcpy(value, &current, sizeof(current));
    return CUDA_SUCCESS;
  }
  cuuint64_t number = 0;
  OPENMPS_CUDA_CHECK(number_of(session, pool, attr, &number));
  memcpy(value, &number, sizeof(number));
  return CUDA_SUCCESS;
}

// Its own device has access always; others have it by cuCtxEnablePeerAccess, for all memory.
CUresult cuMemPoolSetAccess(Session& session, MemoryPool& pool, const CUmemAccessDesc* map,
                            size_t count) {
  if (map == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!session.valid_device(map[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const bool own = static_cast<uint32_t>(map[i].location.id) == pool.device;
    const bool all = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
    if (!all && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
    if (own && !all) return CUDA_ERROR_INVALID_DEVICE;
    if (own) continue;
    OPENMPS_CUDA_CHECK(session.channel.call(
        wire::PeerAccess{session.devices[map[i].location.id], session.devices[pool.device], all}));
    const uint32_t bit = 1u << map[i].location.id;
    if (all) {
      pool.peers.fetch_or(bit);
    } else {
      pool.peers.fetch_and(~bit);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(Session& session, CUmemAccess_flags* flags, MemoryPool& pool,
                            CUmemLocation* location) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!session.valid_device(location->id)) return CUDA_ERROR_INVALID_VALUE;
  const bool has = static_cast<uint32_t>(location->id) == pool.device ||
                   (pool.peers.load() >> location->id & 1) != 0;
  *flags = has ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

// ---- Between processes ------------------------------------------------------------------------

CUresult cuMemPoolExportToShareableHandle(Session& session, void* handle_out, MemoryPool& pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  if (pool.arena == nullptr) return CUDA_ERROR_INVALID_VALUE;  // imported: another process has it
  if (flags != 0 || handleType == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if ((pool.handle_types & handleType) == 0) return CUDA_ERROR_INVALID_VALUE;
  Result<UniqueFd> file = create_shared_file("openmps-pool", kPoolFileBytes);
  if (!file.ok()) return file.status().code();
  const PoolFile content{kPoolMagic, session.devices[pool.device], pool.handle_types, key_of(pool)};
  if (content.key == 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (pwrite(file->get(), &content, sizeof(content), 0) != sizeof(content)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const int descriptor = file->release();
  memcpy(handle_out, &descriptor, sizeof(descriptor));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(Session& session, CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  if (flags != 0 || handleType == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  PoolFile content{};
  const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  if (fcntl(descriptor, F_GETFD) < 0) return CUDA_ERROR_UNKNOWN;  // as an H200 has it
  if (pread(descriptor, &content, sizeof(content), 0) != sizeof(content) ||
      content.magic != kPoolMagic) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::optional<uint32_t> device = session.devices.ordinal_of(content.wire_device);
  if (!device.has_value()) return CUDA_ERROR_INVALID_DEVICE;
  MemoryPool* pool = session.pools.add(*device, nullptr);
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->key.store(content.key);
  *pool_out = pool->as<CUmemoryPool>();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(Session& session, CUmemPoolPtrExportData* shareData_out,
                                CUdeviceptr ptr) {
  DeviceMemory::Entry entry;
  if (!session.memory.find(ptr, &entry)) return CUDA_ERROR_INVALID_VALUE;
  MemoryPool* pool = session.pools.find(entry.value.pool);
  if (pool == nullptr || pool->handle_types == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t key = key_of(*pool);
  if (key == 0) return CUDA_ERROR_OPERATING_SYSTEM;
  DeviceMemory::Published published;
  OPENMPS_CUDA_CHECK(session.memory.publish(entry.base, true, &published, &entry));
  const ShareHandle share{kShareMagic,         static_cast<uint32_t>(ShareKind::kPooled),
                          session.window_base, published.key,
                          published.bytes,     entry.base - published.base,
                          entry.bytes,         key};
  memcpy(shareData_out, &share, sizeof(share));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(Session& session, CUdeviceptr* ptr_out, MemoryPool& pool,
                                CUmemPoolPtrExportData* shareData) {
  if (pool.arena != nullptr) return CUDA_ERROR_INVALID_VALUE;
  ShareHandle share;
  memcpy(static_cast<void*>(&share), shareData, sizeof(share));
  if (share.magic != kShareMagic || share.kind != static_cast<uint32_t>(ShareKind::kPooled) ||
      share.pool != pool.key.load()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return session.opened.open(share, ptr_out);
}

}  // namespace impl
}  // namespace openmps::client
