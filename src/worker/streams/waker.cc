// SPDX-License-Identifier: Apache-2.0
// Wakes for the client's sleeping threads. See waker.h.
#include "worker/streams/waker.h"

#include "worker/device/driver_check.h"

namespace openmps::worker {
namespace {

// Threads of a client that sleep for different streams of one device without holding each other's
// wake up; more share. A waker costs a stream: 0.55 MiB of an H200's memory.
constexpr size_t kMaxWakers = 8;

void wake_from_stream(void* header) { wake_client(*static_cast<wire::ChannelHeader*>(header)); }

}  // namespace

Result<Wakers::Waker*> Wakers::add(uint32_t device) {
  Waker waker{device, nullptr, nullptr};
  if (Status status = check(core_.driver.cuEventCreate(&waker.event, CU_EVENT_DISABLE_TIMING),
                            "cuEventCreate of a wake");
      !status.ok()) {
    return status;
  }
  if (Status status =
          check(core_.driver.cuStreamCreateWithPriority(&waker.stream, CU_STREAM_NON_BLOCKING, 0),
                "cuStreamCreateWithPriority of a wake");
      !status.ok()) {
    core_.driver.cuEventDestroy_v2(waker.event);
    return status;
  }
  wakers_.push_back(waker);
  return &wakers_.back();
}

// One that has nothing to do, else a new one, else any.
Result<Wakers::Waker*> Wakers::take(uint32_t device) {
  size_t owned = 0;
  for (Waker& waker : wakers_) {
    if (waker.device != device) continue;
    ++owned;
    if (core_.driver.cuStreamQuery(waker.stream) == CUDA_SUCCESS) return &waker;
  }
  if (owned < kMaxWakers) return add(device);
  for (;;) {
    Waker& waker = wakers_[next_++ % wakers_.size()];
    if (waker.device == device) return &waker;
  }
}

Status Wakers::wake_after(const Stream& stream) {
  Result<Waker*> taken = take(stream.place.device);
  if (!taken.ok()) return taken.status();
  const Waker& waker = **taken;
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuEventRecord(waker.event, stream.handle), "cuEventRecord of a wake"));
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuStreamWaitEvent(waker.stream, waker.event, 0),
                                "cuStreamWaitEvent of a wake"));
  return check(core_.driver.cuLaunchHostFunc(waker.stream, wake_from_stream, &core_.view.header()),
               "cuLaunchHostFunc of a wake");
}

bool Wakers::idle() {
  for (const Waker& waker : wakers_) {
    if (!core_.use(waker.device).ok()) continue;
    if (core_.driver.cuStreamQuery(waker.stream) == CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

void Wakers::release_all() {
  for (const Waker& waker : wakers_) {
    static_cast<void>(core_.use(waker.device).ok());
    core_.driver.cuEventDestroy_v2(waker.event);
    core_.driver.cuStreamDestroy_v2(waker.stream);
  }
  wakers_.clear();
}

}  // namespace openmps::worker
