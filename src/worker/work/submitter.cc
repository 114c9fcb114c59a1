// SPDX-License-Identifier: Apache-2.0
// Work into the driver's streams. See submitter.h.
#include "worker/work/submitter.h"

#include <algorithm>
#include <vector>

#include "worker/device/driver_check.h"

namespace openmps::worker {
// ---- Commands -----------------------------------------------------------------------------------

Status Submitter::handle(const wire::Launch& command, Stream& stream, Function& function,
                         const wire::Launch::Tail& tail) {
  if (!batch_.empty() && !batch_.is_of(stream)) submit_batch();
  if (!Modules::is_at_hand(function, stream.place)) prepare_to_wait();
  Uses uses;
  KernelWork kernel;
  OPENMPS_RETURN_IF_ERROR(
      maker_.make(command, tail, function, stream.place, Modules::Reach::kAnyLane, &uses, &kernel));
  uses.cost.learnt = learnt_cost(&function.duration(blocks_of(command))).learnt;
  return put(uses, kernel, stream);
}

Status Submitter::handle(const wire::StreamWriteValue& command, Stream& stream) {
  const wire::ValueOperation write{command.value, wire::ValueKind::kWrite};
  const std::span operations(&write, 1);
  return run<ValuesWork>(stream, operations);
}

Status Submitter::handle(const wire::StreamWaitValue& command, Stream& stream) {
  const wire::ValueOperation wait{command.value, wire::ValueKind::kWait};
  const std::span operations(&wait, 1);
  return run<ValuesWork>(stream, operations);
}

Status Submitter::handle(const wire::StreamBatch&, Stream& stream,
                         const wire::StreamBatch::Tail& tail) {
  if (tail.operations.empty()) return Status();
  for (const wire::ValueOperation& operation : tail.operations) {
    OPENMPS_RETURN_IF_ERROR(
        memory_.check_operand(range_of(operation), "address of a stream value"));
  }
  return run<ValuesWork>(stream, tail.operations);
}

Status Submitter::handle(const wire::EventRecord& command, Event& event, Stream& stream) {
  leave_record(event);
  if (losses_.any()) [[unlikely]]
    losses_.note_record(event, stream);
  event.recorded_ns = 0;
  event.recorded_in = command.stream;
  event.slot = command.slot;
  event.value = command.value;
  const FenceValue fence{command.slot, command.value, command.stream};
  return run<RecordWork>(stream, event, fence);
}

// ---- The backlog --------------------------------------------------------------------------------

namespace {

// Another session or an executable graph uses the event, too.
bool is_shared(const Work& record, const Backlog& backlog) {
  const auto& event = record.uses.objects[0];
  constexpr long kOwn = 3;  // references: the event's, the work's, and WorkMaker's
  return event.use_count() > kOwn + static_cast<long>(backlog.named(event.get()));
}

}  // namespace

// Held work waits for the event as it was recorded before: a later record gets a new event of the
// driver. An event that others use can't be replaced.
void Submitter::leave_record(Event& event) {
  const void* const named = event.driver_event.get();
  const auto held = static_cast<long>(backlog_.named(named));
  if (held == 0) return;
  constexpr long kOwn = 1;
  if (event.driver_event.use_count() == kOwn + held) {
    event.driver_event.reset();
  } else {
    flush_for([named](const Backlog::Item& item) { return item.names(named); });
  }
}

Status Submitter::put_behind(const Work& work, Stream& stream,
                             const std::optional<Refused>& refused) {
  const bool is_behind = backlog_.is_behind(work, stream);
  const bool hides_events = names_hidden_events(work);
  const bool record = std::holds_alternative<RecordWork>(work.what);
  if (hides_events || (record && is_shared(work, backlog_))) {
    if (!is_behind && !(hides_events && backlog_.names_events())) return submit_now(work, stream);
    return put_at_once(work, stream);
  }
  if (is_behind) return hold(work, stream, {});
  if (refused) return hold(work, stream, *refused);
  Verdict verdict = std::visit(
      [&](const auto& what) { return admission_.try_admit(work.uses, what, stream); }, work.what);
  if (!verdict.is_admitted()) return hold(work, stream, verdict.refused);
  streams_.keep(stream, std::move(verdict.admitted));
  return submit_now(work, stream);
}

// Work that others see, or that only the driver can order, is not held: it is submitted with the
// held work that it comes behind.
Status Submitter::put_at_once(const Work& work, Stream& stream) {
  backlog_.hold(work, stream, {});
  const uint64_t number = streams_.held.last;
  flush_for([number](const Backlog::Item& item) { return item.number == number; });
  return Status();
}

// The part of the work that does not wait goes first: other work may wait for it.
Status Submitter::hold(const Work& work, Stream& stream, const Refused& refused) {
  Work first{work.uses, {}};
  Work rest{work.uses, {}};
  if (const auto* call = std::get_if<HostCallWork>(&work.what);
      call != nullptr && call->asks && call->awaits) {
    first.what.emplace<HostCallWork>(*call).awaits = false;
    rest.what.emplace<HostCallWork>(*call).asks = false;
  } else if (const auto* values = std::get_if<ValuesWork>(&work.what);
             values != nullptr && values->waits_behind() != 0) {
    const size_t count = values->waits_behind();
    first.what = values->part(0, count);
    rest.what = values->part(count, values->operations.size() - count);
  }
  if (!std::holds_alternative<std::monostate>(rest.what)) {
    OPENMPS_RETURN_IF_ERROR(put_behind(first, stream, std::nullopt));
    return put_behind(rest, stream, std::nullopt);
  }
  if (const auto* kernel = std::get_if<KernelWork>(&work.what)) {
    OPENMPS_RETURN_IF_ERROR(judge(work, *kernel, stream));
  }
  streams_.begin_ahead(stream);
  backlog_.hold(work, stream, refused);
  return Status();
}

// A launch that asks for the driver's verdict (decision 15) gets it although the launch is held:
// the driver refuses a graph's kernel node for the reasons for which it refuses the launch.
Status Submitter::judge(const Work& work, const KernelWork& kernel, const Stream& stream) {
  const wire::Launch& shape = *kernel.shape;
  if (std::ranges::equal(shape.block, kernel.function->judged_block)) return Status();
  OPENMPS_RETURN_IF_ERROR(core_.use(stream.place.in(work.uses.lane)));
  const DriverTable& driver = core_.driver;
  CUgraph graph = nullptr;
  OPENMPS_RETURN_IF_ERROR(check(driver.cuGraphCreate(&graph, 0), "cuGraphCreate"));
  PackedParameters parameters(kernel.parameters);
  const CUDA_KERNEL_NODE_PARAMS params = parameters.node(kernel.handle, shape);
  CUgraphNode node = nullptr;
  const CUresult result = driver.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params);
  driver.cuGraphDestroy(graph);
  if (result == CUDA_SUCCESS) std::ranges::copy(shape.block, kernel.function->judged_block.begin());
  return check(result, "a launch that is held back");
}

