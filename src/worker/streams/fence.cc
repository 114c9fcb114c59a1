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

void wake_from_stream(void* header) { wake_client(*static_cast<wire::ChannelHeader*>(header)); }

}  // namespace

void FenceLedger::promise(uint32_t slot, uint64_t value) {
  if (slot >= used_.load(std::memory_order_relaxed)) {
    used_.store(slot + 1, std::memory_order_seq_cst);
  }
  // Pairs with FaultMonitor::look_at_sessions_locked(): it sees this store, or fence_promised()
  // finds that the monitor has dropped the session.
  promised_[slot].store(value, std::memory_order_seq_cst);
}

uint64_t FenceLedger::reached(const wire::ChannelView& view) const {
  const uint32_t used = used_.load(std::memory_order_acquire);
  uint64_t sum = 0;
  for (uint32_t slot = 0; slot < used; ++slot) {
    sum += view.fence(slot).value.load(std::memory_order_relaxed);
  }
  return sum;
}

bool FenceLedger::pending(const wire::ChannelView& view) const {
  const uint32_t used = used_.load(std::memory_order_seq_cst);
  for (uint32_t slot = 0; slot < used; ++slot) {
    const uint64_t value = promised_[slot].load(std::memory_order_seq_cst);
    if (view.fence(slot).value.load(std::memory_order_relaxed) < value) return true;
  }
  return false;
}

uint64_t FenceLedger::look(const wire::ChannelView& view, uint64_t now,
                           std::vector<Seen>* seen) const {
  const uint32_t used = used_.load(std::memory_order_acquire);
  if (seen->size() < used) seen->resize(used);
  uint64_t first_ns = 0;
  for (uint32_t slot = 0; slot < used; ++slot) {
    const uint64_t value = view.fence(slot).value.load(std::memory_order_relaxed);
    const bool is_awaited = value < promised(slot);
    Seen& there = (*seen)[slot];
    if (there.value != value || there.is_awaited != is_awaited) there = {value, is_awaited, now};
    if (is_awaited && (first_ns == 0 || there.since_ns < first_ns)) first_ns = there.since_ns;
  }
  return first_ns;
}

Status Fences::prepare(const FenceValue& to) {
  wire::FenceSlot& fence = core_.view.fence(to.slot);
  return core_.pages.use(&fence, sizeof(fence));
}

void Fences::promise(const FenceValue& to) {
  ledger_.promise(to.slot, to.value);
  wire::FencePromise& promise = core_.view.promise(to.slot);
  promise.value.store(to.value, std::memory_order_relaxed);
  promise.stream.store(to.stream, std::memory_order_relaxed);
}

Status Fences::write(const FenceValue& to, const Stream& stream) {
  OPENMPS_RETURN_IF_ERROR(prepare(to));
  wire::FenceSlot& fence = core_.view.fence(to.slot);
  if (core_.devices.at(stream.place.device).writes_64_bit_values) {
    OPENMPS_RETURN_IF_ERROR(
        check(core_.driver.cuStreamWriteValue64_v2(stream.handle, core_.device_address(&fence),
                                                   to.value, CU_STREAM_WRITE_VALUE_DEFAULT),
              "cuStreamWriteValue64 of a fence"));
    promise(to);
    return Status();
  }
  auto data = std::make_unique<HostFence>(HostFence{&fence, to.value});
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuLaunchHostFunc(stream.handle, write_host_fence, data.get()),
            "cuLaunchHostFunc of a fence"));
  static_cast<void>(data.release());  // write_host_fence owns it
  promise(to);
  return Status();
}

// ---- Side streams -------------------------------------------------------------------------------

void Fences::wake(void* waking) {
  const auto& [header, credits] = *static_cast<const Waking*>(waking);
  wake_client(*header);
  if (credits != nullptr) static_cast<void>(credits->adopt());
}

// Half of the credits are left to the streams' work. Where credits are not counted a wake needs
// none. On a device with a single credit no wake takes it: the stream that has it may wait for this
// one.
std::optional<QueueCredit> Fences::take_credit(uint32_t device) {
  Waking& waking = wakings_[device];
  if (waking.header == nullptr) {  // once: later on a thread of the driver may be reading it
    waking = {&core_.view.header(), credits_ != nullptr ? &(*credits_)[device] : nullptr};
  }
  if (waking.credits == nullptr) return QueueCredit();
  if (!waking.credits->reserves_for_short()) return std::nullopt;
  QueueCredit credit = waking.credits->try_take(false, CreditTerm::kUnknown);
  return credit != nullptr ? std::optional(std::move(credit)) : std::nullopt;
}

Status Fences::come_behind(CUstream side, const Stream& stream) {
  std::unique_ptr<DriverEvent>& end = ends_[stream.place.device];
  if (end == nullptr) {
    OPENMPS_RETURN_IF_ERROR(DriverEvent::make(core_.driver, stream.place.device, &end));
  }
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuEventRecord(end->handle, stream.handle),
                                "cuEventRecord for a side stream"));
  return check(core_.driver.cuStreamWaitEvent(side, end->handle, 0),
               "cuStreamWaitEvent of a side stream");
}

Status Fences::wake_after(const Stream& stream) {
  const uint32_t device = stream.place.device;
  if (std::optional<QueueCredit> credit = take_credit(device)) {
    CUstream side = nullptr;
    OPENMPS_RETURN_IF_ERROR(sides_.take(device, SessionCore::Leaves::kQuarter, &side));
    if (side != nullptr) {
      OPENMPS_RETURN_IF_ERROR(come_behind(side, stream));
      OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuLaunchHostFunc(side, wake, &wakings_[device]),
                                    "cuLaunchHostFunc of a wake"));
      static_cast<void>(credit->release());  // wake() adopts it
      return Status();
    }
  }
  return check(core_.driver.cuLaunchHostFunc(stream.handle, wake_from_stream, &core_.view.header()),
               "cuLaunchHostFunc of a wake in its stream");
}

Status Fences::record_after(const Stream& stream, const DriverEvent& event) {
  if (event.device == stream.place.device) {
    return check(core_.driver.cuEventRecord(event.handle, stream.handle), "cuEventRecord");
  }
  CUstream there = nullptr;
  Status status = sides_.take_for_certain(event.device, &there);
  const Status back = core_.use(stream.place);
  OPENMPS_RETURN_IF_ERROR(status);
  OPENMPS_RETURN_IF_ERROR(back);
  OPENMPS_RETURN_IF_ERROR(come_behind(there, stream));
  return check(core_.driver.cuEventRecord(event.handle, there),
               "cuEventRecord of an event of another device");
}

// ---- Host functions -----------------------------------------------------------------------------

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
    OPENMPS_RETURN_IF_ERROR(prepare(*then));
    auto& fence = all[count++].writeValue;
    fence.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    fence.address = core_.device_address(&core_.view.fence(then->slot));
    fence.value64 = then->value;
  }
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuStreamBatchMemOp_v2(stream.handle, count, all.data(), 0),
            "cuStreamBatchMemOp of a host function"));
  if (together) promise(*then);
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
  // A run that was lost has not set it back.
  if (core_.journal.is_adopting()) core_.view.callback(slot).done.store(0);
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
  sides_.release_all();
  for (std::unique_ptr<DriverEvent>& end : ends_) end.reset();
  waits_.release_all();
}

}  // namespace openmps::worker
