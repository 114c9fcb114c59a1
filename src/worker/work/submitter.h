// SPDX-License-Identifier: Apache-2.0
// The commands that give a stream work: the work that WorkMaker makes of them is submitted to the
// driver at once, in a batch (Batch), or held (Backlog). Session's thread only.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "wire/codec.h"
#include "worker/code/module.h"
#include "worker/code/prints.h"
#include "worker/core/session_core.h"
#include "worker/memory/memory.h"
#include "worker/streams/event.h"
#include "worker/streams/fence.h"
#include "worker/streams/losses.h"
#include "worker/streams/open_waits.h"
#include "worker/streams/stream.h"
#include "worker/work/backlog.h"
#include "worker/work/batch.h"
#include "worker/work/work_admission.h"
#include "worker/work/work_maker.h"

namespace openmps::worker {

class Submitter {
 public:
  Submitter(SessionCore& core, Streams& streams, SessionMemory& memory, Prints& prints,
            Fences& fences, Losses& losses, OpenWaits& waits, WorkMaker& maker,
            WorkAdmission& admission, Backlog& backlog, Batch& batch)
      : core_(core),
        streams_(streams),
        memory_(memory),
        prints_(prints),
        fences_(fences),
        losses_(losses),
        waits_(waits),
        maker_(maker),
        admission_(admission),
        backlog_(backlog),
        batch_(batch) {}

  Status handle(const wire::Launch& command, Stream& stream, Function& function,
                const wire::Launch::Tail& tail);
  // The memory that these name has been found to be the session's.
  Status handle(const wire::Memcpy& command, Stream& stream) {
    return run<CopyWork>(stream, command);
  }
  Status handle(const wire::Memcpy3D& command, Stream& stream) {
    return run<BoxWork>(stream, command);
  }
  Status handle(const wire::ArrayCopy& command, Stream& stream) {
    return run<BoxWork>(stream, command);
  }
  Status handle(const wire::Memset& command, Stream& stream) {
    return run<FillWork>(stream, command);
  }
  Status handle(const wire::StreamWriteValue& command, Stream& stream);
  Status handle(const wire::StreamWaitValue& command, Stream& stream);
  // Operands that are not the session's are violations.
  Status handle(const wire::StreamBatch& command, Stream& stream,
                const wire::StreamBatch::Tail& tail);
  // Post the slot to the client's callback thread; the stream goes on when that has run it.
  Status handle(const wire::HostFunction& command, Stream& stream) {
    return run<HostCallWork>(stream, command);
  }
  Status handle(const wire::Fence& command, Stream& stream) {
    return run<FenceWork>(stream, command);
  }
  Status handle(const wire::WakeAfter&, Stream& stream) { return put({}, WakeWork(), stream); }
  // A record that may carry a fence.
  Status handle(const wire::EventRecord& command, Event& event, Stream& stream);
  // Work of the stream submitted later waits. An event never recorded is no wait, as in CUDA.
  Status handle(const wire::StreamWaitEvent&, Stream& stream, Event& event) {
    if (losses_.any()) [[unlikely]]
      losses_.note_wait(stream, event);
    return event.driver_event == nullptr ? Status() : run<WaitWork>(stream, event);
  }

  // Give the driver what the stream is to do, with every wait that it implies. Work of the backlog
  // may come first.
  Status submit(const Work& work, Stream& stream);

  // Before the executor waits until a context is quiet, with nothing of a submission done: what is
  // held may go meanwhile, until the next submission.
  void prepare_to_wait() {
    end_batch();
    may_advance_ = true;
  }
  // Held work that is admitted goes while a command waits, unless that command has begun to submit
  // work. Only where work waits for the program: other work under way ends by itself.
  [[nodiscard]] bool may_advance() {
    return may_advance_ && !backlog_.empty() && (backlog_.awaits_value() || streams_.any_waits());
  }
  // The command is done.
  void end_waiting() { may_advance_ = false; }
  // The GPU may be waiting, for the session, for any number of values that somebody has to write.
  [[nodiscard]] bool has_waits() { return !streams_.holds_waits() && streams_.any_waits(); }
  // The cost of work whose duration is learnt; `number` is its number in Durations, 0 at first.
  Cost learnt_cost(uint32_t* number) {
    if (*number == 0) *number = streams_.durations.add();
    return {.learnt = *number};
  }

