// SPDX-License-Identifier: Apache-2.0
// One device's engines: the block scheduler over N simulated multiprocessors, the worker threads
// that run resident blocks, the copy engines, and the arbiter that shares the device among contexts
// and with other processes. A part of the Scheduler: callers hold scheduler_mutex, and so do the
// threads that the scheduler starts for an executor, which release it while they run blocks, copy
// or wait. They start with the first kernel or asynchronous copy.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/machine/config.h"
#include "softgpu/device/machine/segment.h"
#include "softgpu/device/machine/sm.h"
#include "softgpu/device/machine/trace.h"
#include "softgpu/device/schedule/execution_context.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/schedule/scheduler_mutex.h"

namespace openmps::softgpu {

// The scheduler, as its executors see it.
class ExecutorOwner {
 public:
  struct Borrowed {
    ExecutorOwner& owner;
    AddressSpace& memory;
    Trace& trace;
  };
  // A thread, for the rest of the process, that runs `body` with the mutex held.
  virtual void start_thread_locked(const char* name, std::function<void()> body)
      REQUIRES(scheduler_mutex) = 0;
  // The blocks of a grid have ended: it is done when all that they launched is.
  virtual void end_grid_locked(const std::shared_ptr<KernelOperation>& kernel)
      REQUIRES(scheduler_mutex) = 0;
  virtual void complete_locked(const OperationPtr& operation) REQUIRES(scheduler_mutex) = 0;
  // A block of the context's has faulted. True: the context has failed. False: it will, later:
  // until then the block stays where it is.
  virtual bool fault_locked(const std::shared_ptr<ExecutionContext>& context, const Fault& fault)
      REQUIRES(scheduler_mutex) = 0;
  // A copy of the context failed.
  virtual void poison_locked(ExecutionContext& context, CUresult code, const std::string& text)
      REQUIRES(scheduler_mutex) = 0;

 protected:
  ~ExecutorOwner() = default;
};

class DeviceExecutor {
 public:
  DeviceExecutor(const Config& config, int device, DeviceSegment* segment,
                 const ExecutorOwner::Borrowed& borrowed);

  // A kernel is numbered when it is submitted, ...
  void accept_locked(const std::shared_ptr<KernelOperation>& kernel) REQUIRES(scheduler_mutex);
  // ... enters its hardware queue once its predecessors are done, is a candidate at its head, ...
  void ready_locked(const std::shared_ptr<KernelOperation>& kernel) REQUIRES(scheduler_mutex);
  // ... and gets its blocks placed while they fit: highest priority level first, first come first
  // served within it. A kernel that does not fit keeps its SMs from everything behind it; what is
  // left when all its blocks are placed goes to the next.
  void place_locked() REQUIRES(scheduler_mutex);
  // End a kernel whose context failed before it was placed.
  void abandon_locked(const std::shared_ptr<KernelOperation>& kernel) REQUIRES(scheduler_mutex);
  // A context of this process has failed on this device: readers of its Xid events are told.
  void note_fault(CUresult code);
  // Drop every block of a context that has failed.
  void drop_context_locked(ExecutionContext& context) REQUIRES(scheduler_mutex);

  void enqueue_copy_locked(const std::shared_ptr<CopyOperation>& copy) REQUIRES(scheduler_mutex);

  // From here to resume_locked() nothing of this process runs on the device. Others wait until ...
  void halt_locked() REQUIRES(scheduler_mutex);
  // ... this call, which releases the mutex while blocks come to their next safepoint.
  void let_others_run_locked() REQUIRES(scheduler_mutex);
  void resume_locked() REQUIRES(scheduler_mutex);

  // Between these no block runs: see Scheduler::grace_period.
  void begin_interrupt_locked() REQUIRES(scheduler_mutex);
  void end_interrupt_locked() REQUIRES(scheduler_mutex);

 private:
  static constexpr uint32_t kCopyEngines = 2;  // one per direction, as on a GPU

  struct CopyEngine {
    std::deque<std::shared_ptr<CopyOperation>> queue GUARDED_BY(scheduler_mutex);
    CondVar work;
    bool started GUARDED_BY(scheduler_mutex) = false;
  };

