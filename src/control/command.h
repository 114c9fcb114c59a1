// SPDX-License-Identifier: Apache-2.0
// The command language of the control daemon (NVIDIA's protocol v2). Each command is one row: its
// words, who may give it, what carries it out, and its text in --help and in the manual page. The
// rows are in the *_commands.cc files, each beside its handler. Parsing is pure, any input is a
// Command; it is fuzzed by tests/fuzz/command_fuzz.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace openmps::control {

struct CommandInfo;

struct Command {
  const CommandInfo* info = nullptr;  // null: there is no such command
  std::string word;                   // the first word, as typed
  std::string server;                 // the server's PID as typed; empty: not given
  std::string client;                 // the name of a client, program or group, as typed
  std::string device;                 // ordinal or UUID
  std::string value;                  // what to set; empty: not given
  std::string action;                 // sm_partition's "add" or "rm"
  std::optional<uint32_t> uid;
  std::optional<uint32_t> timeout_s;
  bool force = false;
  bool csv = false;
  bool json = false;
  bool lend = false;
  bool worker = false;
  bool leave_servers = false;
  bool until_used = false;
  bool records = false;
  // The first word or option that the command does not have. Such words are ignored, as by NVIDIA's
  // daemon, and the log names this one.
  std::string unexpected;
};

// An option of commands.
struct CommandOption {
  std::string_view word;
  bool takes_word;  // an argument follows; `set` gets "" where the line ends before it
  void (*set)(Command* command, std::string_view argument);
};
extern const CommandOption kUidOption, kTimeoutOption, kServerOption, kForceOption, kLendOption,
    kCsvOption, kJsonOption, kWorkerOption, kLeaveOption, kUntilUsedOption, kRecordOption;

// Who may give a command: the table of docs/security.md.
enum class Right {
  kEverybody,  // the command changes nothing, or nothing of other users
  kSelf,       // the user that -uid names, and those of kDaemon
  // The user of the server that the command names, and those of kDaemon. A command that names a
  // client instead is carried out by servers of the caller's alone (servers_of_client()).
  kServerOwner,
  kDaemon,  // root, and the user who runs the daemon
};

struct CommandCall;  // control/command_call.h

struct CommandInfo {
  std::string_view word;
  // As shown: literal words, and in <> what stands for a word.
  std::string_view arguments = "";
  // The members that take the words behind the first one, in this order.
  std::vector<std::string Command::*> places = {};
  std::vector<const CommandOption*> options = {};
  Right right = Right::kDaemon;
  bool is_for_partitions = false;  // only a daemon with -S has it
  // For those who come by a namespace's socket, too: it shows nothing of others.
  bool is_for_members = false;
  void (*run)(const CommandCall& call);
  // Lines of --help. Empty: the arguments say enough.
  std::string_view help = "";
  // A paragraph of the manual page: `x` is bold, <x> italic. Empty: the next row's is for both.
  std::string_view manual = "";
};

// The rows of each file.
std::span<const CommandInfo> daemon_commands();
std::span<const CommandInfo> server_commands();
std::span<const CommandInfo> client_commands();
std::span<const CommandInfo> limit_commands();
std::span<const CommandInfo> partition_commands();
std::span<const CommandInfo> history_commands();
// All rows, in the order of --help.
std::vector<const CommandInfo*> all_commands();

Command parse_command(std::string_view line);

// The commands as --help lists them; packaging/completion reads that.
std::string help_of_commands();
// The section COMMANDS of the manual page, as roff.
std::string manual_of_commands();

}  // namespace openmps::control