  // Batches begin when so many bytes of commands are at hand, some thirty launches. Fewer are
  // faster one by one: the GPU works on the first of them while the last are submitted.
  static constexpr uint64_t kBatchBytes = 4096;
  // So many bytes of commands are at hand behind the next one.
  void note_ahead(uint64_t bytes) { ahead_ = bytes; }
  // Submit the launches of an unfinished batch: before anything else is done, or when no more
  // commands are at hand.
  void end_batch() {
    if (!batch_.empty()) submit_batch();
  }

  // Submit held work that can go by now, or all of it.
  void advance();
  void flush() {
    flush_for([](const Backlog::Item&) { return true; });
  }
  // Submit the held work that `wanted(item)` picks and all that it comes behind, and nothing else.
  // Admission is not asked: waits go to the GPU with or without credits.
  template <typename Wanted>
  void flush_for(Wanted&& wanted) {
    end_batch();
    if (!backlog_.empty()) give_all(backlog_.with_all_before(wanted));
  }
  // What became of held work since the last call.
  struct Progress {
    bool any = false;       // some was submitted
    wire::Opcode failed{};  // the first command that failed,
    Status status;          // and its error
  };
  [[nodiscard]] bool has_progress() const { return progress_.any; }
  [[nodiscard]] Progress take_progress() { return std::exchange(progress_, {}); }

 private:
  template <typename What, typename... Made>
  Status run(Stream& stream, Made&... made) {
    Uses uses;
    What what;
    OPENMPS_RETURN_IF_ERROR(maker_.make(made..., &uses, &what));
    return put(uses, what, stream);
  }
  // Admitted work is submitted without becoming a Work, which is for held work.
  template <typename What>
  Status put(const Uses& uses, const What& what, Stream& stream) {
    if (losses_.any()) [[unlikely]] {
      if (std::optional<Status> dropped = drop_if_lost(uses, what, stream)) return *dropped;
    }
    note_taken(what, stream);
    std::optional<Refused> refused;
    if (backlog_.empty()) [[likely]] {
      Verdict verdict = admission_.try_admit(uses, what, stream);
      if (verdict.is_admitted()) [[likely]] {
        streams_.keep(stream, std::move(verdict.admitted));
        if constexpr (std::same_as<What, KernelWork>) {
          if (ahead_ >= kBatchBytes && collect(uses, what, stream)) return Status();
        }
        end_batch();
        return submit_now(uses, what, stream);
      }
      refused = verdict.refused;
    }
    end_batch();
    Work held{uses, what};
    held.uses.command_end = core_.command_end;
    return put_behind(held, stream, refused);
  }
  // For the journal, before the driver has it.
  template <typename What>
  void note_taken(const What& what, const Stream& stream);
  // Behind held work, if it has to come behind that. `refused`: admission has been asked.
  Status put_behind(const Work& work, Stream& stream, const std::optional<Refused>& refused);
  Status hold(const Work& work, Stream& stream, const Refused& refused);
  Status judge(const Work& work, const KernelWork& kernel, const Stream& stream);
  template <typename What>
  Status submit_now(const Uses& uses, const What& what, Stream& stream) {
    may_advance_ = false;
    if constexpr (takes_time<What>()) streams_.prepare_work(stream, uses.cost);
    const bool had_open_work = Streams::has_open_work(stream);
    const Recorder::Giving giving(core_.recorded, stream.id,
                                  uses.command_end != 0 ? uses.command_end : core_.command_end);
    Status status = give(uses, what, stream);
    if (status.ok()) [[likely]] {
      note(uses, what, stream);
      note_tail(uses, what, stream);
    } else if (is_sticky(status.code())) {
      stream.tail.is_open = had_open_work;  // the context was lost before
    }
    return status;
  }
  Status submit_now(const Uses&, const std::monostate&, Stream&) { return Status(); }
  Status submit_now(const Work& work, Stream& stream);
  // The work has been submitted: for the stream's budget and the session's counters.
  template <typename What>
  void note(const Uses& uses, const What& what, Stream& stream);
  // The work has been submitted: for what is known of the stream when the context is lost.
  template <typename What>
  void note_tail(const Uses& uses, const What& what, Stream& stream);
  // Drops the work if its stream is lost, and returns what its command returns then.
  template <typename What>
  std::optional<Status> drop_if_lost(const Uses& uses, const What& what, Stream& stream);
  template <typename What>
  [[nodiscard]] bool is_lone(const Uses& uses, const What& what) const;
  template <typename What>
  void count(const Uses& uses, const What& what);
  // The launch is part of the batch now, after others of its stream.
  bool collect(const Uses& uses, const KernelWork& kernel, Stream& stream);
  void submit_batch();
  Status launch_rest(std::span<const BatchedLaunch> launches, Stream& stream);
  void note_failure(wire::Opcode failed, Status status);
  // The context was lost before work could be submitted whose command has been concluded.
  void note_lost(const Work& work, Stream& stream);
  void leave_record(Event& event);
  Status put_at_once(const Work& work, Stream& stream);
  void give_all(std::span<const uint64_t> numbers);
  void give_held(Backlog::Taken taken);
  void end_giving();

