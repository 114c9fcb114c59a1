// SPDX-License-Identifier: Apache-2.0
// The limits of a client, or of all members of a group together: one structure, which all messages
// from Hello to Grant carry, and a table with a row for each limit: its names, where it may be
// stated, how its values are read and shown. A new limit needs a field and an enumerator here, a
// row of the table, its lines in the functions below, and the code that enforces it. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cuda/abi.h"
#include "wire/layout.h"

namespace openmps::wire {

inline constexpr uint32_t kNoPriority = ~0u;
inline constexpr uint32_t kLowestPriority = 1;

// What becomes of an allocation for which the device has no memory while others hold more than
// their guaranteed memory, but none of them is idle (docs/decisions/0052).
enum class OnPressure : uint32_t {
  kUnset = 0,        // as kOutOfMemory
  kOutOfMemory = 1,  // "oom": it fails
  kWait = 2,         // "wait": it waits
  kTerminate = 3,    // "terminate": the client that holds most beyond its guaranteed memory ends
};

struct ClientLimits {
  float active_thread_percentage = 100;     // of each device's SMs; above 0
  uint32_t client_priority = kNoPriority;   // 0 normal, 1 below normal
  uint64_t memory_limit[kMaxDevices] = {};  // bytes of device memory; 0: no limit
  uint32_t sm_count[kMaxDevices] = {};      // SMs; 0: as many as the percentage says
  // Seconds that work which the GPU has may take without any of it ending; 0: no limit.
  float work_time_s = 0;
  // 1: more SMs than that while others, who could have them, have no work for them.
  uint32_t borrows = 0;
  // Of the time on SMs that several want, in proportion to the others' weights; 0: none is stated,
  // which counts as 1.
  float weight = 0;
  OnPressure on_pressure = OnPressure::kUnset;
  // Bytes of device memory that stay on the device while the client, or all of the group, is idle;
  // what is beyond may be moved to the host. 0: none are stated, and all memory stays.
  uint64_t guaranteed_memory[kMaxDevices] = {};
  bool operator==(const ClientLimits&) const = default;
};

enum class Limit : uint32_t {
  kPercentage,
  kPriority,
  kMemory,
  kSmCount,
  kWorkTime,
  kBorrow,
  kWeight,
  kGuaranteedMemory,
  kOnPressure,
};

// The value of any limit, as commands and configuration state it. A double holds each of them
// exactly: sizes are whole MiB.
using LimitValue = double;

// How the configuration writes a value: 12.5, 1, "512M", true, or a word.
enum class Notation { kNumber, kInteger, kSize, kSwitch, kWord };

struct LimitInfo {
  Limit limit;
  std::string_view name;  // key of the configuration, and part of the names of commands
  const char* variable;   // name in the environment of the daemon and of programs; null: none
  std::string_view json;  // key in the output of commands
  bool is_per_device;     // there is a value for each device, and 0 lifts the limit
  bool is_of_groups;      // the configuration states it for groups only
  LimitValue unset;       // the value of a limit that is not stated

  // Reads a value of a command or of the daemon's environment. Nothing: `text` is no value.
  std::optional<LimitValue> (*parse)(std::string_view text);
  std::string (*text)(LimitValue value);    // as the log shows it
  std::string (*answer)(LimitValue value);  // as NVIDIA's get command prints it; "": nothing
  // Reads the variable of a program as NVIDIA's client does, which ignores what it can't read.
  void (*read_variable)(const char* text, ClientLimits* limits);

  Notation notation;
  LimitValue least, most;           // bounds of the values in the configuration
  std::string_view expected;        // a description of these values, for messages and the manual
  std::string_view expected_table;  // a description of the table of a limit per device
};

// All limits, in the order in which changes are listed.
std::span<const LimitInfo> limit_table();
const LimitInfo& info_of(Limit limit);

// Sets one limit, of one device if it is per device. An amount that does not fit the field becomes
// the nearest that fits. A percentage replaces the counts of SMs that were set before.
// CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE: `limits` is unchanged.
CUresult set_limit(ClientLimits* limits, Limit limit, uint32_t device, LimitValue value);
// Calls `visit` with the value of one limit, in the type of its field. Does nothing for a priority
// that is not stated.
template <typename Visit>
void visit_limit(const ClientLimits& limits, Limit limit, uint32_t device, Visit&& visit) {
  switch (limit) {
    case Limit::kPercentage: return visit(limits.active_thread_percentage);
    case Limit::kPriority:
      if (limits.client_priority != kNoPriority) visit(limits.client_priority);
      return;
    case Limit::kMemory: return visit(limits.memory_limit[device]);
    case Limit::kSmCount: return visit(limits.sm_count[device]);
    case Limit::kWorkTime: return visit(limits.work_time_s);
    case Limit::kBorrow: return visit(limits.borrows);
    case Limit::kWeight: return visit(limits.weight);
    case Limit::kGuaranteedMemory: return visit(limits.guaranteed_memory[device]);
    case Limit::kOnPressure: return visit(static_cast<uint32_t>(limits.on_pressure));
  }
}

// The limits in the environment of this process, a program.
ClientLimits limits_of_program();

// The limits that a client gets. A program, which is not trusted, may lower the server's percentage
// and memory, and choose a priority.
ClientLimits granted_limits(const ClientLimits& server, const ClientLimits& program);

// The smaller one of two limits of memory, or of time; 0: no limit.
uint64_t combined_limit(uint64_t one, uint64_t other);
float combined_limit(float one, float other);

// Puts in force each limit in which `next` differs from `before`, which becomes `next`.
void put_changes_in_force(const ClientLimits& next, ClientLimits* before, ClientLimits* in_force);

}  // namespace openmps::wire