void Submitter::advance() {
  end_batch();
  if (backlog_.empty()) return;
  const SubmitScope scope(core_.gate_client);
  uint64_t from = 0;
  while (Backlog::Taken taken = backlog_.take_admitted(&from)) give_held(std::move(taken));
  end_giving();
}

void Submitter::give_all(std::span<const uint64_t> numbers) {
  const SubmitScope scope(core_.gate_client);
  for (const uint64_t number : numbers) give_held(backlog_.take(number));
  end_giving();
}

void Submitter::give_held(Backlog::Taken taken) {
  progress_.any = true;
  Backlog::Item& item = taken.mapped();
  streams_.keep(item.stream, std::move(item.admitted));
  const Work& work = item.work.work();
  const auto* kernel = std::get_if<KernelWork>(&work.what);
  if (!batch_.empty() && (kernel == nullptr || !batch_.is_of(item.stream))) submit_batch();
  if (kernel != nullptr && collect(work.uses, *kernel, item.stream)) {
    if (!batch_.empty()) collected_.push_back(std::move(taken));
    return;
  }
  end_batch();
  Status status = submit_now(work, item.stream);
  if (is_sticky(status.code())) note_lost(work, item.stream);
  if (!status.ok()) note_failure(opcode_of(work), std::move(status));
}

void Submitter::end_giving() {
  end_batch();
  if (Status status = streams_.end_destroyed(); !status.ok()) {
    note_failure(wire::Opcode::kStreamDestroy, std::move(status));
  }
}

void Submitter::note_lost(const Work& work, Stream& stream) {
  stream.has_lost_work = true;
  const auto promise = [this](const FenceValue& fence) {
    if (fence.slot < wire::kFenceSlots) fences_.promise(fence);
  };
  if (const auto* fence = std::get_if<FenceWork>(&work.what)) promise(fence->fence);
  if (const auto* record = std::get_if<RecordWork>(&work.what)) promise(record->fence);
  if (const auto* call = std::get_if<HostCallWork>(&work.what)) promise(call->fence);
}

