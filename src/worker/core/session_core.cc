// SPDX-License-Identifier: Apache-2.0
// See session_core.h.
#include "worker/core/session_core.h"

#include <climits>
#include <ctime>
#include <new>
#include <utility>

#include "base/futex.h"
#include "worker/device/driver_check.h"
#include "worker/device/in_context.h"

namespace openmps::worker {
namespace {

// The most nodes of a session's executable graphs that wait for a quiescence without one being
// brought about; a graph counts as some more nodes than it has. Measured on an H100: a graph of one
// node takes 110 KiB of the device, each node of larger graphs 5 KiB of the host and 2 KiB of the
// device, so all take some 50 MiB of either at most. Bringing about a quiescence for each 64 graphs
// of 20 kernels cost a program that makes many graphs 43 % of its speed beside long kernels.
constexpr uint64_t kMostNodesLeaving = 8192;
constexpr uint64_t kGraphAsNodes = 16;
// The pause between two tries of a caller that finds no memory.
constexpr long kMemoryLookNs = 1'000'000;

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
    const std::lock_guard lock(limits_mutex_);
    limits_ = limits.client;
  }
  for (uint32_t i = 0; i < devices.count(); ++i) {
    parts.set(i, {limits.sms[i], limits.reservation, limits.rank, info.group.get()});
  }
  if (rank.exchange(limits.rank, std::memory_order_relaxed) != limits.rank) parts.touch();
}

Status SessionCore::check_device(uint32_t device) const {
  if (device < devices.count()) return Status();
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
    const Request request{GatedCall::kStreamSlots, place.device,     &gate_client,
                          Patience::kOneHold,      Otherwise::kSkip, hold_ns};
    const bool quiescent =
        gate.run_quiescent(request,
                           [&] {
                             return of->grow(driver, context(place),
                                             std::max(count, StreamSlots::kMore));
                           })
            .has_value();
    // Whether or not the slots could be made, the driver would not wait now.
    if (quiescent) *taken = of->take_anyhow(count);
    return quiescent;
  };
  if (found(0) || gate.retry(&gate_client, found)) return Status();
  return gate.gave_up() ? Status(CUDA_ERROR_MPS_SERVER_NOT_READY, "there is no room for a graph")
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

void SessionCore::give_back(uint32_t device, CUgraphExec exec, uint64_t nodes,
                            const std::shared_ptr<const void>& part,
                            const StreamSlot& slots) noexcept {
  if (!use(device).ok()) return;  // a lost context has destroyed its graphs
  const auto destroy = [&driver = driver, exec] { return driver.cuGraphExecDestroy(exec); };
  constexpr GatedCall kCall = GatedCall::kGraphExecDestroy;
  for (;;) {
    try {
      if (gate.run_quiescent({kCall, device, nullptr, Patience::kOneHold}, destroy)) return;
      const uint64_t weight = kGraphAsNodes + nodes;
      const StreamSlots* const room = main_slots_[device].get();
      const bool many = leaving_->load(std::memory_order_relaxed) + weight > kMostNodesLeaving ||
                        (room != nullptr && room->are_short());
      gate.defer(
          kCall, device,
          [&driver = driver, destroy, context = context({device}), weight, left = leaving_, part,
           slots] {
            const InContext current(driver, context);
            const CUresult result = destroy();
            left->fetch_sub(weight, std::memory_order_release);
            return result;
          },
          many ? ContextGate::Urgency::kSoon : ContextGate::Urgency::kNone);
      leaving_->fetch_add(weight, std::memory_order_relaxed);
      return;
    } catch (const std::bad_alloc&) {
      const timespec pause{0, kMemoryLookNs};
      nanosleep(&pause, nullptr);
    }
  }
}

CUdeviceptr SessionCore::device_address(uint64_t address) const {
  const uint64_t channel = device_end() + wire::kRegisteredOffset;
  const bool in_channel = address >= channel && address < device_end() + wire::kRegisteredEnd;
  return in_channel ? address + channel_delta : address;
}

}  // namespace openmps::worker
