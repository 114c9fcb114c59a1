// SPDX-License-Identifier: Apache-2.0
// Fences, wakes, host functions and stream values. See fence.h.
#include "worker/streams/fence.h"

#include <array>
#include <utility>

#include "worker/device/driver_check.h"

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

}  // namespace

void FenceLedger::promise(uint32_t slot, uint64_t value) {
  if (slot >= used_.load(std::memory_order_relaxed)) {
    for (uint32_t chunk = 0; chunk <= slot / kChunk; ++chunk) {
      if (chunks_[chunk] == nullptr) chunks_[chunk] = std::make_unique<Chunk>();
    }
    used_.store(slot + 1, std::memory_order_seq_cst);
  }
  // Pairs with FaultMonitor::forget_idle(): the monitor sees this store, or fence_promised() finds
  // that the monitor has dropped the session.
  promised(slot).store(value, std::memory_order_seq_cst);
}

bool FenceLedger::pending(const wire::ChannelView& view) const {
  const uint32_t used = used_.load(std::memory_order_seq_cst);
  for (uint32_t slot = 0; slot < used; ++slot) {
    const uint64_t value = promised(slot).load(std::memory_order_seq_cst);
    if (view.fence(slot).value.load(std::memory_order_relaxed) < value) return true;
  }
  return false;
}

Status Fences::promise(const FenceValue& to) {
  wire::FenceSlot& fence = core_.view.fence(to.slot);
  OPENMPS_RETURN_IF_ERROR(core_.pages.use(&fence, sizeof(fence)));
  ledger_.promise(to.slot, to.value);
  wire::FencePromise& promise = core_.view.promise(to.slot);
  promise.value.store(to.value, std::memory_order_relaxed);
  promise.stream.store(to.stream, std::memory_order_relaxed);
  return Status();
}

Status Fences::write(const FenceValue& to, const Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(promise(to));
  wire::FenceSlot& fence = core_.view.fence(to.slot);
  if (core_.devices.at(stream.place.device).writes_64_bit_values) {
    return check(core_.driver.cuStreamWriteValue64_v2(stream.handle, core_.device_address(&fence),
                                                      to.value, CU_STREAM_WRITE_VALUE_DEFAULT),
                 "cuStreamWriteValue64 of a fence");
  }
  auto data = std::make_unique<HostFence>(HostFence{&fence, to.value});
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuLaunchHostFunc(stream.handle, write_host_fence, data.get()),
            "cuLaunchHostFunc of a fence"));
  static_cast<void>(data.release());  // write_host_fence owns it
  return Status();
}

void Fences::note_used(uint32_t slot, bool awaited) {
  awaited_[slot].store(awaited, std::memory_order_relaxed);
  if (slot >= callbacks_used_) callbacks_used_ = slot + 1;
}

// One call instead of three shortens the way to the client and back by a quarter (decision 14).
Status Fences::call(uint32_t slot_number, bool asks, const FenceValue* then, const Stream& stream) {
  wire::CallbackSlot& slot = core_.view.callback(slot_number);
  OPENMPS_RETURN_IF_ERROR(core_.pages.use(&slot, sizeof(slot)));
  note_used(slot_number, then != nullptr);
  std::array<CUstreamBatchMemOpParams, 3> all{};
  unsigned count = 0;
  if (asks) {
    auto& ask = all[count++].writeValue;
    ask.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ask.address = core_.device_address(&slot.posted);
    ask.value = 1;
  }
  const bool has_fence = then != nullptr && then->slot != wire::kNoFence;
  const bool together = has_fence && core_.devices.at(stream.place.device).writes_64_bit_values;
  if (then != nullptr) {
    auto& wait = all[count++].waitValue;
    wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.address = core_.device_address(&slot.done);
    wait.value = 1;
    wait.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  if (together) {
    OPENMPS_RETURN_IF_ERROR(promise(*then));
    auto& fence = all[count++].writeValue;
    fence.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    fence.address = core_.device_address(&core_.view.fence(then->slot));
    fence.value64 = then->value;
  }
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuStreamBatchMemOp_v2(stream.handle, count, all.data(), 0),
            "cuStreamBatchMemOp of a host function"));
  return has_fence && !together ? write(*then, stream) : Status();
}

// On a thread of the driver.
void Fences::post(void* data) {
  const Posting& posting = *static_cast<const Posting*>(data);
  posting.slot->posted.store(1, std::memory_order_release);
  wake_client(*posting.header);
}

bool Fences::owes_answer() const {
  const uint32_t used = callbacks_used_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    const wire::CallbackSlot& slot = core_.view.callback(i);
    if (awaited_[i].load(std::memory_order_relaxed) &&
        slot.posted.load(std::memory_order_relaxed) != 0 &&
        slot.done.load(std::memory_order_relaxed) == 0) {
      return true;
    }
  }
  return false;
}

void Fences::set_debt(const std::function<bool()>& owes) {
  core_.gate.set_debt(core_.gate_client, owes);
  if (core_.cold != nullptr) core_.cold_gate->set_debt(core_.cold_gate_client, owes);
}

CUDA_HOST_NODE_PARAMS Fences::posting(uint32_t slot) {
  if (postings_ == nullptr) postings_ = std::make_unique<Posting[]>(wire::kCallbackSlots);
  note_used(slot, true);
  postings_[slot] = {&core_.view.header(), &core_.view.callback(slot)};
  return {post, &postings_[slot]};
}

bool Fences::pass_all_waits() {
  for (uint32_t slot = 0; slot < callbacks_used_; ++slot) {
    core_.view.callback(slot).done.store(1, std::memory_order_release);
  }
  return waits_.pass();
}

void Fences::release_all() {
  set_debt(nullptr);
  side_streams_.release_all();
  waits_.release_all();
}

}  // namespace openmps::worker
