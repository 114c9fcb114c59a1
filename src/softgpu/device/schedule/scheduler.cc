// SPDX-License-Identifier: Apache-2.0
// The operation graph: submission, dispatch, completion, poisoning, waiting. See scheduler.h.
#include "softgpu/device/schedule/scheduler.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

#include "base/clock.h"
#include "softgpu/device/schedule/copy_run.h"
#include "softgpu/device/schedule/device_node.h"
#include "softgpu/device/schedule/thread.h"

namespace openmps::softgpu {
namespace {

// Pauses between looks at a memory word that a stream waits for: short at first, since the other
// side often is about to write it, long later, so that a forgotten wait costs nothing.
constexpr uint64_t kFirstWordPauseNs = 20'000;
constexpr uint64_t kLastWordPauseNs = 1'000'000;

// After an access out of range the streams of the process run on until so much of the time to the
// report has passed: 123 to 128 of 145 to 150 ms on an H200. Other faults stop them at once.
constexpr uint64_t kRangeRunsPercent = 85;

thread_local bool host_function_running = false;

template <typename Word>
bool word_condition(Word current, Word value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // cyclic: the counter may wrap around
      return static_cast<std::make_signed_t<Word>>(current - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return current == value;
    case CU_STREAM_WAIT_VALUE_AND: return (current & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR: return static_cast<Word>(~(current | value)) != 0;
    default: return true;
  }
}

template <typename Word>
bool access_word(const WordAction& action) {
  auto* word = reinterpret_cast<Word*>(action.address);
  if (action.kind == WordAction::Kind::kRaise) {
    std::atomic_ref<Word> raised(*word);
    const auto least = static_cast<Word>(action.value);
    Word current = raised.load(std::memory_order_relaxed);
    while (current < least &&
           !raised.compare_exchange_weak(current, least, std::memory_order_release)) {
    }
    return true;
  }
  if (action.kind == WordAction::Kind::kWrite) {
    // Release: a reader that loads the word with acquire sees all earlier work of the stream.
    std::atomic_ref<Word>(*word).store(static_cast<Word>(action.value), std::memory_order_release);
    return true;
  }
  Word current = std::atomic_ref<Word>(*word).load(std::memory_order_acquire);
  return word_condition<Word>(current, static_cast<Word>(action.value), action.condition);
}

}  // namespace

bool in_host_function() { return host_function_running; }

Scheduler::Scheduler(AddressSpace* memory, Trace* trace, const Config& config,
                     std::function<Backing(uint64_t)> end_allocation)
    : memory_(memory),
      trace_(trace),
      stream_items_(config.stream_items),
      faults_(config.faults),
      holds_(std::ranges::any_of(config.faults.delays,
                                 [](const FaultDelays& delays) { return delays.holds; })),
      end_allocation_(std::move(end_allocation)) {}

void Scheduler::add_device(const Config& config, int device, DeviceSegment* segment) {
  executors_.push_back(std::make_unique<DeviceExecutor>(
      config, device, segment, ExecutorOwner::Borrowed{*this, *memory_, *trace_}));
}

// ---- Submission -------------------------------------------------------------------------------

void Scheduler::add_edge_locked(const OperationPtr& before, const OperationPtr& after) {
  if (before == nullptr || before->done || before == after) return;
  before->successors.push_back(after);
  ++after->unsatisfied;
}

void Scheduler::release_hold_locked(const OperationPtr& operation) {
  ++operation->context->outstanding;
  if (operation->kind == OperationKind::kKernel) {
    const auto kernel = std::static_pointer_cast<KernelOperation>(operation);
    if (!faults_.injected_kernel.empty() && kernel->name == faults_.injected_kernel &&
        ++injectable_ == faults_.injected_launch) {
      kernel->injected = faults_.injected_code;
    }
    executor(operation->context->device).accept_locked(kernel);
  }
  if (--operation->unsatisfied == 0) {
    ready_.push_back(operation);
    drain_ready_locked();
  }
}

void Scheduler::submit(StreamQueue& stream, const OperationPtr& operation,
                       std::span<const OperationPtr> also_after) {
  const MutexLock lock(scheduler_mutex);
  submit_locked(stream, operation, also_after);
}

void Scheduler::submit_locked(StreamQueue& stream, const OperationPtr& operation,
                              std::span<const OperationPtr> also_after) {
  ExecutionContext& context = *operation->context;
  operation->stream_id = stream.id;
  add_edge_locked(stream.tail, operation);
  if (stream.legacy) {
    for (const auto& other : context.streams) {
      if (other->blocking) add_edge_locked(other->tail, operation);
    }
  } else if (stream.blocking && context.legacy != nullptr) {
    add_edge_locked(context.legacy->tail, operation);
  }
  for (const OperationPtr& before : also_after) add_edge_locked(before, operation);
  stream.tail = operation;
  operation->items = stream.items;
  ++stream.items->outstanding;
  if (!operation->unconnected) context.connections.add(operation, *stream.items);
  release_hold_locked(operation);
}

void Scheduler::submit_unordered_locked(const OperationPtr& operation,
                                        std::span<const OperationPtr> after) {
  for (const OperationPtr& before : after) add_edge_locked(before, operation);
  release_hold_locked(operation);
}

void Submission::submit(StreamQueue& stream, const OperationPtr& operation,
                        std::span<const OperationPtr> also_after) {
  scheduler_.submit_locked(stream, operation, also_after);
}

void Submission::submit_unordered(const OperationPtr& operation,
                                  std::span<const OperationPtr> after) {
  scheduler_.submit_unordered_locked(operation, after);
}

void Submission::fail(ExecutionContext& context, CUresult code, const std::string& text) {
  scheduler_.poison_locked(context, code, text);
}

void Scheduler::submit_unordered(const OperationPtr& operation,
                                 std::span<const OperationPtr> after) {
  const MutexLock lock(scheduler_mutex);
  submit_unordered_locked(operation, after);
}

void Scheduler::open(const std::shared_ptr<ExecutionContext>& context) {
  const MutexLock lock(scheduler_mutex);
  open_.push_back(context);
}

void Scheduler::add_stream(ExecutionContext& context, const std::shared_ptr<StreamQueue>& stream) {
  const MutexLock lock(scheduler_mutex);
  if (stream->legacy) {
    context.legacy = stream;
    return;
  }
  retire_streams_locked(context);
  stream->queue = context.take_queue_locked();
  context.streams.push_back(stream);
}

void Scheduler::retire_stream(StreamQueue& stream) {
  const MutexLock lock(scheduler_mutex);
  stream.retired = true;
}

OperationPtr Scheduler::tail(const StreamQueue& stream) {
  const MutexLock lock(scheduler_mutex);
  return stream.tail;
}

void Scheduler::retire_streams_locked(ExecutionContext& context) {
  std::erase_if(context.streams,
                [](const std::shared_ptr<StreamQueue>& stream) REQUIRES(scheduler_mutex) {
                  return stream->retired && (stream->tail == nullptr || stream->tail->done);
                });
}

// ---- Dispatch and completion ------------------------------------------------------------------

void Scheduler::drain_ready_locked() {
  if (halted_ || draining_) return;  // later, or an outer call goes on with the list
  draining_ = true;
  while (!ready_.empty()) {
    OperationPtr operation = std::move(ready_.front());
    ready_.pop_front();
    dispatch_locked(operation);
  }
  draining_ = false;
  for (const auto& executor : executors_) executor->place_locked();
}

void Scheduler::dispatch_locked(const OperationPtr& operation) {
  if (operation->done) return;
  ExecutionContext& context = *operation->context;
  operation->stalled = !context.connections.is_first(*operation);
  if (operation->stalled) return;
  operation->ready = true;
  // A wait for a value starts when the value has come.
  if (operation->kind != OperationKind::kMemoryWords) leave_connection_locked(*operation);
  bool failed = context.error.load(std::memory_order_relaxed) != CUDA_SUCCESS;
  switch (operation->kind) {
    case OperationKind::kMarker: {
      auto& marker = static_cast<MarkerOperation&>(*operation);
      Submission submission(*this);
      if (marker.graph_run != nullptr && !marker.graph_run->finish(submission, operation)) return;
      finish_marker_locked(marker);
      complete_locked(operation);
      return;
    }
    case OperationKind::kKernel: {
      const auto kernel = std::static_pointer_cast<KernelOperation>(operation);
      if (failed || (kernel->device_node != nullptr && !kernel->device_node->begin(*kernel))) {
        executor(context.device).abandon_locked(kernel);
      } else {
        executor(context.device).ready_locked(kernel);
      }
      return;
    }
    case OperationKind::kConditional: {
      auto conditional = std::static_pointer_cast<ConditionalOperation>(operation);
      Submission submission(*this);
      if (failed || context.closing || !conditional->submit_body(submission, conditional)) {
        complete_locked(operation);
      }
      return;
    }
    case OperationKind::kCopy:
      if (failed) {
        complete_locked(operation);
      } else if (operation->inline_execution) {
        done_.notify_all();
      } else {
        executor(context.device)
            .enqueue_copy_locked(std::static_pointer_cast<CopyOperation>(operation));
      }
      return;
    case OperationKind::kHostFunction:
      start_host_thread_locked();
      host_queue_.push_back(std::static_pointer_cast<HostOperation>(operation));
      host_work_.notify_one();
      return;
    case OperationKind::kMemoryWords:
      if (advance_words_locked(static_cast<MemoryWordsOperation&>(*operation))) {
        complete_locked(operation);
      } else {
        start_service_thread_locked();
        word_waits_.push_back(std::static_pointer_cast<MemoryWordsOperation>(operation));
        service_work_.notify_one();
      }
      return;
  }
}

void Scheduler::leave_connection_locked(Operation& operation) {
  const OperationPtr first = operation.context->connections.remove(operation);
  if (first != nullptr && first->stalled) ready_.push_back(first);
}

void Scheduler::complete_locked(const OperationPtr& operation) {
  if (operation->done) return;
  operation->done = true;
  leave_connection_locked(*operation);
  operation->finished_ns = now_ns();
  if (operation->record != nullptr) end_record(std::move(operation->record));
  for (OperationPtr& successor : operation->successors) {
    if (--successor->unsatisfied == 0) ready_.push_back(std::move(successor));
  }
  operation->successors.clear();
  ExecutionContext& context = *operation->context;
  --context.outstanding;
  if (operation->items != nullptr && operation->items->outstanding-- == stream_items_) {
    done_.notify_all();
  }
  if (operation->waiters > 0 || (context.closing && context.outstanding == 0)) done_.notify_all();
  drain_ready_locked();
}

void Scheduler::end_grid_locked(const std::shared_ptr<KernelOperation>& kernel) {
  Submission submission(*this);
  if (kernel->nested == nullptr || kernel->nested->finish(submission, kernel)) {
    complete_locked(kernel);
  }
}

void Scheduler::finish_marker_locked(MarkerOperation& marker) {
  for (const auto& condition : marker.assigned) {
    condition->value.store(condition->initial, std::memory_order_relaxed);
  }
  marker.graph_run.reset();
  if (marker.again != nullptr) ready_.push_back(std::move(marker.again));
  if (marker.grid != nullptr) end_grid_locked(std::exchange(marker.grid, nullptr));
  marker.kept.reset();
  if (marker.freed_address == 0) return;
  // cuMemFreeAsync: the range ends here in stream order, its memory is given back behind it.
  const Backing freed = end_allocation_(marker.freed_address);
  if (freed.address != 0) reclaim_later_locked(freed);
}

bool Scheduler::advance_words_locked(MemoryWordsOperation& words) {
  if (words.context->error.load(std::memory_order_relaxed) != CUDA_SUCCESS) return true;
  while (words.next < words.actions.size()) {
    const WordAction& action = words.actions[words.next];
    bool satisfied = true;
    if (action.kind != WordAction::Kind::kBarrier) {
      bool write = action.kind != WordAction::Kind::kWait;
      bool mapped = memory_->with_range(action.address, action.bytes, write, [&] {
        satisfied =
            action.bytes == 8 ? access_word<uint64_t>(action) : access_word<uint32_t>(action);
      });
      if (!mapped) {
        poison_locked(*words.context, CUDA_ERROR_ILLEGAL_ADDRESS,
                      "stream memory operation on an address that is no longer mapped");
        return true;
      }
    }
    if (!satisfied && !words.context->closing) return false;
    ++words.next;
  }
  return true;
}

// ---- Faults -----------------------------------------------------------------------------------

bool Scheduler::fault_locked(const std::shared_ptr<ExecutionContext>& context, const Fault& fault) {
  if (context->error.load(std::memory_order_relaxed) != CUDA_SUCCESS) return true;
  if (pending_.has_value() && pending_->report_ns != 0) return false;
  const FaultDelays delays = faults_.delays_of(fault.code);
  if (pending_.has_value() || (delays.report_ns == 0 && delays.xid_ns == 0)) {
    poison_locked(*context, fault.code, fault.text);
    return true;
  }
  const uint64_t now = now_ns();
  pending_ =
      PendingFault{context, fault, now, now + delays.xid_ns, now + delays.report_ns, delays.holds};
  if (fault.code == CUDA_ERROR_ILLEGAL_ADDRESS) {
    pending_->halt_ns += delays.report_ns / 100 * kRangeRunsPercent;
  } else {
    halt_locked();
    pending_->halt_ns = 0;
  }
  start_thread_locked("softgpu-fault", [this]() REQUIRES(scheduler_mutex) { fault_thread_main(); });
  return false;
}

void Scheduler::fault_thread_main() {
  CondVar never;
  for (;;) {
    uint64_t next = UINT64_MAX;
    const auto is_due = [now = now_ns(), &next](uint64_t& when) {
      if (when == 0) return false;
      const bool due = when <= now;
      if (!due) next = std::min(next, when);
      if (due) when = 0;
      return due;
    };
    PendingFault& pending = *pending_;
    // The context may have failed for another reason meanwhile.
    const bool failed = pending.context->error.load(std::memory_order_relaxed) != CUDA_SUCCESS;
    if (is_due(pending.halt_ns) && !failed) halt_locked();
    if (is_due(pending.xid_ns)) {
      executor(pending.context->device).note_fault(pending.fault.code);
      for (const auto& one : executors_) one->let_others_run_locked();
      continue;  // that has taken time
    }
    if (is_due(pending.report_ns) && !failed) {
      fail_locked(*pending.context, pending.fault.code, pending.fault.text);
    }
    if (next == UINT64_MAX) break;
    never.wait_until(scheduler_mutex, next);
  }
  pending_.reset();
}

void Scheduler::halt_locked() {
  if (std::exchange(halted_, true)) return;
  for (const auto& executor : executors_) executor->halt_locked();
}

void Scheduler::resume_locked() {
  if (!std::exchange(halted_, false)) return;
  for (const auto& executor : executors_) executor->resume_locked();
  done_.notify_all();
  service_work_.notify_one();
}

void Scheduler::poison_locked(ExecutionContext& context, CUresult code, const std::string& text) {
  if (context.error.load(std::memory_order_relaxed) != CUDA_SUCCESS) return;
  executor(context.device).note_fault(code);
  fail_locked(context, code, text);
}

void Scheduler::fail_locked(const ExecutionContext& context, CUresult code,
                            const std::string& text) {
  // The text is written once and before the code, so a thread that has read the code without the
  // mutex may read the text.
  for (const auto& one : open_) {
    if (one->error.load(std::memory_order_relaxed) != CUDA_SUCCESS) continue;
    one->fault_text = text;
    one->error.store(code, std::memory_order_release);
  }
  trace_->event('i', "fault", text, "context", now_ns(), now_ns(),
                "\"context\":" + std::to_string(context.id) +
                    ",\"code\":" + std::to_string(static_cast<int>(code)));
  resume_locked();
  const auto ended = open_;
  for (const auto& one : ended) executor(one->device).drop_context_locked(*one);
  const auto waits = std::move(word_waits_);
  word_waits_.clear();
  for (const auto& wait : waits) complete_locked(wait);
  drain_ready_locked();
}

// ---- Waiting ----------------------------------------------------------------------------------

void Scheduler::wait(const OperationPtr& operation) {
  if (operation == nullptr) return;
  const MutexLock lock(scheduler_mutex);
  ++operation->waiters;
  while (!operation->done) done_.wait(scheduler_mutex);
  --operation->waiters;
}

bool Scheduler::is_done(const OperationPtr& operation) {
  if (operation == nullptr) return true;
  const MutexLock lock(scheduler_mutex);
  return operation->done;
}

std::optional<uint64_t> Scheduler::finished_ns(const OperationPtr& operation) {
  const MutexLock lock(scheduler_mutex);
  return operation->done ? std::optional(operation->finished_ns) : std::nullopt;
}

bool Scheduler::wait_ready(const OperationPtr& operation) {
  assert(operation->inline_execution && "only such an operation waits for its submitter");
  const MutexLock lock(scheduler_mutex);
  ++operation->waiters;
  while (!operation->ready && !operation->done) done_.wait(scheduler_mutex);
  --operation->waiters;
  return !operation->done;
}

void Scheduler::run_inline(const std::shared_ptr<CopyOperation>& copy) {
  if (!wait_ready(copy)) return;
  uint64_t start = now_ns();
  CUresult result = run_copy_operation(*memory_, *copy);
  note_copy_times(*copy, start);
  const MutexLock lock(scheduler_mutex);
  if (result != CUDA_SUCCESS) {
    poison_locked(*copy->context, result, "copy touches memory that is no longer mapped");
  }
  trace_copy(*trace_, *copy, "host", start);
  complete_locked(copy);
}

std::vector<OperationPtr> Scheduler::tails_locked(ExecutionContext& context) {
  retire_streams_locked(context);
  std::vector<OperationPtr> tails = context.visits;
  if (context.legacy != nullptr) tails.push_back(context.legacy->tail);
  for (const auto& stream : context.streams) tails.push_back(stream->tail);
  return tails;
}

void Scheduler::wait_idle(ExecutionContext& context) {
  std::vector<OperationPtr> tails;
  {
    const MutexLock lock(scheduler_mutex);
    tails = tails_locked(context);
  }
  for (const OperationPtr& tail : tails) wait(tail);
}

void Scheduler::begin_quiescence(ExecutionContext& context) {
  {
    const MutexLock lock(scheduler_mutex);
    context.quiescences.fetch_add(1);
  }
  wait_idle(context);
}

void Scheduler::end_quiescence(ExecutionContext& context) {
  const MutexLock lock(scheduler_mutex);
  if (context.quiescences.fetch_sub(1) == 1) done_.notify_all();
}

void Scheduler::await_submission(const StreamQueue& stream) {
  if (stream_items_ == 0 && !holds_) return;
  const MutexLock lock(scheduler_mutex);
  while (stream_items_ != 0 && stream.items->outstanding >= stream_items_) {
    done_.wait(scheduler_mutex);
  }
  while (halted_ && pending_.has_value() && pending_->holds) done_.wait(scheduler_mutex);
}

void Scheduler::await_launches_allowed(ExecutionContext& context) {
  if (context.quiescences.load() == 0) return;
  const MutexLock lock(scheduler_mutex);
  while (context.quiescences.load() != 0) done_.wait(scheduler_mutex);
}

void Scheduler::keep_until_idle(const std::shared_ptr<ExecutionContext>& context,
                                std::shared_ptr<const void> object) {
  auto marker = std::make_shared<MarkerOperation>(context);
  marker->kept = std::move(object);
  const MutexLock lock(scheduler_mutex);
  submit_unordered_locked(marker, tails_locked(*context));
}

bool Scheduler::is_idle(ExecutionContext& context) {
  const MutexLock lock(scheduler_mutex);
  return context.outstanding == 0;
}

bool Scheduler::is_stream_idle(ExecutionContext& context, StreamQueue& stream) {
  const MutexLock lock(scheduler_mutex);
  auto idle = [](const OperationPtr& tail)
                  REQUIRES(scheduler_mutex) { return tail == nullptr || tail->done; };
  if (!idle(stream.tail)) return false;
  if (!stream.legacy) return true;
  return std::all_of(context.streams.begin(), context.streams.end(),
                     [&](const auto& other) REQUIRES(scheduler_mutex) {
                       return !other->blocking || idle(other->tail);
                     });
}

void Scheduler::close(ExecutionContext& context) {
  const MutexLock lock(scheduler_mutex);
  context.closing = true;
  auto waits = std::move(word_waits_);
  word_waits_.clear();
  for (auto& wait : waits) {
    if (wait->context.get() != &context) {
      word_waits_.push_back(std::move(wait));
    } else if (advance_words_locked(*wait)) {
      complete_locked(wait);
    }
  }
  while (context.outstanding != 0) done_.wait(scheduler_mutex);
  std::erase_if(open_, [&](const auto& one) { return one.get() == &context; });
}

// The last operation of each stream refers to the context, which refers to the streams.
void Scheduler::forget_streams(ExecutionContext& context) {
  const MutexLock lock(scheduler_mutex);
  context.legacy->tail.reset();
  for (const auto& stream : context.streams) stream->tail.reset();
  context.visits.clear();
  context.streams.clear();
}

void Scheduler::start_thread_locked(const char* name, std::function<void()> body) {
  start_helper_thread(name, [body = std::move(body)] {
    const MutexLock lock(scheduler_mutex);
    body();
  });
}

// ---- Host functions ---------------------------------------------------------------------------

void Scheduler::start_host_thread_locked() {
  if (host_thread_started_) return;
  host_thread_started_ = true;
  start_thread_locked("softgpu-host", [this]() REQUIRES(scheduler_mutex) { host_thread_main(); });
}

// Runs the function without the mutex, which is held again afterwards, also if the function ends
// its thread.
void Scheduler::run_host_function(const std::shared_ptr<HostOperation>& operation) {
  struct End {
    Scheduler& scheduler;
    const std::shared_ptr<HostOperation>& operation;
    ~End() ACQUIRE(scheduler_mutex) {
      host_function_running = false;
      scheduler_mutex.lock();
      scheduler.complete_locked(operation);
    }
  };
  const CUresult error = operation->context->error.load();
  scheduler_mutex.unlock();
  const End end{*this, operation};
  host_function_running = true;
  if (operation->callback != nullptr) {
    operation->callback(operation->stream, error, operation->user_data);
  } else if (error == CUDA_SUCCESS) {
    operation->function(operation->user_data);
  }
}

void Scheduler::host_thread_main() {
  // Only a host function can end this thread (pthread_exit). Another thread takes over then; with
  // NVIDIA's driver no host function runs any more.
  struct Successor {
    Scheduler& scheduler;
    ~Successor() REQUIRES(scheduler_mutex) {
      scheduler.host_thread_started_ = false;
      scheduler.start_host_thread_locked();
    }
  };
  const Successor successor{*this};
  for (;;) {
    while (host_queue_.empty()) host_work_.wait(scheduler_mutex);
    const std::shared_ptr<HostOperation> operation = std::move(host_queue_.front());
    host_queue_.pop_front();
    run_host_function(operation);
  }
}

// ---- Service thread: memory words and memory to give back -------------------------------------

void Scheduler::start_service_thread_locked() {
  if (service_thread_started_) return;
  service_thread_started_ = true;
  start_thread_locked("softgpu-service",
                      [this]() REQUIRES(scheduler_mutex) { service_thread_main(); });
}

void Scheduler::service_thread_main() {
  uint64_t pause_ns = kFirstWordPauseNs;
  for (;;) {
    if (!reclaim_.empty()) {
      std::vector<Backing> batch = std::move(reclaim_);
      reclaim_.clear();
      scheduler_mutex.unlock();
      grace_period();
      for (const Backing& backing : batch) free_backing(backing);
      scheduler_mutex.lock();
      continue;
    }
    if (halted_ || word_waits_.empty()) {
      pause_ns = kFirstWordPauseNs;
      service_work_.wait(scheduler_mutex);
      continue;
    }
    auto waits = std::move(word_waits_);
    word_waits_.clear();
    bool progress = false;
    for (auto& wait : waits) {
      if (wait->done) continue;
      if (advance_words_locked(*wait)) {
        complete_locked(wait);
        progress = true;
      } else {
        word_waits_.push_back(std::move(wait));
      }
    }
    pause_ns = progress ? kFirstWordPauseNs : std::min(pause_ns * 2, kLastWordPauseNs);
    if (!word_waits_.empty()) service_work_.wait_until(scheduler_mutex, now_ns() + pause_ns);
  }
}

void Scheduler::reclaim_later(const Backing& backing) {
  const MutexLock lock(scheduler_mutex);
  reclaim_later_locked(backing);
}

void Scheduler::reclaim_later_locked(const Backing& backing) {
  start_service_thread_locked();
  reclaim_.push_back(backing);
  service_work_.notify_one();
}

void Scheduler::begin_interrupt() {
  const MutexLock lock(scheduler_mutex);
  for (const auto& executor : executors_) executor->begin_interrupt_locked();
}

void Scheduler::end_interrupt() {
  const MutexLock lock(scheduler_mutex);
  for (const auto& executor : executors_) executor->end_interrupt_locked();
}

void Scheduler::grace_period() {
  begin_interrupt();
  memory_->wait_for_readers();
  end_interrupt();
}

}  // namespace openmps::softgpu