  Status give(const Uses& uses, const KernelWork& kernel, Stream& stream);
  Status give(const Uses& uses, const CopyWork& work, Stream& stream);
  Status give(const Uses& uses, const BoxWork& work, Stream& stream);
  Status give(const Uses& uses, const FillWork& fill, Stream& stream);
  Status give(const Uses& uses, const ValuesWork& values, Stream& stream);
  Status give(const Uses& uses, const HostCallWork& call, Stream& stream);
  Status give(const Uses& uses, const FenceWork& fence, Stream& stream);
  Status give(const Uses& uses, const RecordWork& record, Stream& stream);
  Status give(const Uses& uses, const WaitWork& wait, Stream& stream);
  Status give(const Uses& uses, const WakeWork& wake, Stream& stream);
  Status give(const Uses& uses, const GraphWork& graph, Stream& stream);
  Status give(const Uses& uses, const UploadWork& upload, Stream& stream);
  Status launch(const KernelWork& kernel, CUstream to);
  Status launch(const GraphWork& graph, Stream& stream);
  Status fill(const CUDA_MEMSET_NODE_PARAMS& fill, CUstream to);
  Status operate(std::span<const CUstreamBatchMemOpParams> batch, CUstream to);
  // Work that has been given to the stream writes there: constants of whose copies a part is
  // written are written as well (constants.h).
  Status write_constants(const WorkRange& range, CUstream to) {
    if (memory_.constants().empty()) [[likely]]
      return Status();
    return copy_to_constants(range, to);
  }
  Status copy_to_constants(const WorkRange& range, CUstream to);
  // A graph that has been launched in the stream names constants: their copies become as they are.
  Status copy_from_constants(const Stream& stream);
  template <typename F>
  Status copy(const Uses& uses, bool orders_all, Stream& stream, F&& f);

