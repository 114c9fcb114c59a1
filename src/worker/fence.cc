// SPDX-License-Identifier: Apache-2.0
// Fences, wakes, host functions and stream values. See fence.h.
#include "worker/fence.h"

#include <limits.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "base/futex.h"
#include "worker/driver_check.h"

namespace openmps::worker {
namespace {

// Without 64-bit stream writes a driver thread writes the fence.
struct HostFence {
  wire::FenceSlot* slot;
  uint64_t value;
};
void write_host_fence(void* data) {
  const std::unique_ptr<HostFence> fence(static_cast<HostFence*>(data));
  fence->slot->value.store(fence->value, std::memory_order_release);
}

bool is_wait(const wire::ValueOperation& operation) {
  return operation.kind == wire::ValueKind::kWait;
}

}  // namespace

void wake_client(wire::ChannelHeader& header) {
  // Pairs with the client, which counts itself in `waiters` before it looks at its condition: one
  // of us sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header.waiters.load(std::memory_order_relaxed) == 0) return;
  header.wake_epoch.fetch_add(1, std::memory_order_release);
  futex_wake(&header.wake_epoch, INT_MAX);
}

void FenceLedger::promise(uint32_t slot, uint64_t value) {
  // Pairs with FaultMonitor's last look before it goes to sleep: it sees this, or we wake it.
  promised_[slot].store(value, std::memory_order_seq_cst);
  if (slot >= used_.load(std::memory_order_relaxed)) {
    used_.store(slot + 1, std::memory_order_release);
  }
}

bool FenceLedger::pending(const wire::ChannelView& view) const {
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t slot = 0; slot < used; ++slot) {
    const uint64_t promised = promised_[slot].load(std::memory_order_seq_cst);
    if (view.fence(slot).value.load(std::memory_order_relaxed) < promised) return true;
  }
  return false;
}

Status Fences::handle(const wire::Fence& command, Stream& stream) {
  const bool in_order = (command.slot & wire::kFenceInOrder) != 0;
  OPENMPS_RETURN_IF_ERROR(
      streams_.enter(stream, in_order ? Streams::Entry::kMarker : Streams::Entry::kFence));
  return write(command.stream, stream, command.slot & ~wire::kFenceInOrder, command.value);
}

Status Fences::handle(const wire::EventRecord& command, Event& event, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kMarker));
  OPENMPS_RETURN_IF_ERROR(events_.record(event, stream));
  if (command.slot == wire::kNoFence) return Status();
  return write(command.stream, stream, command.slot, command.value);
}

Status Fences::write(wire::Id id, Stream& stream, uint32_t slot, uint64_t value) {
  if (slot >= wire::kFenceSlots) return violation("there is no fence " + std::to_string(slot));
  wire::FenceSlot& fence = core_.view.fence(slot);
  ledger_.promise(slot, value);
  wire::FencePromise& promise = core_.view.promise(slot);
  promise.value.store(value, std::memory_order_relaxed);
  promise.stream.store(id, std::memory_order_relaxed);
  if (core_.devices.at(stream.device).writes_64_bit_values) {
    return worker::check(
        core_.driver.cuStreamWriteValue64_v2(stream.handle, core_.device_address(&fence), value,
                                             CU_STREAM_WRITE_VALUE_DEFAULT),
        "cuStreamWriteValue64 of a fence");
  }
  auto data = std::make_unique<HostFence>(HostFence{&fence, value});
  OPENMPS_RETURN_IF_ERROR(
      worker::check(core_.driver.cuLaunchHostFunc(stream.handle, write_host_fence, data.get()),
                    "cuLaunchHostFunc of a fence"));
  static_cast<void>(data.release());  // write_host_fence owns it
  return Status();
}

Status Fences::handle(const wire::WakeAfter&, Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kFence));
  return wakers_.wake_after(stream);
}

Status Fences::handle(const wire::HostFunction& command, Stream& stream) {
  if (command.slot >= wire::kCallbackSlots) {
    return violation("there is no callback slot " + std::to_string(command.slot));
  }
  OPENMPS_RETURN_IF_ERROR(streams_.enter(stream, Streams::Entry::kWork));
  OPENMPS_RETURN_IF_ERROR(streams_.before_open_wait(stream));
  wire::CallbackSlot& slot = core_.view.callback(command.slot);
  if (command.slot >= callbacks_used_) callbacks_used_ = command.slot + 1;
  const CUdeviceptr done = core_.device_address(&slot.done);
  OPENMPS_RETURN_IF_ERROR(worker::check(
      core_.driver.cuStreamWriteValue32_v2(stream.handle, core_.device_address(&slot.posted), 1,
                                           CU_STREAM_WRITE_VALUE_DEFAULT),
      "cuStreamWriteValue32 of a host function"));
  return worker::check(
      core_.driver.cuStreamWaitValue32_v2(stream.handle, done, 1, CU_STREAM_WAIT_VALUE_EQ),
      "cuStreamWaitValue32 of a host function");
}

// On a thread of the driver.
void Fences::post(void* data) {
  const Posting& posting = *static_cast<const Posting*>(data);
  posting.slot->posted.store(1, std::memory_order_release);
  wake_client(*posting.header);
}

