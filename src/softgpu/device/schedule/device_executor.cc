// SPDX-License-Identifier: Apache-2.0
// Block scheduler, workers, copy engines and arbiter of one device. See device_executor.h.
#include "softgpu/device/schedule/device_executor.h"

#include <algorithm>

#include "base/clock.h"
#include "base/futex.h"
#include "softgpu/device/schedule/copy_run.h"

namespace openmps::softgpu {
namespace {

// Warp instructions between two looks at the run queue of an SM: about 100 us at 3 ns each, so that
// a block that spins can't starve the one it waits for, and switching costs nothing.
constexpr uint64_t kBlockBudget = 32 * 1024;

// How long a process waits in line before it looks whether the one ahead of it has died. Only a
// death needs the look: a hand-over rings the doorbell.
constexpr uint64_t kDeathCheckNs = 20'000'000;

// The place of a cluster in the grid of clusters; without clusters, of a block in the grid.
void cluster_coordinates(const Launch& launch, uint64_t index, uint32_t out[3]) {
  const uint64_t width = launch.grid[0] / launch.cluster[0];
  const uint64_t plane = width * (launch.grid[1] / launch.cluster[1]);
  out[2] = static_cast<uint32_t>(index / plane);
  out[1] = static_cast<uint32_t>(index % plane / width);
  out[0] = static_cast<uint32_t>(index % plane % width);
}

std::unique_ptr<BlockRun> start(const KernelOperation& kernel, uint64_t index, uint32_t sm,
                                const std::vector<uint32_t>& more_sms) {
  uint32_t coordinates[3];
  cluster_coordinates(kernel.launch, index, coordinates);
  if (kernel.cluster_blocks == 1) return start_block(kernel.launch, coordinates, kernel.seed);
  std::vector<uint32_t> sms = {sm};
  sms.insert(sms.end(), more_sms.begin(), more_sms.end());
  return start_cluster(kernel.launch, coordinates, sms, kernel.seed);
}

// The Xid that NVIDIA's driver 580 was seen to report for such a fault on an H200.
uint32_t xid_of(CUresult code) {
  constexpr uint32_t kSmException = 13;
  constexpr uint32_t kPageFault = 31;
  constexpr uint32_t kStoppedProcessing = 43;
  switch (code) {
    case CUDA_ERROR_ILLEGAL_ADDRESS: return kPageFault;
    case CUDA_ERROR_LAUNCH_FAILED:  // a trap, or the stack has overflowed
    case CUDA_ERROR_ASSERT: return kStoppedProcessing;
    default: return kSmException;
  }
}

}  // namespace

DeviceExecutor::DeviceExecutor(const Config& config, int device, DeviceSegment* segment,
                               const ExecutorOwner::Borrowed& borrowed)
    : config_(config),
      device_(device),
      limits_(sm_limits(config.compute_capability)),
      segment_(segment),
      owner_(borrowed.owner),
      memory_(borrowed.memory),
      trace_(borrowed.trace) {}

// ---- Block scheduler --------------------------------------------------------------------------

void DeviceExecutor::accept_locked(const std::shared_ptr<KernelOperation>& kernel) {
  start_workers_locked();
  std::vector<SmState>& sms = kernel->context->residency.sms;
  if (sms.empty()) sms = std::vector<SmState>(config_.sm_count);
  kernel->id = next_launch_++;
  if (config_.seed != 0) kernel->seed = config_.seed * 0x9e3779b97f4a7c15ull + kernel->id;
  kernel->queue %= static_cast<uint32_t>(kernel->context->hardware_queues.size());
}

void DeviceExecutor::ready_locked(const std::shared_ptr<KernelOperation>& kernel) {
  auto& queue = kernel->context->hardware_queues[kernel->queue];
  queue.push_back(kernel);
  if (queue.front() == kernel) add_candidate_locked(kernel);
}

void DeviceExecutor::add_candidate_locked(const std::shared_ptr<KernelOperation>& kernel) {
  kernel->context->residency.candidates[kernel->level].push_back(kernel);
  if (std::find(tenants_.begin(), tenants_.end(), kernel->context) != tenants_.end()) return;
  tenants_.push_back(kernel->context);
  if (tenants_.size() > 1) segment_->ring();  // from now on the arbiter ends turns
}

bool DeviceExecutor::leave_queue_locked(KernelOperation& kernel) {
  auto& queue = kernel.context->hardware_queues[kernel.queue];
  auto position = std::find_if(queue.begin(), queue.end(),
                               [&](const auto& other) { return other.get() == &kernel; });
  if (position == queue.end()) return false;
  bool was_head = position == queue.begin();
  queue.erase(position);
  if (!was_head || queue.empty()) return false;
  add_candidate_locked(queue.front());
  return true;
}

void DeviceExecutor::abandon_locked(const std::shared_ptr<KernelOperation>& kernel) {
  leave_queue_locked(*kernel);
  finish_kernel_locked(kernel);
}

bool DeviceExecutor::fits_locked(const SmState& sm, const SmDemand& demand) const {
  return sm.blocks < limits_.blocks && sm.used.threads + demand.threads <= limits_.threads &&
         sm.used.registers + demand.registers <= limits_.registers &&
         sm.used.shared_bytes + demand.shared_bytes <= limits_.shared_bytes;
}

int DeviceExecutor::choose_sm_locked(const std::vector<SmState>& sms, const SmSet& allowed,
                                     const SmDemand& demand) const {
  int best = -1;
  for (uint32_t i = 0; i < sms.size(); ++i) {
    if (!allowed[i] || !fits_locked(sms[i], demand)) continue;
    if (best < 0 || sms[i].used.threads < sms[best].used.threads) best = static_cast<int>(i);
  }
  return best;
}

bool DeviceExecutor::all_fit_locked(const KernelOperation& kernel, const SmSet& allowed) const {
  const std::vector<SmState>& sms = kernel.context->residency.sms;
  uint64_t fitting = 0;
  for (uint32_t i = 0; i < sms.size(); ++i) {
    if (!allowed[i]) continue;
    SmState copy;
    copy.used = sms[i].used;
    copy.blocks = sms[i].blocks;
    for (; fits_locked(copy, kernel.demand); ++fitting, ++copy.blocks) {
      copy.used.threads += kernel.demand.threads;
      copy.used.registers += kernel.demand.registers;
      copy.used.shared_bytes += kernel.demand.shared_bytes;
    }
  }
  return fitting >= kernel.cluster_count * kernel.cluster_blocks;
}

bool DeviceExecutor::reserve_locked(ResidentBlock& block, const SmSet& allowed) {
  std::vector<SmState>& sms = block.kernel->context->residency.sms;
  const SmDemand& demand = block.kernel->demand;
  for (uint32_t rank = 0; rank < block.kernel->cluster_blocks; ++rank) {
    const int chosen = choose_sm_locked(sms, allowed, demand);
    if (chosen < 0) {
      if (rank > 0) unreserve_locked(block);
      return false;
    }
    SmState& sm = sms[chosen];
    sm.used.threads += demand.threads;
    sm.used.registers += demand.registers;
    sm.used.shared_bytes += demand.shared_bytes;
    ++sm.blocks;
    if (rank == 0) {
      block.sm = static_cast<uint32_t>(chosen);
    } else {
      block.more_sms.push_back(static_cast<uint32_t>(chosen));
    }
  }
  return true;
}

void DeviceExecutor::unreserve_locked(const ResidentBlock& block) {
  const SmDemand& demand = block.kernel->demand;
  const auto give = [&](uint32_t index) REQUIRES(scheduler_mutex) {
    SmState& sm = block.kernel->context->residency.sms[index];
    sm.used.threads -= demand.threads;
    sm.used.registers -= demand.registers;
    sm.used.shared_bytes -= demand.shared_bytes;
    --sm.blocks;
  };
  give(block.sm);
  for (const uint32_t sm : block.more_sms) give(sm);
}

bool DeviceExecutor::place_kernel_locked(const std::shared_ptr<KernelOperation>& kernel,
                                         const SmSet& allowed) {
  if (kernel->cooperative && kernel->placed == 0 && !all_fit_locked(*kernel, allowed)) return false;
  Residency& residency = kernel->context->residency;
  while (kernel->placed < kernel->cluster_count) {
    ResidentBlock block;
    block.kernel = kernel;
    block.index = kernel->placed;
    if (!reserve_locked(block, allowed)) return false;
    if (kernel->placed == 0) kernel->started_ns = now_ns();
    trace_block_locked("place", block);
    residency.sms[block.sm].runnable.push_back(std::move(block));
    ++kernel->placed;
    ++kernel->resident;
    ++residency.blocks;
    ++resident_;
  }
  return true;
}

void DeviceExecutor::place_locked() {
  for (const auto& tenant : tenants_) {
    while (place_round_locked(tenant->residency)) {
    }
  }
  settle_turns_locked();
  if (resident_ > running_) want_device_locked();
}

bool DeviceExecutor::place_round_locked(Residency& residency) {
  SmSet taken;  // SMs that a kernel further ahead waits for
  for (auto& level : residency.candidates) {
    for (auto at = level.begin(); at != level.end();) {
      std::shared_ptr<KernelOperation> kernel = *at;
      SmSet allowed = kernel->sms & ~taken;
      // A kernel whose SMs are partly taken may use the rest, unless it must start all at once.
      bool complete = allowed.any() && place_kernel_locked(kernel, allowed);
      if (complete) {
        at = level.erase(at);
        if (leave_queue_locked(*kernel)) return true;
        continue;
      }
      taken |= kernel->sms;
      if (taken.count() >= config_.sm_count) return false;
      ++at;
    }
  }
  return false;
}

void DeviceExecutor::release_block_locked(const ResidentBlock& block) {
  unreserve_locked(block);
  --block.kernel->context->residency.blocks;
  --resident_;
}

void DeviceExecutor::finish_kernel_locked(const std::shared_ptr<KernelOperation>& kernel) {
  uint64_t now = now_ns();
  if (trace_.enabled() && kernel->started_ns != 0) {
    trace_.event('X', "kernel", kernel->name,
                 "context " + std::to_string(kernel->context->id) + " stream " +
                     std::to_string(kernel->stream_id),
                 kernel->started_ns, now, "\"launch\":" + std::to_string(kernel->id));
  }
  if (WorkRecord* record = kernel->record.get(); record != nullptr) {
    record->activity.end_ns = now;
    // Of a node that kernels change, only now known.
    std::copy_n(kernel->launch.grid, 3, record->activity.grid);
  }
  if (kernel->cooperative) {
    MappedRange range;
    memory_.remove(kernel->launch.grid_workspace, &range);
  }
  owner_.end_grid_locked(kernel);
}

void DeviceExecutor::note_fault(CUresult code) { segment_->note_fault(xid_of(code)); }

void DeviceExecutor::drop_context_locked(ExecutionContext& context) {
  std::vector<std::shared_ptr<KernelOperation>> finished;
  for (auto& level : context.residency.candidates) {
    for (const auto& kernel : level) {
      if (kernel->resident == 0) finished.push_back(kernel);
    }
    level.clear();
  }
  for (auto& queue : context.hardware_queues) {
    for (auto& kernel : queue) {
      if (kernel->placed == 0) finished.push_back(kernel);
    }
    queue.clear();
  }
  for (SmState& sm : context.residency.sms) {
    auto blocks = std::move(sm.runnable);
    sm.runnable.clear();
    for (ResidentBlock& block : blocks) {
      release_block_locked(block);
      if (--block.kernel->resident == 0) finished.push_back(block.kernel);
    }
  }
  std::erase_if(faulted_, [&](const ResidentBlock& block) REQUIRES(scheduler_mutex) {
    if (block.kernel->context.get() != &context) return false;
    release_block_locked(block);
    if (--block.kernel->resident == 0) finished.push_back(block.kernel);
    return true;
  });
  for (const auto& kernel : finished) {
    if (!kernel->done) finish_kernel_locked(kernel);
  }
}

// ---- Workers ----------------------------------------------------------------------------------

void DeviceExecutor::start_workers_locked() {
  if (workers_started_) return;
  workers_started_ = true;
  for (uint32_t i = 0; i < config_.workers; ++i) {
    owner_.start_thread_locked("softgpu-sm",
                               [this, i]() REQUIRES(scheduler_mutex) { worker_main(i); });
  }
  owner_.start_thread_locked("softgpu-arbiter",
                             [this]() REQUIRES(scheduler_mutex) { arbiter_main(); });
}

int DeviceExecutor::take_sm_locked(uint32_t* cursor) {
  if (!have_device_ || turn_ == nullptr || stop_.load(std::memory_order_relaxed)) return -1;
  const std::vector<SmState>& sms = turn_->residency.sms;
  uint32_t count = static_cast<uint32_t>(sms.size());
  for (uint32_t step = 0; step < count; ++step) {
    uint32_t index = (*cursor + step) % count;
    if (sms[index].owned || sms[index].runnable.empty()) continue;
    *cursor = index + 1;
    return static_cast<int>(index);
  }
  return -1;
}

void DeviceExecutor::worker_main(uint32_t index) {
  // Workers start their round at different SMs.
  uint32_t cursor = index * config_.sm_count / config_.workers;
  for (;;) {
    int chosen = take_sm_locked(&cursor);
    if (chosen < 0) {
      leave_device_if_idle_locked();
      ++idle_workers_;
      work_.wait(scheduler_mutex);
      --idle_workers_;
      continue;
    }
    // The block's kernel keeps its context.
    SmState& sm = turn_->residency.sms[chosen];
    ResidentBlock block = std::move(sm.runnable.front());
    sm.runnable.pop_front();
    sm.owned = true;
    ++running_;
    if (WorkRecord* record = block.kernel->record.get(); record != nullptr) {
      if (record->activity.begin_ns == 0) record->activity.begin_ns = now_ns();
    }
    scheduler_mutex.unlock();

    Fault fault;
    BlockState state = BlockState::kFaulted;
    if (block.kernel->injected != CUDA_SUCCESS) {
      fault = {block.kernel->injected, 0, "kernel " + block.kernel->name + ": injected fault"};
    } else {
      if (block.run == nullptr) {
        block.run = start(*block.kernel, block.index, block.sm, block.more_sms);
      }
      uint32_t phase = memory_.enter();
      state = block.run->run(kBlockBudget, &stop_, static_cast<uint32_t>(chosen));
      memory_.exit(phase);
      if (state == BlockState::kFaulted) fault = block.run->fault();
    }
    if (state != BlockState::kRunnable) block.run.reset();

    scheduler_mutex.lock();
    sm.owned = false;
    if (--running_ == 0) quiet_.notify_all();
    if (state == BlockState::kFaulted && !owner_.fault_locked(block.kernel->context, fault)) {
      faulted_.push_back(std::move(block));
      continue;
    }
    settle_locked(std::move(block), state);
  }
}

void DeviceExecutor::settle_locked(ResidentBlock block, BlockState state) {
  KernelOperation& kernel = *block.kernel;
  SmState& sm = kernel.context->residency.sms[block.sm];
  bool dropped = kernel.context->error.load(std::memory_order_relaxed) != CUDA_SUCCESS;
  if (state == BlockState::kRunnable && !dropped) {
    sm.runnable.push_back(std::move(block));
    if (idle_workers_ > 0 && running_ + 1 < config_.sm_count) work_.notify_one();
    return;
  }
  trace_block_locked(dropped ? "drop" : "complete", block);
  release_block_locked(block);
  if (--kernel.resident == 0 && (dropped || kernel.placed == kernel.cluster_count)) {
    finish_kernel_locked(block.kernel);
  }
  place_locked();
}

// One event for each SM: "block" is the block's number or, with clusters, its cluster's.
void DeviceExecutor::trace_block_locked(const char* what, const ResidentBlock& block) {
  if (!trace_.enabled()) return;
  const KernelOperation& kernel = *block.kernel;
  uint64_t now = now_ns();
  const auto trace = [&](uint32_t sm) {
    trace_.event('i', "block", what, "sm " + std::to_string(sm), now, now,
                 "\"kernel\":\"" + kernel.name + "\",\"launch\":" + std::to_string(kernel.id) +
                     ",\"block\":" + std::to_string(block.index) + ",\"sm\":" + std::to_string(sm) +
                     ",\"stream\":" + std::to_string(kernel.stream_id) +
                     ",\"context\":" + std::to_string(kernel.context->id));
  };
  trace(block.sm);
  for (const uint32_t sm : block.more_sms) trace(sm);
}

void DeviceExecutor::begin_interrupt_locked() {
  ++interrupts_;
  stop_.store(true, std::memory_order_relaxed);
}

void DeviceExecutor::end_interrupt_locked() {
  if (--interrupts_ > 0 || preempting_) return;
  stop_.store(false, std::memory_order_relaxed);
  work_.notify_all();
}

void DeviceExecutor::halt_locked() {
  halted_ = true;
  begin_interrupt_locked();
  segment_->ring();
}

void DeviceExecutor::let_others_run_locked() {
  while (running_ != 0) quiet_.wait(scheduler_mutex);
  if (halted_ && have_device_) preempt_locked();
}

void DeviceExecutor::resume_locked() {
  halted_ = false;
  end_interrupt_locked();
  for (CopyEngine& engine : copy_engines_) engine.work.notify_one();
  segment_->ring();
}

// ---- Turns of the contexts of this process ----------------------------------------------------

bool DeviceExecutor::several_wait_locked() const {
  return std::count_if(tenants_.begin(), tenants_.end(),
                       [](const auto& tenant)
                           REQUIRES(scheduler_mutex) { return tenant->residency.blocks > 0; }) > 1;
}

void DeviceExecutor::next_turn_locked() {
  auto at = std::find_if(tenants_.begin(), tenants_.end(),
                         [&](const auto& tenant)
                             REQUIRES(scheduler_mutex) { return tenant.get() == turn_; });
  if (at != tenants_.end()) std::rotate(tenants_.begin(), at + 1, tenants_.end());
  auto next = std::find_if(tenants_.begin(), tenants_.end(),
                           [](const auto& tenant)
                               REQUIRES(scheduler_mutex) { return tenant->residency.blocks > 0; });
  turn_ = next == tenants_.end() ? nullptr : next->get();
  turn_ns_ = now_ns();
  if (turn_ != nullptr && tenants_.size() > 1 && trace_.enabled()) {
    trace_.event('i', "turn", "turn", "arbiter", turn_ns_, turn_ns_,
                 "\"context\":" + std::to_string(turn_->id));
  }
}

void DeviceExecutor::settle_turns_locked() {
  if (turn_ == nullptr || turn_->residency.blocks == 0) next_turn_locked();
  std::erase_if(tenants_, [](const auto& tenant) REQUIRES(scheduler_mutex) {
    return tenant->residency.blocks == 0 && !tenant->residency.has_candidates();
  });
}

void DeviceExecutor::stop_blocks_locked() {
  preempting_ = true;
  stop_.store(true, std::memory_order_relaxed);
  while (running_ != 0) quiet_.wait(scheduler_mutex);
  preempting_ = false;
  if (interrupts_ == 0) stop_.store(false, std::memory_order_relaxed);
}

// ---- Time slices of processes -----------------------------------------------------------------

void DeviceExecutor::want_device_locked() {
  if (halted_) return;
  if (!have_device_ && !preempting_ && segment_->try_acquire()) {
    have_device_ = true;
    turn_ns_ = segment_->acquired_ns();
    if (trace_.enabled()) trace_.event('i', "slice", "acquire", "arbiter", now_ns(), now_ns(), "");
  }
  if (!have_device_) {
    segment_->ring();  // the arbiter waits in line from now on
    return;
  }
  if (idle_workers_ > 0) {
    if (resident_ - running_ > 1) {
      work_.notify_all();
    } else {
      work_.notify_one();
    }
  }
}

void DeviceExecutor::leave_device_if_idle_locked() {
  if (!have_device_ || preempting_ || resident_ > 0) return;
  have_device_ = false;
  if (trace_.enabled()) trace_.event('i', "slice", "release", "arbiter", now_ns(), now_ns(), "");
  segment_->release();
}

void DeviceExecutor::preempt_locked() {
  have_device_ = false;
  if (trace_.enabled()) trace_.event('i', "slice", "preempt", "arbiter", now_ns(), now_ns(), "");
  segment_->release();
}

void DeviceExecutor::arbiter_main() {
  std::atomic<uint32_t>* doorbell = segment_->doorbell();
  for (;;) {
    uint32_t seen = doorbell->load(std::memory_order_acquire);
    uint64_t pause_ns = 0;
    if (halted_) {
      if (!have_device_) segment_->release();
    } else if (resident_ > 0 && !have_device_) {
      want_device_locked();
      if (have_device_) continue;
      seen = doorbell->load(std::memory_order_acquire);
      // The hand-over may have rung before that load.
      if (segment_->try_acquire()) continue;
      pause_ns = kDeathCheckNs;
    } else if (!have_device_) {
      segment_->release();  // the right came after the last block had ended
    } else if (const bool contended = segment_->contended(); contended || several_wait_locked()) {
      uint64_t end = (contended ? segment_->acquired_ns() : turn_ns_) + config_.timeslice_ns;
      uint64_t now = now_ns();
      if (now >= end) {
        stop_blocks_locked();
        // A process that gets its next slice goes on with its next context.
        next_turn_locked();
        if (contended) preempt_locked();
        work_.notify_all();
        continue;
      }
      pause_ns = end - now;
    }
    scheduler_mutex.unlock();
    futex_wait(doorbell, seen, pause_ns);
    if (pause_ns == kDeathCheckNs) segment_->reclaim_dead();
    scheduler_mutex.lock();
  }
}

// ---- Copy engines -----------------------------------------------------------------------------

void DeviceExecutor::enqueue_copy_locked(const std::shared_ptr<CopyOperation>& copy) {
  uint32_t index = copy->engine % kCopyEngines;
  CopyEngine& engine = copy_engines_[index];
  if (!engine.started) {
    engine.started = true;
    owner_.start_thread_locked(
        "softgpu-copy", [this, index]() REQUIRES(scheduler_mutex) { copy_engine_main(index); });
  }
  engine.queue.push_back(copy);
  engine.work.notify_one();
}

void DeviceExecutor::copy_engine_main(uint32_t index) {
  CopyEngine& engine = copy_engines_[index];
  for (;;) {
    while (halted_ || engine.queue.empty()) engine.work.wait(scheduler_mutex);
    std::shared_ptr<CopyOperation> copy = std::move(engine.queue.front());
    engine.queue.pop_front();
    if (copy->context->error.load(std::memory_order_relaxed) == CUDA_SUCCESS) {
      uint64_t start = now_ns();
      scheduler_mutex.unlock();
      CUresult result = run_copy_operation(memory_, *copy);
      note_copy_times(*copy, start);
      scheduler_mutex.lock();
      if (result != CUDA_SUCCESS) {
        owner_.poison_locked(*copy->context, result,
                             "copy touches memory that is no longer mapped");
      }
      trace_copy(trace_, *copy, "copy engine " + std::to_string(index), start);
    }
    owner_.complete_locked(copy);
  }
}

}  // namespace openmps::softgpu
