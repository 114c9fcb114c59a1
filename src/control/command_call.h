// SPDX-License-Identifier: Apache-2.0
// A command that is being carried out, and what the handlers of commands share. Used on the
// daemon's loop by CommandRunner and the *_commands.cc files.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "control/client_name.h"
#include "control/command.h"
#include "control/doors.h"
#include "control/server_pool.h"

namespace openmps::control {

struct Reply {
  std::string text;
  // The shell's exit status. NVIDIA's is 0 whatever the command's fate, and so is ours, except for
  // what NVIDIA's daemon has no word for: no permission, not supported.
  int exit_status = 0;
  // The caller's connection is others' now: this is the last that the daemon sends there.
  bool gives_connection_away = false;
};
using Done = std::function<void(Reply)>;

// What commands ask of the daemon itself.
struct DaemonControl {
  std::function<void(std::optional<uint32_t> timeout_s, Done done)> quit;
  std::function<void(Done done)> leave;
  std::function<Reply()> reload;
};

// Who gives a command.
struct Caller {
  User user;
  pid_t pid = 0;        // 0: the daemon can't see it
  Door door;            // by which the caller has come
  int connection = -1;  // to the daemon, as long as the handler runs
};

// A handler calls `done` once, now or later; what answers later keeps a copy of the call.
struct CommandCall {
  ServerPool& servers;
  const DaemonControl& daemon;
  Command command;
  User caller;
  pid_t pid = 0;        // the caller's; 0: the daemon can't see it
  Door door;            // by which the caller has come
  int connection = -1;  // the caller's to the daemon, until the handler returns
  Done done;
};

// "Server 17 does not answer".
std::string silence_of(const ServerProcess& server);
// A line for each of the servers asked that is there and did not answer.
std::string silent_servers(const CommandCall& call, const ServerPool::Answers& answers);
std::string not_found(const std::string& server);
// The server that the command names. Null: there is none, and the call is done.
ServerProcess* named_server(const CommandCall& call);
// The servers that may have the client, of those that the caller may control: the one that its name
// states, or all. Nothing: there is no such server, it is another user's, or the name could mean
// clients of several, and the call is done.
std::optional<std::vector<ServerProcess*>> servers_of_client(const CommandCall& call,
                                                             const ClientName& client);
// Whether the caller sees the client in lists: who comes by a namespace's socket sees those of the
// namespace.
bool is_seen(const CommandCall& call, const ClientLine& client);
// The clients of all answers.
std::vector<ClientLine> clients_of(const ServerPool::Answers& answers);
// A word of the command that is not understood, and how the command is given.
Reply usage_of(const Command& command, std::string_view wrong);

}  // namespace openmps::control