  [[nodiscard]] bool fits_locked(const SmState& sm, const SmDemand& demand) const
      REQUIRES(scheduler_mutex);
  // The least loaded SM of `allowed` that the block fits; -1: none.
  [[nodiscard]] int choose_sm_locked(const std::vector<SmState>& sms, const SmSet& allowed,
                                     const SmDemand& demand) const REQUIRES(scheduler_mutex);
  [[nodiscard]] bool all_fit_locked(const KernelOperation& kernel, const SmSet& allowed) const
      REQUIRES(scheduler_mutex);
  // Reserves resources for the blocks of one cluster. False: they do not fit; nothing is reserved.
  bool reserve_locked(ResidentBlock& block, const SmSet& allowed) REQUIRES(scheduler_mutex);
  void unreserve_locked(const ResidentBlock& block) REQUIRES(scheduler_mutex);
  // True: all its blocks are placed now.
  bool place_kernel_locked(const std::shared_ptr<KernelOperation>& kernel, const SmSet& allowed)
      REQUIRES(scheduler_mutex);
  void add_candidate_locked(const std::shared_ptr<KernelOperation>& kernel)
      REQUIRES(scheduler_mutex);
  // One pass over a context's candidates; true: a hardware queue has a new head that may rank
  // higher.
  bool place_round_locked(Residency& residency) REQUIRES(scheduler_mutex);
  // True: the kernel behind it became a candidate.
  bool leave_queue_locked(KernelOperation& kernel) REQUIRES(scheduler_mutex);
  void release_block_locked(const ResidentBlock& block) REQUIRES(scheduler_mutex);
  void finish_kernel_locked(const std::shared_ptr<KernelOperation>& kernel)
      REQUIRES(scheduler_mutex);
  void settle_locked(ResidentBlock block, BlockState state) REQUIRES(scheduler_mutex);
  int take_sm_locked(uint32_t* cursor) REQUIRES(scheduler_mutex);
  void trace_block_locked(const char* what, const ResidentBlock& block) REQUIRES(scheduler_mutex);

  void start_workers_locked() REQUIRES(scheduler_mutex);
  // Threads.
  void worker_main(uint32_t index) REQUIRES(scheduler_mutex);
  void copy_engine_main(uint32_t index) REQUIRES(scheduler_mutex);

  // Contexts of this process take turns: one at a time has blocks running.
  void next_turn_locked() REQUIRES(scheduler_mutex);
  // Forgets contexts without candidates and blocks; a context without blocks loses its turn.
  void settle_turns_locked() REQUIRES(scheduler_mutex);
  [[nodiscard]] bool several_wait_locked() const REQUIRES(scheduler_mutex);
  // Returns when no block runs. Releases the mutex meanwhile.
  void stop_blocks_locked() REQUIRES(scheduler_mutex);

  // The right to run kernels (segment.h).
  void arbiter_main() REQUIRES(scheduler_mutex);
  void want_device_locked() REQUIRES(scheduler_mutex);
  void leave_device_if_idle_locked() REQUIRES(scheduler_mutex);
  void preempt_locked() REQUIRES(scheduler_mutex);

  const Config config_;
  const int device_;
  const SmLimits limits_;
  DeviceSegment* segment_;
  ExecutorOwner& owner_;
  AddressSpace& memory_;
  Trace& trace_;

  // Contexts with candidates or blocks.
  std::vector<std::shared_ptr<ExecutionContext>> tenants_ GUARDED_BY(scheduler_mutex);
  // The tenant whose blocks may run; null: none has any.
  ExecutionContext* turn_ GUARDED_BY(scheduler_mutex) = nullptr;
  uint64_t turn_ns_ GUARDED_BY(scheduler_mutex) = 0;  // when its turn began
  // Blocks (clusters) of all tenants on SMs: runnable or running.
  uint64_t resident_ GUARDED_BY(scheduler_mutex) = 0;
  // Blocks that have faulted, of contexts that have not failed yet.
  std::vector<ResidentBlock> faulted_ GUARDED_BY(scheduler_mutex);
  // Blocks (clusters) that a worker runs at this moment.
  uint32_t running_ GUARDED_BY(scheduler_mutex) = 0;
  uint64_t next_launch_ GUARDED_BY(scheduler_mutex) = 1;

  bool workers_started_ GUARDED_BY(scheduler_mutex) = false;
  uint32_t idle_workers_ GUARDED_BY(scheduler_mutex) = 0;
  CondVar work_;
  CondVar quiet_;  // running_ became 0

  bool have_device_ GUARDED_BY(scheduler_mutex) = false;
  bool preempting_ GUARDED_BY(scheduler_mutex) = false;
  bool halted_ GUARDED_BY(scheduler_mutex) = false;
  uint32_t interrupts_ GUARDED_BY(scheduler_mutex) = 0;
  std::atomic<bool> stop_{false};  // what BlockRun::run polls: preempting_ or interrupts_

  CopyEngine copy_engines_[kCopyEngines];
};

}  // namespace openmps::softgpu
