// SPDX-License-Identifier: Apache-2.0
// Memory and events shared between processes, and exported pools. Any thread.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "softgpu/device/memory/ipc.h"
#include "softgpu/device/memory/pool.h"
#include "softgpu/device/work/event.h"
#include "softgpu/front/front.h"

using namespace openmps;           // NOLINT: entry points live outside the namespace
using namespace openmps::softgpu;  // NOLINT: entry points live outside the namespace

namespace {

template <typename Handle>
Ticket read_ticket(const Handle& handle) {
  Ticket ticket;
  memcpy(static_cast<void*>(&ticket), &handle, sizeof ticket);
  return ticket;
}

template <typename Handle>
Status deliver_ticket(const Result<Ticket>& ticket, Handle* handle) {
  if (!ticket.ok()) return ticket.status();
  memcpy(handle, &*ticket, sizeof *ticket);
  return Status();
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_context([&](Caller& caller) -> Status {
    return deliver_ticket(caller.driver.ipc.export_memory(dptr), pHandle);
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return with_context([&](Caller& caller) -> Status {
    if (pdptr == nullptr) return no_result();
    if (Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return invalid_value("not the one flag");
    return deliver(caller.driver.ipc.open_memory(*caller.context, read_ticket(handle)), pdptr);
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  return with_context([&](Caller& caller) { return caller.driver.ipc.close_memory(dptr); });
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  return with_context([&](Caller& caller) -> Status {
    if (event == nullptr || pHandle == nullptr) return invalid_value("a null argument");
    const std::shared_ptr<Event> found = caller.driver.events.find(event);
    if (found == nullptr || found->shared == nullptr) {
      return invalid_handle("not an event for other processes");
    }
    return deliver_ticket(caller.driver.ipc.export_event(found->shared.get()), pHandle);
  });
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  return with_context([&](Caller& caller) -> Status {
    if (phEvent == nullptr) return no_result();
    Result<std::shared_ptr<SharedEvent>> shared = caller.driver.ipc.open_event(read_ticket(handle));
    if (!shared.ok()) return shared.status();
    return deliver_handle(adopt_event(caller.context, *shared), phEvent);
  });
}

CUresult cuMemPoolExportToShareableHandle(void* handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
  return with_driver([&](Driver& driver) -> Status {
    const std::shared_ptr<MemoryPool> found = driver.memory_pools.find(pool);
    if (handle_out == nullptr || flags != 0) return invalid_value("a bad argument");
    if (found == nullptr || found->file == nullptr ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return invalid_value("not a pool that can be exported so");
    }
    const int descriptor = fcntl(found->file->file.get(), F_DUPFD_CLOEXEC, 0);
    if (descriptor < 0) return Status(CUDA_ERROR_OPERATING_SYSTEM, strerror(errno));
    memcpy(handle_out, &descriptor, sizeof descriptor);
    return Status();
  });
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* pool_out, void* handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags) {
  return with_context([&](Caller& caller) -> Status {
    if (pool_out == nullptr || flags != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return invalid_value("a bad argument");
    }
    auto pool = std::make_shared<MemoryPool>();
    const auto descriptor = static_cast<int>(reinterpret_cast<intptr_t>(handle));
    if (fcntl(descriptor, F_GETFD) < 0) return Status(CUDA_ERROR_UNKNOWN, "no such descriptor");
    if (!shared_file_key(descriptor, &pool->key)) {
      return invalid_value("the descriptor is not an exported pool");
    }
    pool->device = caller.context->device().ordinal;
    pool->imported = true;
    pool->handle = caller.driver.memory_pools.add(pool);
    *pool_out = pool->handle;
    return Status();
  });
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* shareData_out, CUdeviceptr ptr) {
  return with_context([&](Caller& caller) -> Status {
    if (shareData_out == nullptr) return no_result();
    return deliver_ticket(caller.driver.ipc.export_pooled(ptr), shareData_out);
  });
}

CUresult cuMemPoolImportPointer(CUdeviceptr* ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData* shareData) {
  return with_context([&](Caller& caller) -> Status {
    if (ptr_out == nullptr || shareData == nullptr) return no_result();
    const std::shared_ptr<MemoryPool> found = caller.driver.memory_pools.find(pool);
    if (found == nullptr) return invalid_value("not a memory pool");
    return deliver(
        caller.driver.ipc.import_pooled(*caller.context, *found, read_ticket(*shareData)), ptr_out);
  });
}