// The first failure is reported.
void Submitter::note_failure(wire::Opcode failed, Status status) {
  progress_.any = true;
  if (!progress_.status.ok()) return;
  progress_.failed = failed;
  progress_.status = std::move(status);
}

// ---- Batches ------------------------------------------------------------------------------------

bool Submitter::collect(const Uses& uses, const KernelWork& kernel, Stream& stream) {
  // A recording says which command each kernel is of.
  if (core_.recorded != nullptr && core_.recorded->is_on()) [[unlikely]]
    return false;
  if (!batch_.takes(uses, kernel, stream, streams_.durations)) return false;
  batch_.add(uses, kernel, stream, streams_.durations.of(uses.cost));
  if (batch_.is_full()) submit_batch();
  return true;
}

void Submitter::submit_batch() {
  // An exception must not lead to a second launch.
  struct Ending {
    ~Ending() {
      submitter.batch_.clear();
      submitter.collected_.clear();
    }
    Submitter& submitter;
  };
  const Ending ending{*this};
  may_advance_ = false;
  const SubmitScope scope(core_.gate_client);
  Stream& stream = batch_.stream();
  streams_.prepare_work(stream, batch_.launches().front().cost);
  for (const BatchedLaunch& one : batch_.launches().subspan(1)) {
    streams_.note_demand(stream, one.cost);
  }
  Status status = streams_.enter(stream, Streams::Entry::kWork);
  std::span<const BatchedLaunch> left = batch_.launches();
  if (status.ok() && stream.chains == nullptr) {
    stream.chains =
        std::make_shared<Chains>(core_, stream.place, stream.driver_priority, stream.part);
  }
  while (status.ok() && !left.empty()) {
    CUresult result = CUDA_SUCCESS;
    const size_t gone = stream.chains->launch(left, stream.handle, &result);
    if (gone == 0) break;
    const std::span<const BatchedLaunch> chain = left.first(gone);
    stream.tail.note_kernel(chain.back().of, &chain.back().shape);
    left = left.subspan(gone);
    status = check(result, "cuGraphLaunch of a batch");
    if (!status.ok()) break;
    core_.usage.count(wire::UsageCount::kLaunches, gone);
    core_.usage.count(wire::UsageCount::kBatched, gone);
    for (const BatchedLaunch& one : chain) {
      core_.usage.count_blocks(blocks_of(one.shape), threads_of(one.shape));
    }
  }
  if (status.ok()) status = launch_rest(left, stream);
  if (is_sticky(status.code())) stream.has_lost_work = true;
  if (!status.ok()) note_failure(wire::Opcode::kLaunch, std::move(status));
  streams_.note(stream, [this](StreamBudget& budget) {
    for (const BatchedLaunch& one : batch_.launches()) budget.add(one.cost);
  });
}

// One by one: the driver may refuse one and take the next.
Status Submitter::launch_rest(std::span<const BatchedLaunch> launches, Stream& stream) {
  Status first;
  for (const BatchedLaunch& one : launches) {
    const KernelWork kernel{.handle = one.function,
                            .shape = &one.shape,
                            .attributes = {},
                            .parameters = one.parameters()};
    Status status = launch(kernel, stream.handle);
    if (status.ok()) {
      count({}, kernel);
      stream.tail.note_kernel(one.of, &one.shape);
    }
    if (first.ok()) first = std::move(status);
  }
  return first;
}

// ---- The driver ---------------------------------------------------------------------------------

Status Submitter::submit(const Work& work, Stream& stream) {
  return std::visit([&](const auto& what) { return put(work.uses, what, stream); }, work.what);
}

Status Submitter::submit_now(const Work& work, Stream& stream) {
  return std::visit([&](const auto& what) { return submit_now(work.uses, what, stream); },
                    work.what);
}

Status Submitter::give(const Uses& uses, const KernelWork& kernel, Stream& stream) {
  prints_.before_launch(*kernel.function);
  Status status =
      streams_.submit(stream, uses.lane, [&](CUstream to) { return launch(kernel, to); });
  for (const CUlaunchAttribute& attribute : kernel.attributes.last(kernel.recorded_behind)) {
    if (!status.ok()) break;
    CUevent event = attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                        ? attribute.value.programmaticEvent.event
                        : attribute.value.launchCompletionEvent.event;
    status = check(core_.driver.cuEventRecord(event, stream.handle),
                   "cuEventRecord behind a launch in the cold lane");
  }
  return prints_.after_launch(*kernel.function, std::move(status), stream.handle,
                              stream.place.device);
}

