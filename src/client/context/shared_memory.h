// SPDX-License-Identifier: Apache-2.0
// Device memory of other processes that this process has opened (cuIpcOpenMemHandle,
// cuMemPoolImportPointer), and the contents of the 64 bytes that processes exchange for it. Any
// thread.
#pragma once

#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "client/context/contexts.h"
#include "client/context/stream.h"
#include "client/devices.h"
#include "client/link/channel.h"
#include "client/memory/memory.h"
#include "cuda/abi.h"
#include "wire/commands/memory.h"

namespace openmps::client {

// The contents of CUipcMemHandle, CUipcEventHandle and CUmemPoolPtrExportData. Whoever has the key
// may open the memory; the worker checks the other fields.
struct ShareHandle {
  uint32_t magic;
  uint32_t kind;      // ShareKind
  uint64_t exporter;  // window base of the session that made the handle
  wire::ShareKey key;
  uint64_t physical_bytes;
  uint64_t offset;  // of the allocation in the physical memory
  uint64_t bytes;   // of the allocation
  uint64_t pool;    // MemoryPool::key; else 0
};
static_assert(sizeof(ShareHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(ShareHandle) == sizeof(CUipcEventHandle));
static_assert(sizeof(ShareHandle) == sizeof(CUmemPoolPtrExportData));
inline constexpr uint32_t kShareMagic = 0x53504d4f;  // "OMPS"
enum class ShareKind : uint32_t { kMemory = 1, kEvent = 2, kPooled = 3 };

class OpenedMemory {
 public:
  // `window_base`: of this session.
  OpenedMemory(Channel& channel, DeviceMemory& memory, const Devices& devices,
               const Contexts& contexts, Streams& streams, uint64_t window_base)
      : channel_(channel),
        memory_(memory),
        devices_(devices),
        contexts_(contexts),
        streams_(streams),
        window_base_(window_base) {}

  // Memory that is opened again has one address, until it is closed as often as it was opened.
  // Errors: CUDA_ERROR_INVALID_HANDLE: the handle names nothing; CUDA_ERROR_INVALID_CONTEXT: the
  // memory is this process's own; CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult open(const ShareHandle& handle, CUdeviceptr* address);
  // Errors: CUDA_ERROR_INVALID_VALUE: nothing was opened there; the session's end.
  [[nodiscard]] CUresult close(CUdeviceptr address);
  // An address that open() gave out.
  [[nodiscard]] bool contains(CUdeviceptr address);

 private:
  struct Opened {
    wire::ShareKey key;
    uint64_t base = 0;   // of the mapping
    uint64_t bytes = 0;  // of the mapping
    uint32_t wire_device = 0;
    uint32_t opens = 1;
  };

  Channel& channel_;
  DeviceMemory& memory_;
  const Devices& devices_;
  const Contexts& contexts_;
  Streams& streams_;
  const uint64_t window_base_;
  Mutex opening_{LockRank::kClientSharedOpening};  // held while the worker maps
  // Taken by every free of the program: nothing waits with it held.
  Mutex lock_{LockRank::kClientSharedMemory};
  std::map<uint64_t, Opened> opened_ GUARDED_BY(lock_);  // by the address that the program has
};

}  // namespace openmps::client
