// SPDX-License-Identifier: Apache-2.0
// The scheduler: keeps the graph of operations of all contexts of this process, hands what is ready
// to the engine that carries it out, and records what is done. scheduler_mutex guards all of its
// state, here and in operations, contexts and their queues. API threads submit and wait; workers,
// copy engines, the host-function thread and the service thread complete.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "softgpu/device/machine/address_space.h"
#include "softgpu/device/machine/backing.h"
#include "softgpu/device/machine/config.h"
#include "softgpu/device/machine/trace.h"
#include "softgpu/device/schedule/device_executor.h"
#include "softgpu/device/schedule/execution_context.h"
#include "softgpu/device/schedule/operation.h"
#include "softgpu/device/schedule/scheduler_mutex.h"

namespace openmps::softgpu {

class Scheduler;

// The right to submit while scheduler_mutex is held, so that several changes are made as one.
// Scheduler::together() gives it out, and callbacks of the scheduler get it.
class Submission {
 public:
  // See the functions of Scheduler with these names; fail() is Scheduler::poison_locked().
  void submit(StreamQueue& stream, const OperationPtr& operation,
              std::span<const OperationPtr> also_after = {}) REQUIRES(scheduler_mutex);
  void submit_unordered(const OperationPtr& operation, std::span<const OperationPtr> after)
      REQUIRES(scheduler_mutex);
  void fail(ExecutionContext& context, CUresult code, const std::string& text)
      REQUIRES(scheduler_mutex);

 private:
  friend class Scheduler;
  explicit Submission(Scheduler& scheduler) : scheduler_(scheduler) {}
  Scheduler& scheduler_;
};

class Scheduler final : private ExecutorOwner {
 public:
  // `end_allocation` ends the allocation of a
  // cuMemFreeAsync, and returns its memory, which the scheduler frees.
  Scheduler(AddressSpace* memory, Trace* trace, const Config& config,
            std::function<Backing(uint64_t)> end_allocation);

  // Devices are added before the first submission and live as long as the process.
  void add_device(const Config& config, int device, DeviceSegment* segment);

  // Append `operation` to a stream, behind its tail, behind `also_after` and, for the legacy stream
  // and blocking streams, behind each other as CUDA's default-stream rules say.
  void submit(StreamQueue& stream, const OperationPtr& operation,
              std::span<const OperationPtr> also_after = {});
  // An operation with given predecessors that is in no stream.
  void submit_unordered(const OperationPtr& operation, std::span<const OperationPtr> after);
  // `body(Submission&)`, during which nothing else is submitted, starts or ends.
  template <typename Body>
  auto together(Body&& body) {
    const MutexLock lock(scheduler_mutex);
    Submission submission(*this);
    return body(submission);
  }

  // From here to close() the context may have work.
  void open(const std::shared_ptr<ExecutionContext>& context);
  // The legacy stream is the context's first.
  void add_stream(ExecutionContext& context, const std::shared_ptr<StreamQueue>& stream);
  // The stream is destroyed: its queue is forgotten once it is idle.
  void retire_stream(StreamQueue& stream);
  // The operation that was submitted last; null: none.
  [[nodiscard]] OperationPtr tail(const StreamQueue& stream);

  // Block until done. Costs no processor time.
  void wait(const OperationPtr& operation);
  [[nodiscard]] bool is_done(const OperationPtr& operation);  // null counts as done
  // When it was done, in now_ns() time; none: it is not.
  [[nodiscard]] std::optional<uint64_t> finished_ns(const OperationPtr& operation);
  // Carry out a submitted copy with inline_execution on this thread, once its turn has come. Not
  // carried out if the context has an error by then.
  void run_inline(const std::shared_ptr<CopyOperation>& copy);

  // Everything submitted so far to any stream of the context is done.
  void wait_idle(ExecutionContext& context);
  [[nodiscard]] bool is_idle(ExecutionContext& context);
  // See quiescence.h. Launches call await_launches_allowed() first.
  void begin_quiescence(ExecutionContext& context);
  void end_quiescence(ExecutionContext& context);
  void await_launches_allowed(ExecutionContext& context);
  // Called before a submission. Returns when fewer than `stream_items` operations of the stream are
  // not done (1,020 on an H200; threads that submit to other streams go on), and no fault holds
  // submissions (FaultDelays::holds).
  void await_submission(const StreamQueue& stream);
  // Keeps `object` alive until everything submitted so far in the context is done. Returns at once.
  void keep_until_idle(const std::shared_ptr<ExecutionContext>& context,
                       std::shared_ptr<const void> object);
  // Operations that a stream's next operation would wait for are done.
  [[nodiscard]] bool is_stream_idle(ExecutionContext& context, StreamQueue& stream);
  // Let everything submitted finish, waits for memory words excepted: they are given up.
  void close(ExecutionContext& context);
  // Drops the last operations of a closed context's streams, which refer to the context.
  void forget_streams(ExecutionContext& context);

  // Memory whose range was removed: freed once no reader can hold it. Returns at once.
  void reclaim_later(const Backing& backing);
  // Interrupt running kernels at their next safepoint and return when no reader that entered before
  // this call is left. Not from a worker, a copy engine or with the mutex held.
  void grace_period();
  // Run `change` while the device touches no memory: kernels are interrupted, copies are over.
  template <typename Change>
  void with_memory_at_rest(Change&& change) {
    begin_interrupt();
    memory_->without_readers(change);
    end_interrupt();
  }

 private:
  friend class Submission;

  void submit_locked(StreamQueue& stream, const OperationPtr& operation,
                     std::span<const OperationPtr> also_after) REQUIRES(scheduler_mutex);
  void submit_unordered_locked(const OperationPtr& operation, std::span<const OperationPtr> after)
      REQUIRES(scheduler_mutex);