bool Fences::owes_answer(const void* fences) {
  const auto& self = *static_cast<const Fences*>(fences);
  const uint32_t used = self.callbacks_used_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    const wire::CallbackSlot& slot = self.core_.view.callback(i);
    if (slot.posted.load(std::memory_order_relaxed) != 0 &&
        slot.done.load(std::memory_order_relaxed) == 0) {
      return true;
    }
  }
  return false;
}

void Fences::set_debt(bool (*owes)(const void*)) {
  core_.gate.set_debt(core_.feeder, owes, this);
  if (ColdLanes* cold = core_.commons.cold.get())
    cold->gate.set_debt(core_.cold_feeder, owes, this);
}

CUDA_HOST_NODE_PARAMS Fences::posting(uint32_t slot) {
  if (postings_ == nullptr) postings_ = std::make_unique<Posting[]>(wire::kCallbackSlots);
  if (slot >= callbacks_used_) callbacks_used_ = slot + 1;
  postings_[slot] = {&core_.view.header(), &core_.view.callback(slot)};
  return {post, &postings_[slot]};
}

// Submit the operations, which have been checked: f(CUstream) does.
template <typename F>
Status Fences::submit(Stream& stream, std::span<const wire::ValueOperation> operations, F&& f) {
  const auto waits =
      static_cast<size_t>(std::count_if(operations.begin(), operations.end(), is_wait));
  const bool cold = std::any_of(operations.begin(), operations.end(), [this](const auto& o) {
    return memory_.lane_of(o.value.address) == Lane::kCold;
  });
  if (cold && waits != 0) return no_wait_in_cold_variable();
  const Lane lane = cold ? Lane::kCold : Lane::kMain;
  OPENMPS_RETURN_IF_ERROR(streams_.submit(stream, lane, [&](CUstream to) -> Status {
    if (waits != 0) {
      OPENMPS_RETURN_IF_ERROR(streams_.before_open_wait(stream));
      stream.listed->waits.store(true, std::memory_order_relaxed);
      OPENMPS_RETURN_IF_ERROR(waits_.prepare(stream, waits));
    }
    return f(to);
  }));
  return remember(stream, operations);
}

// They have been submitted to it.
Status Fences::remember(const Stream& stream, std::span<const wire::ValueOperation> operations) {
  std::vector<wire::StreamValue> waits;
  for (const wire::ValueOperation& operation : operations) {
    if (is_wait(operation)) waits.push_back(operation.value);
  }
  return waits.empty() ? Status() : waits_.add(stream, waits);
}

Status Fences::handle(const wire::StreamWriteValue& command, Stream& stream) {
  return value(stream, {command.value, wire::ValueKind::kWrite});
}

Status Fences::handle(const wire::StreamWaitValue& command, Stream& stream) {
  return value(stream, {command.value, wire::ValueKind::kWait});
}

Status Fences::value(Stream& stream, const wire::ValueOperation& operation) {
  OPENMPS_RETURN_IF_ERROR(check_value(operation));
  const wire::StreamValue& value = operation.value;
  const bool writes = operation.kind == wire::ValueKind::kWrite;
  const CUdeviceptr address = core_.device_address(value.address);
  return submit(stream, {&operation, 1}, [&](CUstream to) {
    const DriverTable& driver = core_.driver;
    if (value.width == 8) {
      const auto call = writes ? driver.cuStreamWriteValue64_v2 : driver.cuStreamWaitValue64_v2;
      return worker::check(call(to, address, value.value, value.flags), "a 64-bit stream value");
    }
    const auto call = writes ? driver.cuStreamWriteValue32_v2 : driver.cuStreamWaitValue32_v2;
    return worker::check(call(to, address, static_cast<uint32_t>(value.value), value.flags),
                         "a 32-bit stream value");
  });
}

Status Fences::handle(const wire::StreamBatch&, Stream& stream,
                      const wire::StreamBatch::Tail& tail) {
  const std::span operations = tail.operations;
  if (operations.empty()) return Status();
  std::array<CUstreamBatchMemOpParams, wire::kMaxBatch> batch;
  for (size_t i = 0; i < operations.size(); ++i) {
    OPENMPS_RETURN_IF_ERROR(check_value(operations[i]));
    OPENMPS_RETURN_IF_ERROR(
        memory_.check_operand(range_of(operations[i]), "address of a stream value"));
    batch[i] = operation_of(operations[i], core_.device_address(operations[i].value.address));
  }
  const auto count = static_cast<unsigned>(operations.size());
  return submit(stream, operations, [&](CUstream to) {
    return worker::check(core_.driver.cuStreamBatchMemOp_v2(to, count, batch.data(), 0),
                         "cuStreamBatchMemOp");
  });
}

bool Fences::pass_all_waits() {
  for (uint32_t slot = 0; slot < callbacks_used_; ++slot) {
    core_.view.callback(slot).done.store(1, std::memory_order_release);
  }
  return waits_.pass();
}

void Fences::release_all() {
  set_debt(nullptr);
  wakers_.release_all();
  waits_.release_all();
}

}  // namespace openmps::worker
