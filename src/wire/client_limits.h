// SPDX-License-Identifier: Apache-2.0
// The limits of a client, or of all members of a group together: one structure that every message
// from the program's hello to the worker's grant carries, and a table that describes each limit:
// how it is called, where it may be stated, how it is read and shown. A new limit is a field and a
// row here, what the functions below do with it, and the code that enforces it. Any thread.
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

struct ClientLimits {
  float active_thread_percentage = 100;     // of each device's SMs; above 0
  uint32_t client_priority = kNoPriority;   // 0 normal, 1 below normal
  uint64_t memory_limit[kMaxDevices] = {};  // bytes of device memory; 0: no limit
  uint32_t sm_count[kMaxDevices] = {};      // SMs; 0: as many as the percentage says
  bool operator==(const ClientLimits&) const = default;
};

enum class Limit : uint32_t { kPercentage, kPriority, kMemory, kSmCount };

// The value of any limit, as commands and configuration state it. A double holds each of them
// exactly: sizes are whole MiB.
using LimitValue = double;

// How the configuration writes a value: 12.5, 1 or "512M".
enum class Notation { kNumber, kInteger, kSize };

struct LimitInfo {
  Limit limit;
  std::string_view name;  // key of the configuration, and part of the names of commands
  const char* variable;   // in the environment of the daemon and of programs; null: none
  std::string_view json;  // key in the output of commands
  bool is_per_device;     // one value for each device, of which 0 is no limit; else one value
  bool is_of_groups;      // the configuration states it for groups only
  LimitValue unset;       // the value of a limit that is not stated

  // As commands and the daemon's environment write it; nothing: `text` is none.
  std::optional<LimitValue> (*parse)(std::string_view text);
  std::string (*text)(LimitValue value);    // for the log
  std::string (*answer)(LimitValue value);  // of NVIDIA's get commands; "": they print nothing
  // Reads what a program's environment says as NVIDIA's client does, which ignores nonsense.
  void (*read_variable)(const char* text, ClientLimits* limits);

  Notation notation;
  LimitValue least, most;           // that the configuration may state
  std::string_view expected;        // what it has to be, for the message about anything else
  std::string_view expected_table;  // of a limit per device
};

// Every limit, in the order in which they are told.
std::span<const LimitInfo> limit_table();
const LimitInfo& info_of(Limit limit);

// Sets one limit, of one device if it is per device: a smaller or larger value than there can be
// becomes the nearest. A percentage replaces the counts of SMs that were set before.
// CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE: `limits` is unchanged.
CUresult set_limit(ClientLimits* limits, Limit limit, uint32_t device, LimitValue value);
// Calls `visit` with the value of one limit, in the type of its field; not at all without a
// priority.
template <typename Visit>
void visit_limit(const ClientLimits& limits, Limit limit, uint32_t device, Visit&& visit) {
  switch (limit) {
    case Limit::kPercentage: return visit(limits.active_thread_percentage);
    case Limit::kPriority:
      if (limits.client_priority != kNoPriority) visit(limits.client_priority);
      return;
    case Limit::kMemory: return visit(limits.memory_limit[device]);
    case Limit::kSmCount: return visit(limits.sm_count[device]);
  }
}

// From the environment of this process, a program's.
ClientLimits limits_of_program();

// What a client gets. The program's wishes, which are not to be trusted, may lower the percentage
// and the memory of the server's limits, and choose a priority.
ClientLimits granted_limits(const ClientLimits& server, const ClientLimits& program);

// The memory that both limits leave on a device; 0: no limit.
uint64_t combined_memory_limit(uint64_t one, uint64_t other);

// Each limit that `next` states in another way than `before` is put in force; `before` becomes
// `next`.
void put_changes_in_force(const ClientLimits& next, ClientLimits* before, ClientLimits* in_force);

// Above 0, up to 100, and above 0 as a float, too.
bool is_percentage(double value);

}  // namespace openmps::wire
