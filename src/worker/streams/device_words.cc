// SPDX-License-Identifier: Apache-2.0
// See device_words.h.
#include "worker/streams/device_words.h"

#include <sys/mman.h>

#include <ctime>

#include "worker/device/driver_check.h"
#include "worker/device/value_watch.h"

namespace openmps::worker {
namespace {

constexpr long kSettlePauseNs = 20'000;

}  // namespace

// The context of a device is current.
bool DeviceWords::open() {
  if (page_ != nullptr) return true;
  constexpr uint64_t kBytes = kRows * sizeof(Slot);
  static_assert(kBytes % wire::kHostPageBytes == 0);
  void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return false;
  auto page = std::make_shared<Mapping>(pages, kBytes);
  const DriverTable& driver = core_.driver;
  if (driver.cuMemHostRegister_v2(pages, kBytes, kHostRegisterFlags) != CUDA_SUCCESS) return false;
  page_ = std::move(page);
  CUdeviceptr device = 0;
  if (driver.cuMemHostGetDevicePointer_v2(&device, pages, 0) == CUDA_SUCCESS) {
    delta_ = device - reinterpret_cast<CUdeviceptr>(pages);
  }
  return true;
}

DeviceWords::Row DeviceWords::row(const wire::StreamValue& wait, uint32_t device) {
  if (!core_.use(device).ok() || !open()) return Row(nullptr, wait, device, 0);
  for (uint32_t row = 0; row < kRows; ++row) {
    // What was left before its copy had come is still written to.
    if (used_.test(row) || is_under_way(slots()[row])) continue;
    used_.set(row);
    return Row(this, wait, device, row);
  }
  return Row(nullptr, wait, device, 0);
}

bool DeviceWords::Row::has_come() {
  if (words_ == nullptr) return false;
  Slot& slot = words_->slots()[row_];
  if (words_->is_under_way(slot)) return false;
  wire::StreamValue seen = wait_;
  seen.address = reinterpret_cast<uint64_t>(&slot.value);
  if (asked_ && is_there(seen)) return true;
  asked_ = words_->ask(slot, wait_, device_).ok();
  return false;
}

Status DeviceWords::ask(Slot& slot, const wire::StreamValue& wait, uint32_t device) {
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  const DriverTable& driver = core_.driver;
  auto& [stream, slots] = streams_[device];
  if (stream == nullptr) {
    if (!core_.take_free_slots({device}, 1, SessionCore::Leaves::kQuarter, &slots)) {
      return Status(CUDA_ERROR_NOT_READY, "there is no room for a stream that reads values");
    }
    OPENMPS_RETURN_IF_ERROR(
        check(driver.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0),
              "a stream that reads values"));
  }
  core_.gate.enter(core_.feeder, device);
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuMemcpyAsync(reached_at(&slot.value), core_.device_address(wait.address),
                                 wait.width, stream),
            "a copy of a value"));
  ++slot.asked;
  return check(driver.cuStreamWriteValue32_v2(stream, reached_at(&slot.came), slot.asked,
                                              CU_STREAM_WRITE_VALUE_DEFAULT),
               "a mark behind a copy of a value");
}

bool DeviceWords::idle() const {
  for (const auto& [device, reader] : streams_) {
    const CUstream stream = reader.stream;
    if (stream != nullptr && core_.use(device).ok() &&
        core_.driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
      return false;
    }
  }
  return true;
}

void DeviceWords::settle() const {
  const timespec pause{0, kSettlePauseNs};
  while (!idle()) nanosleep(&pause, nullptr);
}

void DeviceWords::release_all() {
  for (const auto& [device, reader] : streams_) {
    static_cast<void>(core_.use(device).ok());
    if (reader.stream != nullptr) core_.driver.cuStreamDestroy_v2(reader.stream);
  }
  streams_.clear();
  if (page_ == nullptr) return;
  const std::shared_ptr<Mapping> page = std::move(page_);
  const auto address = reinterpret_cast<uint64_t>(page->address());
  core_.returns.add(
      {wire::ReturnKind::kHostMemory, address, page->bytes()}, GatedCall::kHostUnregister,
      ContextGate::kAllDevices, core_.context(Placement{}),
      [&driver = core_.driver, page] { return driver.cuMemHostUnregister(page->address()); },
      [] {});
}

}  // namespace openmps::worker
