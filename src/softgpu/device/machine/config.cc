// SPDX-License-Identifier: Apache-2.0
// Parsing of the SOFTGPU_* environment variables. Called by cuInit and softgpu-info.
#include "softgpu/device/machine/config.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/environment.h"
#include "cuda/visible_devices.h"

namespace openmps::softgpu {
namespace {

constexpr std::string_view kUsersSegments = "openmps-softgpu-";

// The name of a machine that has been given none: each user has one.
std::string users_segment() { return std::string(kUsersSegments) + std::to_string(geteuid()); }

Status bad_variable(const char* name, const char* text) {
  return Status(CUDA_ERROR_INVALID_VALUE,
                std::string(name) + "=" + text + " is not a value softgpu understands");
}

// A whole number, optionally with a binary suffix.
bool parse_number(const char* text, uint64_t* value) {
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  char* end = nullptr;
  uint64_t number = strtoull(text, &end, 10);
  int shift = 0;
  if (*end == 'K' || *end == 'k') shift = 10;
  if (*end == 'M' || *end == 'm') shift = 20;
  if (*end == 'G' || *end == 'g') shift = 30;
  if (shift != 0) ++end;
  if (errno != 0 || *end != '\0' || number > (UINT64_MAX >> shift)) return false;
  *value = number << shift;
  return true;
}

Status read_number(const char* name, uint64_t least, uint64_t most, uint64_t* value) {
  const char* text = environment_variable(name);
  if (text == nullptr || *text == '\0') return Status();
  uint64_t number = 0;
  if (!parse_number(text, &number) || number < least || number > most) {
    return bad_variable(name, text);
  }
  *value = number;
  return Status();
}

Status read_number(const char* name, uint64_t least, uint64_t most, uint32_t* value) {
  uint64_t wide = *value;
  OPENMPS_RETURN_IF_ERROR(read_number(name, least, most, &wide));
  *value = static_cast<uint32_t>(wide);
  return Status();
}

// CUDA_DEVICE_MAX_CONNECTIONS as NVIDIA's driver takes it, up to what the device has
// (SOFTGPU_CONNECTIONS; an H200's 32). A device that has 0 knows no such limit.
Status read_connections(uint32_t* value) {
  uint32_t there = 32;
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_CONNECTIONS", 0, 1024, &there));
  uint64_t wanted = 0;
  const char* text = environment_variable("CUDA_DEVICE_MAX_CONNECTIONS");
  if (text == nullptr || !parse_number(text, &wanted) || wanted == 0) wanted = *value;
  *value = static_cast<uint32_t>(std::min<uint64_t>(wanted, there));
  return Status();
}

// "9.0", "8.6" or "90".
Status read_compute_capability(uint32_t* value) {
  const char* text = environment_variable("SOFTGPU_CC");
  if (text == nullptr || *text == '\0') return Status();
  std::string digits;
  for (const char* c = text; *c != '\0'; ++c) {
    if (*c == '.' && c != text) continue;
    if (*c < '0' || *c > '9') return bad_variable("SOFTGPU_CC", text);
    digits.push_back(*c);
  }
  unsigned long number = digits.size() > 3 ? 0 : strtoul(digits.c_str(), nullptr, 10);
  if (number < 50 || number > 139) return bad_variable("SOFTGPU_CC", text);
  *value = static_cast<uint32_t>(number);
  return Status();
}

// What `nvidia-smi -c` sets on a machine with a GPU.
Status read_compute_mode(bool* exclusive_process) {
  const char* text = environment_variable("SOFTGPU_COMPUTE_MODE");
  if (text == nullptr || *text == '\0') return Status();
  const std::string_view mode = text;
  if (mode != "DEFAULT" && mode != "EXCLUSIVE_PROCESS") {
    return bad_variable("SOFTGPU_COMPUTE_MODE", text);
  }
  *exclusive_process = mode == "EXCLUSIVE_PROCESS";
  return Status();
}

Status read_faults(FaultSettings* faults) {
  const char* delays = environment_variable("SOFTGPU_FAULT_LATENCY_US");
  if (delays != nullptr && !faults->read_delays(delays)) {
    return bad_variable("SOFTGPU_FAULT_LATENCY_US", delays);
  }
  const char* injection = environment_variable("SOFTGPU_FAULT");
  if (injection != nullptr && !faults->read_injection(injection)) {
    return bad_variable("SOFTGPU_FAULT", injection);
  }
  return Status();
}

}  // namespace

Result<Config> read_config() {
  Config config;
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_DEVICES", 1, kMaxDevices, &config.device_count));
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_SMS", 1, kMaxSms, &config.sm_count));
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_MEMORY", 1 << 20, 1ull << 44, &config.memory_bytes));
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_QUEUES", 1, 1024, &config.hardware_queues));
  OPENMPS_RETURN_IF_ERROR(read_connections(&config.connections));
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_STREAM_ITEMS", 0, 1 << 20, &config.stream_items));
  uint32_t loading_waits = config.loading_waits ? 1 : 0;
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_LOADING_WAITS", 0, 1, &loading_waits));
  config.loading_waits = loading_waits != 0;
  uint32_t stream_lots = config.stream_lots ? 1 : 0;
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_STREAM_LOTS", 0, 1, &stream_lots));
  config.stream_lots = stream_lots != 0;
  uint32_t destroying_waits = config.destroying_waits ? 1 : 0;
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_DESTROYING_WAITS", 0, 1, &destroying_waits));
  config.destroying_waits = destroying_waits != 0;
  uint64_t slice_us = config.timeslice_ns / 1000;
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_TIMESLICE_US", 10, 10'000'000, &slice_us));
  config.timeslice_ns = slice_us * 1000;
  OPENMPS_RETURN_IF_ERROR(read_number("SOFTGPU_SEED", 0, UINT64_MAX, &config.seed));
  OPENMPS_RETURN_IF_ERROR(read_compute_capability(&config.compute_capability));
  OPENMPS_RETURN_IF_ERROR(read_compute_mode(&config.exclusive_process));
  OPENMPS_RETURN_IF_ERROR(read_faults(&config.faults));

  uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  config.workers = config.seed != 0 ? 1 : std::min(cores, config.sm_count);
  const char* segment = environment_variable("SOFTGPU_DEVICE");
  if (segment != nullptr && *segment != '\0') {
    config.segment = segment;
    if (config.segment.find('/') != std::string::npos || config.segment.size() > 200) {
      return bad_variable("SOFTGPU_DEVICE", segment);
    }
  } else {
    config.segment = users_segment();
  }
  if (const char* trace = environment_variable("SOFTGPU_TRACE")) {
    config.trace_path = trace;
    if (size_t at = config.trace_path.find("%p"); at != std::string::npos) {
      config.trace_path.replace(at, 2, std::to_string(getpid()));
    }
  }
  return config;
}

// A name, the segment's hash, the number of the device. RFC 9562 version 8 (free-form). Machines
// without a name have one hash whoever their user is, as a GPU has one UUID for all users.
CUuuid device_uuid(const Config& config, uint32_t ordinal) {
  const bool is_users = config.segment == users_segment();
  const std::string_view name = is_users ? kUsersSegments : std::string_view(config.segment);
  CUuuid uuid{};
  memcpy(uuid.bytes, "sgpu", 4);
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  memcpy(uuid.bytes + 8, &hash, 7);
  uuid.bytes[6] = static_cast<char>(0x80);
  uuid.bytes[8] = static_cast<char>((uuid.bytes[8] & 0x3f) | 0x80);
  uuid.bytes[15] = static_cast<char>(ordinal);
  return uuid;
}

std::string device_uuid_text(const Config& config, uint32_t ordinal) {
  unsigned char uuid[sizeof(CUuuid)];
  const CUuuid own = device_uuid(config, ordinal);
  memcpy(uuid, own.bytes, sizeof(uuid));
  return cuda::uuid_text(uuid, kDeviceName);
}

Result<std::vector<uint32_t>> visible_devices(const Config& config) {
  std::vector<std::string> uuids;
  for (uint32_t ordinal = 0; ordinal < config.device_count; ++ordinal) {
    uuids.push_back(device_uuid_text(config, ordinal));
  }
  return cuda::visible_devices(environment_variable("CUDA_VISIBLE_DEVICES"), uuids);
}

std::string segment_name(const Config& config, uint32_t ordinal) {
  return config.segment + "-" + std::to_string(ordinal);
}

}  // namespace openmps::softgpu
