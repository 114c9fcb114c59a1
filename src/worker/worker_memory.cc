// SPDX-License-Identifier: Apache-2.0
// The memory of a session. See worker_memory.h.
#include "worker/worker_memory.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "worker/driver_check.h"

namespace openmps::worker {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;

std::string text_of(uint64_t address, uint64_t bytes) {
  char text[64];
  snprintf(text, sizeof(text), "[0x%llx, +0x%llx)", static_cast<unsigned long long>(address),
           static_cast<unsigned long long>(bytes));
  return text;
}

// [address, address + bytes) lies in [begin, end), in whole units.
Status check_range(const wire::MemoryRange& range, uint64_t begin, uint64_t end, uint64_t unit) {
  if (range.bytes != 0 && range.address >= begin && range.address < end &&
      range.bytes <= end - range.address && range.address % unit == 0 && range.bytes % unit == 0) {
    return Status();
  }
  return violation(text_of(range.address, range.bytes) + " is not a range of the window");
}

}  // namespace

Status SessionMemory::register_channel() {
  OPENMPS_RETURN_IF_ERROR(core_.use(0));
  unsigned char* host = core_.view.start() + wire::kRegisteredOffset;
  const uint64_t bytes = wire::kRegisteredEnd - wire::kRegisteredOffset;
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemHostRegister_v2(host, bytes, kRegisterFlags),
                                "cuMemHostRegister of the channel"));
  const auto address = reinterpret_cast<uint64_t>(host);
  ranges_[address] = {address + bytes, Kind::kRegistered, 0, 0};
  CUdeviceptr device = 0;
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemHostGetDevicePointer_v2(&device, host, 0),
                                "cuMemHostGetDevicePointer of the channel"));
  core_.channel_delta = device - address;
  return Status();
}

// The whole device part at once, at the first grant: a client that never allocates pays nothing.
Status SessionMemory::reserve_window() {
  if (window_reserved_) return Status();
  CUdeviceptr got = 0;
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuMemAddressReserve(&got, wire::kDeviceBytes, 0, core_.window_base(), 0),
            "cuMemAddressReserve of the window"));
  if (got != core_.window_base()) {
    core_.driver.cuMemAddressFree(got, wire::kDeviceBytes);
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the driver reserved " +
                                                text_of(got, wire::kDeviceBytes) + " instead of " +
                                                text_of(core_.window_base(), wire::kDeviceBytes));
  }
  window_reserved_ = true;
  return Status();
}

bool SessionMemory::is_free(uint64_t begin, uint64_t end) const {
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < end) return false;
  return next == ranges_.begin() || std::prev(next)->second.end <= begin;
}

Status SessionMemory::create_and_map(const wire::MemoryRange& range,
                                     CUmemGenericAllocationHandle* physical) {
  const Device& device = core_.devices.at(range.device);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes =
      device.exports_memory ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.handle};
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuMemCreate(physical, range.bytes, &prop, 0), "cuMemCreate"));
  Status status =
      check(core_.driver.cuMemMap(range.address, range.bytes, 0, *physical, 0), "cuMemMap");
  if (status.ok()) {
    const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    status = check(core_.driver.cuMemSetAccess(range.address, range.bytes, &access, 1),
                   "cuMemSetAccess");
    if (!status.ok()) core_.driver.cuMemUnmap(range.address, range.bytes);
  }
  if (!status.ok()) core_.driver.cuMemRelease(*physical);
  return status;
}

Status SessionMemory::map(const wire::MemoryRange& range) {
  OPENMPS_RETURN_IF_ERROR(core_.check_device(range.device));
  OPENMPS_RETURN_IF_ERROR(
      check_range(range, core_.window_base(), core_.device_end(), wire::kMemoryGranularity));
  const uint64_t end = range.address + range.bytes;
  if (!is_free(range.address, end)) {
    return violation(text_of(range.address, range.bytes) + " is mapped already");
  }
  const uint64_t limit = core_.info.memory_limit[range.device];
  uint64_t& granted = granted_[range.device];
  if (limit != 0 && (granted > limit || range.bytes > limit - granted)) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY,
                  std::to_string(range.bytes) + " bytes more than the " + std::to_string(granted) +
                      " in use exceed the client's limit of " + std::to_string(limit));
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(range.device));
  OPENMPS_RETURN_IF_ERROR(reserve_window());
  CUmemGenericAllocationHandle physical = 0;
  OPENMPS_RETURN_IF_ERROR(create_and_map(range, &physical));
  ranges_[range.address] = {end, Kind::kDeviceMemory, range.device, physical};
  granted += range.bytes;
  return Status();
}

