// SPDX-License-Identifier: Apache-2.0
// The command language of the control daemon (NVIDIA's protocol v2): one line to one Command. Pure,
// any input is a Command; parsed by the daemon from what a shell sends, fuzzed by
// tests/fuzz/command_fuzz.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace openmps::control {

enum class Verb {
  kUnknown,
  kQuit,
  kStartServer,
  kGetServerList,
  kGetServerStatus,
  kGetClientList,
  kGetDeviceClientList,
  kPs,
  kDeviceQuery,
  kGetDefaultPercentage,
  kSetDefaultPercentage,
  kGetPercentage,
  kSetPercentage,
  kGetDefaultMemoryLimit,
  kSetDefaultMemoryLimit,
  kGetMemoryLimit,
  kSetMemoryLimit,
  kGetDefaultPriority,
  kSetDefaultPriority,
  kShutdownServer,
  kTerminateClient,
  kReload,
  kSetClientPercentage,
  kSetClientSmCount,
  kSetClientMemoryLimit,
  kSetClientPriority,
  kReserveSms,
  kGetGroupList,
  kSmPartition,
  kListPartitions,
  kInspect,
  kWhoAmI,
};

struct Command {
  Verb verb = Verb::kUnknown;
  std::string word;    // the first word, as typed
  std::string server;  // the server's PID as typed; empty: not given
  std::string client;  // terminate_client's second PID or ID, inspect's session, as typed
  std::string device;  // ordinal or UUID
  std::string value;   // what to set; empty: not given
  std::string action;  // sm_partition's "add" or "rm"
  std::optional<uint32_t> uid;
  std::optional<uint32_t> timeout_s;
  bool force = false;
  bool csv = false;
  bool json = false;
  bool lend = false;
  // Words and options that the command does not have, the first of them. Ignored, as NVIDIA's
  // daemon does, but said in the log.
  std::string unexpected;
};

Command parse_command(std::string_view line);

// Every command's first word.
std::vector<std::string_view> command_words();

}  // namespace openmps::control
