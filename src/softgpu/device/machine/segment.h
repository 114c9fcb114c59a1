// SPDX-License-Identifier: Apache-2.0
// The part of a device that processes share: memory accounting, the list of contexts and the right
// to run kernels, in one shared-memory file per device. Attached by every process at cuInit; used
// by its API threads, workers and arbiter. Survives the SIGKILL of any process at any instruction:
// the mutex is robust, and what a dead process held is found by its pid and start time and taken
// back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/status.h"

namespace openmps::softgpu {

struct SegmentLayout;  // segment.cc

enum class ContextKind : uint32_t { kPrimary = 0, kCreated = 1 };

// What softgpu-info prints: a consistent snapshot with the dead already taken out.
struct SegmentReport {
  struct Process {
    int32_t pid = 0;
    uint64_t memory_bytes = 0;
    uint64_t slices = 0;  // times that it was given the device
  };
  struct Context {
    int32_t pid = 0;
    uint64_t id = 0;
    ContextKind kind = ContextKind::kPrimary;
  };
  uint64_t memory_total = 0;
  uint64_t memory_used = 0;
  int32_t running_pid = 0;  // the process that may run kernels now; 0: none
  std::vector<Process> processes;
  std::vector<Context> contexts;
};

class DeviceSegment {
 public:
  // Create or join the segment `name` (a file of /dev/shm). The first to come sets the memory size.
  // Errors: CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_OUT_OF_MEMORY (too many processes).
  static Result<std::unique_ptr<DeviceSegment>> attach(const std::string& name,
                                                       uint64_t memory_bytes);
  // A snapshot of a segment that this process need not have joined. CUDA_ERROR_NOT_FOUND: no such
  // segment, which is how an unused device looks.
  static Result<SegmentReport> inspect(const std::string& name);

  DeviceSegment(const DeviceSegment&) = delete;
  DeviceSegment& operator=(const DeviceSegment&) = delete;
  ~DeviceSegment();

  // Leave; the last process removes the file. Nothing else may be called afterwards.
  void detach();

  // CUDA_ERROR_OUT_OF_MEMORY when all processes together would exceed the device.
  Status reserve_memory(uint64_t bytes);
  void return_memory(uint64_t bytes);
  void memory_info(uint64_t* free_bytes, uint64_t* total_bytes);

  // `exclusive`: on a device in exclusive process mode. Errors: CUDA_ERROR_DEVICE_UNAVAILABLE when
  // another process has a context there, then; CUDA_ERROR_OUT_OF_MEMORY when the table is full.
  Status add_context(uint64_t id, ContextKind kind, bool exclusive = false);
  void remove_context(uint64_t id);

  // The right to run kernels: at most one process has it.
  // True: this process has it (now or already). False: it waits in line, and the doorbell rings
  // when its turn has come (then call again).
  bool try_acquire();
  // Give it to the next process in line, if this process has it.
  void release();
  // Another process waits in line. Lock-free: a hint.
  [[nodiscard]] bool contended() const;
  // When this process last received the right, in now_ns() time.
  [[nodiscard]] uint64_t acquired_ns() const { return acquired_ns_; }
  // Take back what dead processes hold, the right to run included.
  void reclaim_dead();
  // A context of this process has failed. `xid`: the number of the kind of fault in NVIDIA's list
  // of Xid errors. FaultReader tells other processes.
  void note_fault(uint32_t xid);

  // Futex word that rings when the right was passed to this process, when a process joined the line
  // behind it, and when ring() is called.
  [[nodiscard]] std::atomic<uint32_t>* doorbell();
  void ring();

 private:
  DeviceSegment() = default;

  SegmentLayout* layout_ = nullptr;
  std::string path_;
  int32_t slot_ = -1;
  std::atomic<bool> attached_{false};
  std::atomic<uint64_t> acquired_ns_{0};
};

// Reads the faults of all processes on a device, from the time of its construction on. The device
// need not be in use. One thread.
class FaultReader {
 public:
  explicit FaultReader(const std::string& segment_name);
  FaultReader(const FaultReader&) = delete;
  FaultReader& operator=(const FaultReader&) = delete;
  ~FaultReader();

  // The Xid of the oldest fault that has not been returned, if there is one. Of more than 64 faults
  // between two calls the oldest are lost.
  std::optional<uint32_t> next();

 private:
  // Follows the file of that name: the last process that leaves a device removes it.
  void follow();
  void unmap();

  const std::string path_;
  const SegmentLayout* layout_ = nullptr;
  uint64_t inode_ = 0;
  uint64_t read_ = 0;  // faults of this file that were returned or came before
};

}  // namespace openmps::softgpu