Status Submitter::launch(const KernelWork& kernel, CUstream to) {
  PackedParameters parameters(kernel.parameters);
  const wire::Launch& shape = *kernel.shape;
  if (kernel.attributes.empty()) [[likely]] {
    return check(
        core_.driver.cuLaunchKernel(kernel.handle, shape.grid[0], shape.grid[1], shape.grid[2],
                                    shape.block[0], shape.block[1], shape.block[2],
                                    shape.shared_bytes, to, nullptr, parameters.extra()),
        "cuLaunchKernel");
  }
  CUlaunchConfig config{};
  config.gridDimX = shape.grid[0];
  config.gridDimY = shape.grid[1];
  config.gridDimZ = shape.grid[2];
  config.blockDimX = shape.block[0];
  config.blockDimY = shape.block[1];
  config.blockDimZ = shape.block[2];
  config.sharedMemBytes = shape.shared_bytes;
  config.hStream = to;
  config.attrs = const_cast<CUlaunchAttribute*>(kernel.attributes.data());
  config.numAttrs = static_cast<unsigned>(kernel.attributes.size() - kernel.recorded_behind);
  return check(core_.driver.cuLaunchKernelEx(&config, kernel.handle, nullptr, parameters.extra()),
               "cuLaunchKernelEx");
}

template <typename F>
Status Submitter::copy(const Uses& uses, bool orders_all, Stream& stream, F&& f) {
  for (const WorkRange& range : uses.ranges) memory_.open_to_copies(range, stream.place.device);
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kWork));
  OPENMPS_RETURN_IF_ERROR(f());
  OPENMPS_RETURN_IF_ERROR(write_constants(uses.ranges[0], stream.handle));
  return orders_all ? streams_.order_all_behind(stream) : Status();
}

Status Submitter::copy_to_constants(const WorkRange& range, CUstream to) {
  Status status;
  memory_.constants().for_each_in(
      range.address, range.bytes, [&](uint64_t from, CUdeviceptr constant, uint64_t bytes) {
        if (!status.ok()) return;
        status = check(core_.driver.cuMemcpyAsync(constant, from, bytes, to),
                       "cuMemcpyAsync to a constant");
      });
  return status;
}

Status Submitter::copy_from_constants(const Stream& stream) {
  for (const auto& [address, constant] : memory_.constants().all()) {
    memory_.open_to_copies({address, constant.bytes, true}, stream.place.device);
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuMemcpyAsync(address, constant.in_code, constant.bytes, stream.handle),
              "cuMemcpyAsync from a constant"));
  }
  return Status();
}

Status Submitter::give(const Uses& uses, const CopyWork& work, Stream& stream) {
  return copy(uses, work.orders_all, stream, [&] {
    return check(
        core_.driver.cuMemcpyAsync(work.destination, work.source, work.bytes, stream.handle),
        "cuMemcpyAsync");
  });
}

Status Submitter::give(const Uses& uses, const BoxWork& work, Stream& stream) {
  return copy(uses, work.orders_all, stream, [&] {
    return check(core_.driver.cuMemcpy3DAsync_v2(&work.box, stream.handle), "cuMemcpy3DAsync");
  });
}

Status Submitter::give(const Uses& uses, const FillWork& fill, Stream& stream) {
  return streams_.submit(stream, uses.lane, [&](CUstream to) {
    OPENMPS_RETURN_IF_ERROR(this->fill(fill.fill, to));
    return write_constants(uses.ranges[0], to);
  });
}

Status Submitter::fill(const CUDA_MEMSET_NODE_PARAMS& f, CUstream to) {
  const DriverTable& driver = core_.driver;
  const auto value8 = static_cast<unsigned char>(f.value);
  const auto value16 = static_cast<unsigned short>(f.value);
  const bool linear = f.height <= 1;
  const uint64_t n = f.height == 0 ? 0 : f.width;
  const auto call = [&] {
    switch (f.elementSize) {
      case 1:
        return linear ? driver.cuMemsetD8Async(f.dst, value8, n, to)
                      : driver.cuMemsetD2D8Async(f.dst, f.pitch, value8, n, f.height, to);
      case 2:
        return linear ? driver.cuMemsetD16Async(f.dst, value16, n, to)
                      : driver.cuMemsetD2D16Async(f.dst, f.pitch, value16, n, f.height, to);
      default:
        return linear ? driver.cuMemsetD32Async(f.dst, f.value, n, to)
                      : driver.cuMemsetD2D32Async(f.dst, f.pitch, f.value, n, f.height, to);
    }
  };
  return check(call(), "cuMemsetAsync");
}