  SessionCore& core_;
  Streams& streams_;
  SessionMemory& memory_;
  Prints& prints_;
  Fences& fences_;
  Losses& losses_;
  OpenWaits& waits_;
  WorkMaker& maker_;
  WorkAdmission& admission_;
  Backlog& backlog_;
  Batch& batch_;
  std::vector<Backlog::Taken> collected_;  // held work that the batch is made of
  uint64_t ahead_ = 0;
  bool may_advance_ = false;
  Progress progress_;
};

// The counters of the session.
template <typename What>
void Submitter::count(const Uses& uses, const What& what) {
  using wire::UsageCount;
  SessionUsage& usage = core_.usage;
  if constexpr (std::same_as<What, KernelWork>) {
    usage.count(UsageCount::kLaunches);
    usage.count_blocks(blocks_of(*what.shape), threads_of(*what.shape));
  } else if constexpr (std::same_as<What, GraphWork>) {
    for (size_t i = 0; i < wire::kUsageCounts; ++i) {
      if ((*what.counts)[i] != 0) usage.count(static_cast<UsageCount>(i), (*what.counts)[i]);
    }
  } else {
    usage.count(std::same_as<What, FillWork> ? UsageCount::kFills : UsageCount::kCopies);
    usage.count(uses.moves, uses.moved_bytes);
  }
}

// The work waits for nothing else, and nothing was submitted behind it.
template <typename What>
bool Submitter::is_lone(const Uses& uses, const What& what) const {
  if constexpr (std::same_as<What, KernelWork>) {
    return uses.lane == Lane::kMain && what.attributes.empty() && !what.function->prints;
  } else if constexpr (std::same_as<What, GraphWork>) {
    return !what.is_cold && !what.may_wait && !what.names_events && !prints_.marks_graphs();
  } else {
    return false;
  }
}

template <typename What>
void Submitter::note_taken(const What& what, const Stream& stream) {
  Journal& journal = core_.journal;
  if constexpr (std::same_as<What, FenceWork> || std::same_as<What, RecordWork>) {
    journal.note_fence(what.fence.slot, what.fence.value);
  } else if constexpr (std::same_as<What, HostCallWork>) {
    if (what.asks) journal.note_call(what.slot, what.fence.slot, what.fence.value);
    journal.note_work(stream.fence_slot);
    journal.note_fence(what.fence.slot, what.fence.value);
  } else if constexpr (!std::same_as<What, WaitWork> && !std::same_as<What, WakeWork>) {
    journal.note_work(stream.fence_slot);
  }
}

template <typename What>
void Submitter::note_tail(const Uses&, const What& what, Stream& stream) {
  const auto fenced = [&stream](const FenceValue& fence) {
    if (fence.slot != wire::kNoFence) Streams::note_fence(stream, fence.slot, fence.value);
  };
  if constexpr (std::same_as<What, KernelWork>) {
    stream.tail.note_kernel(what.function, what.shape);
  } else if constexpr (std::same_as<What, GraphWork>) {
    stream.tail.note_kernel(nullptr, nullptr);
  } else if constexpr (std::same_as<What, FenceWork> || std::same_as<What, RecordWork>) {
    fenced(what.fence);
  } else if constexpr (std::same_as<What, HostCallWork>) {
    stream.tail.is_uncounted |= !what.awaits;
    if (what.awaits) fenced(what.fence);
  } else if constexpr (std::same_as<What, ValuesWork>) {
    stream.tail.is_uncounted |= what.waits == 0;
  } else if constexpr (std::same_as<What, UploadWork>) {
    stream.tail.is_uncounted = true;
  }
}

// What others wait for is given all the same: fences, records and wakes.
template <typename What>
std::optional<Status> Submitter::drop_if_lost(const Uses& uses, const What& what, Stream& stream) {
  if constexpr (std::same_as<What, GraphWork>) {
    if (what.names_events) losses_.note_wait_for_some(stream);
  }
  if (!losses_.is_lost(stream, entry_of(what))) return std::nullopt;
  if constexpr (std::same_as<What, HostCallWork>) {
    losses_.drop_call(what.slot);
    if (what.fence.slot == wire::kNoFence) return Status();
    return put(Uses(), FenceWork{what.fence, true}, stream);
  } else if constexpr (takes_time<What>() || std::same_as<What, ValuesWork> ||
                       std::same_as<What, UploadWork>) {
    if constexpr (std::same_as<What, CopyWork> || std::same_as<What, BoxWork>) {
      if (what.orders_all) losses_.spread(stream);
    }
    if constexpr (std::same_as<What, KernelWork>) {
      const void* const recorded = uses.objects[0].get();
      if (recorded != nullptr) losses_.note_dropped_record(recorded, stream);
    }
    return Status();
  } else {
    return std::nullopt;
  }
}

template <typename What>
void Submitter::note(const Uses& uses, const What& what, Stream& stream) {
  if constexpr (takes_time<What>()) count(uses, what);
  streams_.note(stream, [&](StreamBudget& budget) {
    const auto fenced = [&](const FenceValue& fence) {
      if (fence.slot == wire::kNoFence) return;
      budget.add_fence(core_.view.fence(fence.slot).value, fence.value);
    };
    if constexpr (takes_time<What>()) {
      budget.add(uses.cost);
      if (is_lone(uses, what)) budget.note_lone();
    } else if constexpr (std::same_as<What, FenceWork> || std::same_as<What, RecordWork>) {
      fenced(what.fence);
    } else if constexpr (std::same_as<What, ValuesWork>) {
      if (what.waits != 0) budget.add_wait(false);
    } else if constexpr (std::same_as<What, WaitWork>) {
      budget.add_wait(false);
    } else if constexpr (std::same_as<What, HostCallWork>) {
      if (!what.awaits) return;
      budget.add_wait(false);
      fenced(what.fence);
    }
  });
}

}  // namespace openmps::worker
