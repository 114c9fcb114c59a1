// SPDX-License-Identifier: Apache-2.0
// Limits of clients as somebody states them: the daemon's environment, its configuration file, the
// set commands. Pure functions, with the rules of NVIDIA's commands.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace openmps::control {

// What is not stated is somebody else's to say.
struct Limits {
  std::optional<double> percentage;        // of the SMs: above 0, up to 100
  std::optional<uint32_t> priority;        // 0 normal, 1 below normal
  std::map<std::string, uint64_t> memory;  // bytes by device, ordinal or UUID; 0: no limit
};

// What `above` states, and the rest of `below`.
Limits overlay(Limits below, const Limits& above);

// From CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT and
// CUDA_MPS_CLIENT_PRIORITY; what is malformed there is ignored, as with NVIDIA's daemon.
Limits limits_of_environment();

bool is_percentage(double value);
// "0" to "15", or the beginning of a UUID. The set commands take anything, as NVIDIA's do.
bool names_a_device(std::string_view text);

// Nothing, if it is none.
std::optional<double> parse_percentage(std::string_view text);
std::optional<uint32_t> parse_priority(std::string_view text);
// Bytes of "3G" or "512M", also with a B behind it, as the documentation of the variable has it.
std::optional<uint64_t> parse_memory_limit(std::string_view text);
// That text again, whole GiB in G; "none" for 0.
std::string memory_text(uint64_t bytes);

}  // namespace openmps::control