Status Submitter::give(const Uses& uses, const ValuesWork& values, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.submit(stream, uses.lane, [&](CUstream to) -> Status {
    if (values.waits != 0) {
      OPENMPS_RETURN_IF_ERROR(streams_.before_open_wait(stream));
      stream.listed->waits.store(true, std::memory_order_relaxed);
      OPENMPS_RETURN_IF_ERROR(waits_.prepare(stream, values.waits));
    }
    OPENMPS_RETURN_IF_ERROR(operate(values.batch, to));
    for (const wire::ValueOperation& operation : values.operations) {
      if (operation.kind != wire::ValueKind::kWrite) continue;
      OPENMPS_RETURN_IF_ERROR(write_constants(range_of(operation), to));
    }
    return Status();
  }));
  if (values.waits == 0) return Status();
  std::vector<wire::StreamValue> waits;
  for (const wire::ValueOperation& operation : values.operations) {
    if (operation.kind == wire::ValueKind::kWait) waits.push_back(operation.value);
  }
  return waits_.add(stream, waits);
}

Status Submitter::operate(std::span<const CUstreamBatchMemOpParams> batch, CUstream to) {
  const DriverTable& driver = core_.driver;
  const auto& write = batch[0].writeValue;
  const auto& wait = batch[0].waitValue;
  const CUstreamBatchMemOpType alone =
      batch.size() == 1 ? batch[0].operation : CU_STREAM_MEM_OP_BARRIER;
  const auto call = [&] {
    switch (alone) {
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return driver.cuStreamWriteValue32_v2(to, write.address, write.value, write.flags);
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return driver.cuStreamWriteValue64_v2(to, write.address, write.value64, write.flags);
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return driver.cuStreamWaitValue32_v2(to, wait.address, wait.value, wait.flags);
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return driver.cuStreamWaitValue64_v2(to, wait.address, wait.value64, wait.flags);
      default:
        return driver.cuStreamBatchMemOp_v2(to, static_cast<unsigned>(batch.size()),
                                            const_cast<CUstreamBatchMemOpParams*>(batch.data()), 0);
    }
  };
  return check(call(), "an operation on values");
}

Status Submitter::give(const Uses&, const HostCallWork& call, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kWork));
  if (call.awaits) OPENMPS_RETURN_IF_ERROR(streams_.before_open_wait(stream));
  return fences_.call(call.slot, call.asks, call.awaits ? &call.fence : nullptr, stream);
}

Status Submitter::give(const Uses&, const FenceWork& fence, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, entry_of(fence)));
  return fences_.write(fence.fence, stream);
}

Status Submitter::give(const Uses& uses, const RecordWork& record, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kRecord));
  const auto& event = *static_cast<const DriverEvent*>(uses.objects[0].get());
  OPENMPS_RETURN_IF_ERROR(fences_.record_after(stream, event));
  return record.fence.slot == wire::kNoFence ? Status() : fences_.write(record.fence, stream);
}

Status Submitter::give(const Uses&, const WaitWork& wait, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kWork));
  OPENMPS_RETURN_IF_ERROR(streams_.before_open_wait(stream));
  return check(core_.driver.cuStreamWaitEvent(stream.handle, wait.event, 0), "cuStreamWaitEvent");
}

Status Submitter::give(const Uses&, const WakeWork&, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kFence));
  return fences_.wake_after(stream);
}

Status Submitter::give(const Uses&, const GraphWork& graph, Stream& stream) {
  prints_.before_graph();
  Status launched = launch(graph, stream);  // makes the driver's stream, if it is the first use
  return prints_.after_graph(std::move(launched), stream.handle, stream.place.device);
}

Status Submitter::launch(const GraphWork& graph, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kWork));
  if (graph.is_cold) streams_.note_cold_graph(stream);
  if (graph.may_wait) stream.listed->waits.store(true, std::memory_order_relaxed);
  if (!graph.waits.empty()) {
    OPENMPS_RETURN_IF_ERROR(streams_.before_open_wait(stream));
    OPENMPS_RETURN_IF_ERROR(waits_.prepare(stream, graph.waits.size()));
  }
  OPENMPS_RETURN_IF_ERROR(graph.exec->launch(stream.handle));
  if (graph.names_constants) OPENMPS_RETURN_IF_ERROR(copy_from_constants(stream));
  return graph.waits.empty() ? Status() : waits_.add(stream, graph.waits);
}

Status Submitter::give(const Uses&, const UploadWork& upload, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kWork));
  return check(core_.driver.cuGraphUpload(upload.exec->current(), stream.handle), "cuGraphUpload");
}

}  // namespace openmps::worker