void SessionMemory::release(Ranges::iterator it) {
  const uint64_t begin = it->first;
  const Range& range = it->second;
  switch (range.kind) {
    case Kind::kDeviceMemory:
      core_.driver.cuMemUnmap(begin, range.end - begin);
      core_.driver.cuMemRelease(range.physical);
      granted_[range.device] -= range.end - begin;
      break;
    case Kind::kRegistered:
      core_.gate.run(GatedCall::kHostUnregister, [&] {
        return core_.driver.cuMemHostUnregister(reinterpret_cast<void*>(begin));
      });
      break;
    case Kind::kGlobal: break;
  }
  ranges_.erase(it);
}

Status SessionMemory::unmap(const wire::MemoryRange& range) {
  OPENMPS_RETURN_IF_ERROR(
      check_range(range, core_.window_base(), core_.device_end(), wire::kMemoryGranularity));
  const uint64_t end = range.address + range.bytes;
  // Look first, so that a violation leaves everything as it was.
  uint64_t at = range.address;
  for (auto it = ranges_.find(at); it != ranges_.end() && at < end && it->first == at; ++it) {
    at = it->second.end;
  }
  if (at != end) {
    return violation(text_of(range.address, range.bytes) + " does not consist of whole mappings");
  }
  for (at = range.address; at < end;) {
    const auto it = ranges_.find(at);
    at = it->second.end;
    OPENMPS_RETURN_IF_ERROR(core_.use(it->second.device));
    release(it);
  }
  return Status();
}

Status SessionMemory::register_host(const wire::MemoryRange& range) {
  OPENMPS_RETURN_IF_ERROR(
      check_range(range, core_.device_end() + wire::kPinnedOffset, core_.window_end(), kPageBytes));
  const uint64_t end = range.address + range.bytes;
  if (!is_free(range.address, end)) {
    return violation(text_of(range.address, range.bytes) + " is registered already");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(0));
  OPENMPS_RETURN_IF_ERROR(
      check(core_.driver.cuMemHostRegister_v2(reinterpret_cast<void*>(range.address), range.bytes,
                                              kRegisterFlags),
            "cuMemHostRegister"));
  ranges_[range.address] = {end, Kind::kRegistered, 0, 0};
  return Status();
}

Status SessionMemory::unregister_host(const wire::MemoryRange& range) {
  OPENMPS_RETURN_IF_ERROR(
      check_range(range, core_.device_end() + wire::kPinnedOffset, core_.window_end(), kPageBytes));
  const auto it = ranges_.find(range.address);
  if (it == ranges_.end() || it->second.end != range.address + range.bytes) {
    return violation(text_of(range.address, range.bytes) + " is not registered as such");
  }
  OPENMPS_RETURN_IF_ERROR(core_.use(0));
  release(it);
  return Status();
}

Status SessionMemory::info(const wire::DeviceOnly& command, ReplyWriter& reply) {
  const uint32_t device = command.device;
  OPENMPS_RETURN_IF_ERROR(core_.check_device(device));
  OPENMPS_RETURN_IF_ERROR(core_.use(device));
  size_t free = 0;
  size_t total = 0;
  OPENMPS_RETURN_IF_ERROR(check(core_.driver.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo"));
  const uint64_t limit = core_.info.memory_limit[device];
  wire::MemoryInfoReply answer{free, total};
  if (limit != 0 && limit < total) {
    answer.total = limit;
    answer.free = std::min<uint64_t>(free, limit - std::min(limit, granted_[device]));
  }
  reply.put(answer);
  return Status();
}

void SessionMemory::add_global(uint64_t address, uint64_t bytes) {
  if (bytes != 0) ranges_.insert({address, {address + bytes, Kind::kGlobal, 0, 0}});
}

bool SessionMemory::contains(uint64_t address, uint64_t bytes) const {
  if (bytes == 0) return true;
  const uint64_t end = address + bytes;
  if (end < address) return false;
  auto it = ranges_.upper_bound(address);
  if (it == ranges_.begin()) return false;
  // Neighbouring grants may be named as one.
  for (--it; it != ranges_.end() && it->first <= address; ++it) {
    if (it->second.end >= end) return true;
    if (it->second.end > address) address = it->second.end;
  }
  return false;
}

Status SessionMemory::check_operand(uint64_t address, uint64_t bytes, const char* role) const {
  if (contains(address, bytes)) return Status();
  return violation(std::string("the ") + role + " " + text_of(address, bytes) +
                   " is not the session's");
}

void SessionMemory::release_all() {
  while (!ranges_.empty()) {
    const auto it = ranges_.begin();
    // After a fault a context may refuse to become current; releasing is tried all the same.
    static_cast<void>(core_.use(it->second.device).ok());
    release(it);
  }
  if (window_reserved_) {
    core_.driver.cuMemAddressFree(core_.window_base(), wire::kDeviceBytes);
    window_reserved_ = false;
  }
}

}  // namespace openmps::worker
