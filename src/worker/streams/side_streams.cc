// SPDX-License-Identifier: Apache-2.0
// See side_streams.h.
#include "worker/streams/side_streams.h"

#include <utility>

#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// So many waits, such as sleeping threads of a client, do not delay each other; further ones share
// a side stream. Each costs a stream: 0.55 MiB of an H200's memory.
constexpr size_t kMostOfDevice = 8;

void wake_from_stream(void* header) { wake_client(*static_cast<wire::ChannelHeader*>(header)); }

}  // namespace

void SideStreams::wake(void* waking) {
  const auto& [header, credits] = *static_cast<const Waking*>(waking);
  wake_client(*header);
  if (credits != nullptr) static_cast<void>(credits->adopt());
}

// Half of the credits are left to work. Without credits a wake needs none.
std::optional<QueueCredit> SideStreams::take_credit(uint32_t device) {
  Waking& waking = wakings_[device];
  if (waking.header == nullptr) {  // once: later on a thread of the driver may be reading it
    waking = {&core_.view.header(), credits_ != nullptr ? &(*credits_)[device] : nullptr};
  }
  if (waking.credits == nullptr) return QueueCredit();
  if (!waking.credits->keeps_some()) return std::nullopt;
  QueueCredit credit = waking.credits->try_take(false, CreditTerm::kUnknown);
  return credit != nullptr ? std::optional(std::move(credit)) : std::nullopt;
}

Result<SideStreams::Side*> SideStreams::add(uint32_t device, StreamSlot slots) {
  Side side{device, nullptr, nullptr, std::move(slots)};
  if (Status status = check(core_.driver.cuEventCreate(&side.event, CU_EVENT_DISABLE_TIMING),
                            "cuEventCreate for a side stream");
      !status.ok()) {
    return status;
  }
  if (Status status =
          check(core_.driver.cuStreamCreateWithPriority(&side.stream, CU_STREAM_NON_BLOCKING, 0),
                "cuStreamCreateWithPriority of a side stream");
      !status.ok()) {
    core_.driver.cuEventDestroy_v2(side.event);
    return status;
  }
  sides_.push_back(side);
  return &sides_.back();
}

// A side stream without work, else a new one, else any.
Result<SideStreams::Side*> SideStreams::take(uint32_t device) {
  size_t owned = 0;
  for (Side& side : sides_) {
    if (side.device != device) continue;
    ++owned;
    if (core_.driver.cuStreamQuery(side.stream) == CUDA_SUCCESS) return &side;
  }
  StreamSlot slots;
  if (owned < kMostOfDevice &&
      core_.take_free_slots({device}, 1, SessionCore::Leaves::kQuarter, &slots)) {
    return add(device, std::move(slots));
  }
  if (owned == 0) return nullptr;
  for (;;) {
    Side& side = sides_[next_++ % sides_.size()];
    if (side.device == device) return &side;
  }
}

Result<SideStreams::Side*> SideStreams::take_for_certain(uint32_t device) {
  Result<Side*> taken = take(device);
  if (!taken.ok() || *taken != nullptr) return taken;
  StreamSlot slots = core_.take_slots({device});
  if (Status used = core_.use(device); !used.ok()) return used;
  return add(device, std::move(slots));
}

Status SideStreams::wake_beside(const Side& side, const Stream& stream) {
  const DriverTable& driver = core_.driver;
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuEventRecord(side.event, stream.handle), "cuEventRecord of a wake"));
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuStreamWaitEvent(side.stream, side.event, 0), "cuStreamWaitEvent of a wake"));
  return check(driver.cuLaunchHostFunc(side.stream, wake, &wakings_[side.device]),
               "cuLaunchHostFunc of a wake");
}

Status SideStreams::wake_after(const Stream& stream) {
  const uint32_t device = stream.place.device;
  if (std::optional<QueueCredit> credit = take_credit(device)) {
    const Result<Side*> side = take(device);
    OPENMPS_RETURN_IF_ERROR(side.status());
    if (*side != nullptr) {
      Status status = wake_beside(**side, stream);
      if (status.ok()) static_cast<void>(credit->release());  // wake() adopts it
      return status;
    }
  }
  return check(core_.driver.cuLaunchHostFunc(stream.handle, wake_from_stream, &core_.view.header()),
               "cuLaunchHostFunc of a wake in its stream");
}

// The event that marks the point is of the stream's device, the stream that waits for it of the
// other device.
Status SideStreams::record_after(const Stream& stream, const DriverEvent& event) {
  const DriverTable& driver = core_.driver;
  Result<Side*> here = take_for_certain(stream.place.device);
  if (!here.ok()) return here.status();
  const CUevent mark = (*here)->event;
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuEventRecord(mark, stream.handle), "cuEventRecord for another device"));
  OPENMPS_RETURN_IF_ERROR(core_.use(event.device));
  Result<Side*> there = take_for_certain(event.device);
  Status status = there.status();
  if (status.ok()) {
    status = check(driver.cuStreamWaitEvent((*there)->stream, mark, 0),
                   "cuStreamWaitEvent on another device");
  }
  if (status.ok()) {
    status = check(driver.cuEventRecord(event.handle, (*there)->stream),
                   "cuEventRecord of an event of another device");
  }
  const Status back = core_.use(stream.place);
  return status.ok() ? back : status;
}

bool SideStreams::idle() {
  for (const Side& side : sides_) {
    if (!core_.use(side.device).ok()) continue;
    if (core_.driver.cuStreamQuery(side.stream) == CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

void SideStreams::release_all() {
  for (const Side& side : sides_) {
    static_cast<void>(core_.use(side.device).ok());
    core_.driver.cuEventDestroy_v2(side.event);
    core_.driver.cuStreamDestroy_v2(side.stream);
  }
  sides_.clear();
}

}  // namespace openmps::worker