  // A kernel's fault between the faulting instruction and the moment at which the driver tells.
  struct PendingFault {
    std::shared_ptr<ExecutionContext> context;
    Fault fault;
    // When everything of the process stops, other processes get the device and NVML the Xid event,
    // and the contexts have the error; 0: that is over.
    uint64_t halt_ns = 0;
    uint64_t xid_ns = 0;
    uint64_t report_ns = 0;
    bool holds = false;  // FaultDelays
  };

  bool fault_locked(const std::shared_ptr<ExecutionContext>& context, const Fault& fault)
      REQUIRES(scheduler_mutex) override;
  // Thread: carries out what `pending_` says. Until it has ended, queries answer as before.
  void fault_thread_main() REQUIRES(scheduler_mutex);
  // Nothing of the process runs, ends or starts, until the contexts have failed.
  void halt_locked() REQUIRES(scheduler_mutex);
  void resume_locked() REQUIRES(scheduler_mutex);
  // The error sticks to all contexts of the process, nothing of them runs any more (as on an H200,
  // where fault domains are processes). At once; Xid events are the caller's.
  void fail_locked(const ExecutionContext& context, CUresult code, const std::string& text)
      REQUIRES(scheduler_mutex);
  // The same, and its Xid event.
  void poison_locked(ExecutionContext& context, CUresult code, const std::string& text)
      REQUIRES(scheduler_mutex) override;
  void end_grid_locked(const std::shared_ptr<KernelOperation>& kernel)
      REQUIRES(scheduler_mutex) override;
  // Mark done and start what waited for it.
  void complete_locked(const OperationPtr& operation) REQUIRES(scheduler_mutex) override;
  void reclaim_later_locked(const Backing& backing) REQUIRES(scheduler_mutex);

  [[nodiscard]] DeviceExecutor& executor(int device) { return *executors_[device]; }
  void begin_interrupt();
  void end_interrupt();
  void add_edge_locked(const OperationPtr& before, const OperationPtr& after)
      REQUIRES(scheduler_mutex);
  void release_hold_locked(const OperationPtr& operation) REQUIRES(scheduler_mutex);
  void dispatch_locked(const OperationPtr& operation) REQUIRES(scheduler_mutex);
  void drain_ready_locked() REQUIRES(scheduler_mutex);
  // The operation starts, or is done: the next one in its connection may go on.
  void leave_connection_locked(Operation& operation) REQUIRES(scheduler_mutex);
  // False: a wait among the actions is not satisfied yet. A context that has failed waits for none.
  bool advance_words_locked(MemoryWordsOperation& words) REQUIRES(scheduler_mutex);
  void finish_marker_locked(MarkerOperation& marker) REQUIRES(scheduler_mutex);
  void retire_streams_locked(ExecutionContext& context) REQUIRES(scheduler_mutex);
  // The operations after which everything in the context is done.
  [[nodiscard]] std::vector<OperationPtr> tails_locked(ExecutionContext& context)
      REQUIRES(scheduler_mutex);
  // False: the operation was completed instead of becoming ready.
  [[nodiscard]] bool wait_ready(const OperationPtr& operation);

  void start_thread_locked(const char* name, std::function<void()> body)
      REQUIRES(scheduler_mutex) override;
  void start_host_thread_locked() REQUIRES(scheduler_mutex);
  [[noreturn]] void host_thread_main() REQUIRES(scheduler_mutex);
  void run_host_function(const std::shared_ptr<HostOperation>& operation) REQUIRES(scheduler_mutex);
  void start_service_thread_locked() REQUIRES(scheduler_mutex);
  void service_thread_main() REQUIRES(scheduler_mutex);

  AddressSpace* memory_;
  Trace* trace_;
  const uint32_t stream_items_;  // see await_submission(); 0: no limit
  const FaultSettings faults_;
  const bool holds_;  // some fault holds submissions
  const std::function<Backing(uint64_t)> end_allocation_;
  std::vector<std::unique_ptr<DeviceExecutor>> executors_;
  std::vector<std::shared_ptr<ExecutionContext>> open_ GUARDED_BY(scheduler_mutex);
  CondVar done_;

  std::optional<PendingFault> pending_ GUARDED_BY(scheduler_mutex);
  bool halted_ GUARDED_BY(scheduler_mutex) = false;
  uint64_t injectable_ GUARDED_BY(scheduler_mutex) = 0;  // launches of the kernel of SOFTGPU_FAULT

  // Operations that became ready while others are being dispatched: a list, not recursion.
  std::deque<OperationPtr> ready_ GUARDED_BY(scheduler_mutex);
  bool draining_ GUARDED_BY(scheduler_mutex) = false;

  std::deque<std::shared_ptr<HostOperation>> host_queue_ GUARDED_BY(scheduler_mutex);
  CondVar host_work_;
  bool host_thread_started_ GUARDED_BY(scheduler_mutex) = false;

  // Waits for memory words are looked at when this process's device may have changed memory and,
  // since the program may store to host memory at any time, again after a growing pause.
  std::vector<std::shared_ptr<MemoryWordsOperation>> word_waits_ GUARDED_BY(scheduler_mutex);
  std::vector<Backing> reclaim_ GUARDED_BY(scheduler_mutex);
  CondVar service_work_;
  bool service_thread_started_ GUARDED_BY(scheduler_mutex) = false;
};

// True on the thread that runs cuLaunchHostFunc functions, while one runs: they must not call CUDA.
bool in_host_function();

}  // namespace openmps::softgpu
