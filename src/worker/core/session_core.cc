// SPDX-License-Identifier: Apache-2.0
// See session_core.h.
#include "worker/core/session_core.h"

#include <climits>
#include <new>
#include <utility>

#include "base/futex.h"
#include "base/mutex.h"
#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// The pause between two tries of a caller that finds no memory.
constexpr uint64_t kMemoryLookNs = 1'000'000;

}  // namespace

void wake_client(wire::ChannelHeader& header) {
  // Pairs with the client, which counts itself in `waiters` before it tests its condition: either
  // the client sees the change or this thread sees the waiter.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (header.waiters.load(std::memory_order_relaxed) == 0) return;
  header.wake_epoch.fetch_add(1, std::memory_order_release);
  futex_wake(&header.wake_epoch, INT_MAX);
}

SessionCore::SessionCore(const Clock& worker_clock, const DriverTable& driver_table,
                         const Devices& all_devices, ContextGate& context_gate,
                         ColdLanes* cold_lanes, SmPartitions* partitions,
                         const PerDevice<std::shared_ptr<StreamSlots>>& main_slots,
                         const UsageRows& rows, SessionInfo session_info)
    : clock(worker_clock),
      driver(driver_table),
      devices(all_devices),
      gate(context_gate),
      cold(cold_lanes),
      cold_gate(cold != nullptr ? &cold->gate : nullptr),
      info(std::move(session_info)),
      usage(rows.row(info.window), info.id, info.client_pid),
      parts(clock, driver, devices, gate_client, partitions),
      main_slots_(main_slots) {
  change(info.limits);
  gate_client.usage = cold_gate_client.usage = &usage;
  gate_client.session = cold_gate_client.session = info.id;
  gate.add(gate_client);
  if (cold != nullptr) cold_gate->add(cold_gate_client);
}

SessionCore::~SessionCore() {
  gate.remove(gate_client);
  if (cold != nullptr) cold_gate->remove(cold_gate_client);
}

void SessionCore::change(const SessionLimits& limits) {
  {
    const MutexLock lock(limits_mutex_);
    limits_ = limits.client;
  }
  work_time_s.store(limits.client.work_time_s, std::memory_order_relaxed);
  for (const uint32_t i : devices.used()) {
    parts.set(i, {limits.sms[i], limits.reservation, limits.rank, info.group.get(),
                  limits.client.borrows != 0});
  }
  bool touches = rank.exchange(limits.rank, std::memory_order_relaxed) != limits.rank;
  const float next_weight = limits.client.weight;
  touches |= weight.exchange(next_weight, std::memory_order_relaxed) != next_weight;
  if (touches) parts.touch();
}

Status SessionCore::check_device(uint32_t device) const {
  if (devices.uses(device)) return Status();
  return violation("there is no device " + std::to_string(device));
}

CUcontext SessionCore::context(const Placement& place) const {
  return place.lane == Lane::kMain ? devices.at(place.device).context : cold->context(place.device);
}

Status SessionCore::use(const Placement& place) {
  if (place.device == current_.device && place.lane == current_.lane) return Status();
  OPENMPS_RETURN_IF_ERROR(check(driver.cuCtxSetCurrent(context(place)), "cuCtxSetCurrent"));
  current_ = place;
  return Status();
}

std::shared_ptr<StreamSlots> SessionCore::slots(const Placement& place) const {
  if (main_slots_[place.device] == nullptr) return nullptr;
  const std::shared_ptr<StreamSlots>& of = place.partition != nullptr  ? place.partition->slots
                                           : place.lane == Lane::kMain ? main_slots_[place.device]
                                                                       : cold->slots(place.device);
  return of != nullptr && of->are_counted() ? of : nullptr;
}

StreamSlot SessionCore::take_slots(const Placement& place, uint32_t count) {
  const std::shared_ptr<StreamSlots> of = slots(place);
  if (of == nullptr) return nullptr;
  const StreamSlot taken = of->take(count);
  make_more_slots(place, of);
  return taken != nullptr ? taken : of->take_anyhow(count);
}

bool SessionCore::take_free_slots(const Placement& place, uint32_t count, Leaves leaves,
                                  StreamSlot* taken) {
  const std::shared_ptr<StreamSlots> of = slots(place);
  if (of == nullptr) return true;
  const auto take = [&] {
    return leaves == Leaves::kNone ? of->take(count) : of->take_spare(count);
  };
  *taken = take();
  make_more_slots(place, of);
  if (*taken == nullptr) *taken = take();
  // No more slots are made for a set of SMs.
  const bool anyhow = place.partition != nullptr && leaves == Leaves::kNone;
  if (*taken == nullptr && anyhow) *taken = of->take_anyhow(count);
  return *taken != nullptr;
}

Status SessionCore::await_slots(const Placement& place, uint32_t count, Leaves leaves,
                                StreamSlot* taken) {
  const auto found = [&](uint64_t hold_ns) {
    if (take_free_slots(place, count, leaves, taken)) return true;
    const std::shared_ptr<StreamSlots> of = slots(place);
    const auto grow = [&] {
      return of->grow(driver, context(place), std::max(count, StreamSlots::kMore));
    };
    const bool quiescent = gate.run_quiescent({.call = GatedCall::kStreamSlots,
                                               .device = place.device,
                                               .client = &gate_client,
                                               .patience = Patience::kOneHold,
                                               .hold_ns = hold_ns},
                                              grow)
                               .has_value();
    // Whether or not the slots could be made, the driver would not wait now.
    if (quiescent) *taken = of->take_anyhow(count);
    return quiescent;
  };
  if (found(0) || gate.retry(gate_client, found)) return Status();
  return gate.gave_up()
             ? Status(CUDA_ERROR_MPS_SERVER_NOT_READY, "no stream slots are free for a graph")
             : Status(CUDA_ERROR_NOT_READY, "the session stops");
}

void SessionCore::make_more_slots(const Placement& place,
                                  const std::shared_ptr<StreamSlots>& slots) noexcept {
  // The green context of a set of SMs may be destroyed before the next quiescence.
  if (place.partition != nullptr || !slots->begin_to_grow()) return;
  ContextGate& its = place.lane == Lane::kCold ? *cold_gate : gate;
  try {
    its.defer(
        GatedCall::kStreamSlots, place.device,
        [&driver = driver, slots, in = context(place)] {
          const CUresult made = slots->grow(driver, in);
          slots->end_growing();
          return made;
        },
        ContextGate::Urgency::kSoon);
  } catch (const std::bad_alloc&) {
    slots->end_growing();  // the next stream tries again
  }
}

void SessionCore::release_graph(uint32_t device, CUgraphExec exec, uint64_t nodes,
                                const std::shared_ptr<const void>& part,
                                const StreamSlot& slots) noexcept {
  if (!use(device).ok()) return;  // a lost context has destroyed its graphs
  const StreamSlots* const counted = main_slots_[device].get();
  const bool is_urgent = counted != nullptr && counted->are_short();
  for (;;) {
    try {
      return releases.add_graph(
          {GatedCall::kGraphExecDestroy, device, context({device}),
           [&driver = driver, exec, part, slots] { return driver.cuGraphExecDestroy(exec); }},
          nodes, is_urgent);
    } catch (const std::bad_alloc&) {
      clock.sleep(kMemoryLookNs);
    }
  }
}

CUdeviceptr SessionCore::device_address(uint64_t address) const {
  const uint64_t channel = device_end() + wire::kRegisteredOffset;
  const bool in_channel = address >= channel && address < device_end() + wire::kRegisteredEnd;
  return in_channel ? address + channel_delta : address;
}

}  // namespace openmps::worker
