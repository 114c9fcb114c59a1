// SPDX-License-Identifier: Apache-2.0
// See device_words.h.
#include "worker/streams/device_words.h"

#include <sys/mman.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "worker/device/driver_check.h"
#include "worker/device/value_watch.h"

namespace openmps::worker {
namespace {

constexpr long kSettlePauseNs = 20'000;

}  // namespace

// The context of a device is current. False: there is no memory, or there are kRows rows.
bool DeviceWords::add_page() {
  const auto first = static_cast<uint32_t>(pages_.size()) * kRowsOfPage;
  if (first == kRows) return false;
  free_.reserve(first + kRowsOfPage);
  pages_.reserve(pages_.size() + 1);
  void* memory = mmap(nullptr, wire::kHostPageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  Page page{std::make_shared<Mapping>(memory, wire::kHostPageBytes), 0};
  const DriverTable& driver = core_.driver;
  if (driver.cuMemHostRegister_v2(memory, wire::kHostPageBytes, kHostRegisterFlags) !=
      CUDA_SUCCESS) {
    return false;
  }
  CUdeviceptr device = 0;
  if (driver.cuMemHostGetDevicePointer_v2(&device, memory, 0) == CUDA_SUCCESS) {
    page.delta = device - reinterpret_cast<CUdeviceptr>(memory);
  }
  pages_.push_back(std::move(page));
  for (uint32_t row = first + kRowsOfPage; row-- > first;) free_.push_back(row);
  return true;
}

// A row that was given back before its copy had come is still written to, and not reused.
std::optional<uint32_t> DeviceWords::take(uint32_t device) {
  const auto found = std::find_if(free_.rbegin(), free_.rend(),
                                  [this](uint32_t row) { return !is_under_way(slot(row)); });
  if (found != free_.rend()) {
    std::swap(*found, free_.back());
  } else if (!core_.use(device).ok() || !add_page()) {
    return std::nullopt;
  }
  const uint32_t row = free_.back();
  free_.pop_back();
  return row;
}

bool DeviceWords::Row::has_come() {
  if (!row_) return false;
  const Slot& slot = words_.slot(*row_);
  if (words_.is_under_way(slot)) return false;
  wire::StreamValue seen = wait_;
  seen.address = reinterpret_cast<uint64_t>(&slot.value);
  if (asked_ && is_there(seen)) return true;
  asked_ = words_.ask(*row_, wait_, device_).ok();
  return false;
}

Status DeviceWords::ask(uint32_t row, const wire::StreamValue& wait, uint32_t device) {
  const DriverTable& driver = core_.driver;
  CUstream stream = nullptr;
  OPENMPS_RETURN_IF_ERROR(readers_.take(device, SessionCore::Leaves::kNone, &stream));
  if (stream == nullptr) {
    return Status(CUDA_ERROR_NOT_READY, "no stream slot is free for the stream that reads values");
  }
  Slot& slot = this->slot(row);
  const auto reached_at = [delta = pages_[row / kRowsOfPage].delta](const void* host) {
    return reinterpret_cast<CUdeviceptr>(host) + delta;
  };
  core_.gate.enter(core_.gate_client, device);
  OPENMPS_RETURN_IF_ERROR(
      check(driver.cuMemcpyAsync(reached_at(&slot.value), core_.device_address(wait.address),
                                 wait.width, stream),
            "a copy of a value"));
  ++slot.asked;
  return check(driver.cuStreamWriteValue32_v2(stream, reached_at(&slot.came), slot.asked,
                                              CU_STREAM_WRITE_VALUE_DEFAULT),
               "a mark behind a copy of a value");
}

void DeviceWords::settle() const {
  const timespec pause{0, kSettlePauseNs};
  while (!idle()) nanosleep(&pause, nullptr);
}

void DeviceWords::release_all() {
  readers_.release_all();
  for (const Page& page : std::exchange(pages_, {})) {
    const auto address = reinterpret_cast<uint64_t>(page.mapping->address());
    core_.releases.add_quiescent(
        {wire::ReturnKind::kHostMemory, address, page.mapping->bytes()},
        {GatedCall::kHostUnregister, ContextGate::kAllDevices, core_.context(Placement{}),
         [&driver = core_.driver, mapping = page.mapping] {
           return driver.cuMemHostUnregister(mapping->address());
         }},
        [] {});
  }
  free_.clear();
}

}  // namespace openmps::worker
