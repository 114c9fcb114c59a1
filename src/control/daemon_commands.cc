// SPDX-License-Identifier: Apache-2.0
// The commands about the daemon itself.
#include "base/text.h"
#include "control/command_call.h"

namespace openmps::control {
namespace {

void quit(const CommandCall& call) { call.daemon.quit(call.command.timeout_s, call.done); }

void reload(const CommandCall& call) { call.done(call.daemon.reload()); }

void who_am_i(const CommandCall& call) {
  const std::string user = format_text("User %u, ", call.caller.uid);
  if (call.pid != 0) return call.done({user + format_text("PID %d\n", static_cast<int>(call.pid))});
  call.done({user +
             "without a PID: in a PID namespace that the daemon can't see. Rules by cgroup do "
             "not fit its clients, and commands name them by ID, like id:3\n"});
}

}  // namespace

std::span<const CommandInfo> daemon_commands() {
  static const CommandInfo kRows[] = {
      {.word = "reload",
       .right = Right::kDaemon,
       .run = reload,
       .help = "Read the daemon's configuration again",
       .manual = "Read the configuration again, as SIGHUP does. Prints a line for each limit and "
                 "partition that has changed. If the file is wrong, says where, and nothing "
                 "changes."},
      {.word = "whoami",
       .right = Right::kEverybody,
       .run = who_am_i,
       .help = "As whom the daemon sees you. Clients in a PID namespace that it can't see\n"
               "have no PID: here and above, id:ID names them, with the ID of ps",
       .manual = "As whom the daemon sees the caller: user and PID, or that the daemon can't see "
                 "the caller's PID namespace."},
      {.word = "quit",
       .arguments = "[-t <seconds>]",
       .options = {&kTimeoutOption},
       .right = Right::kDaemon,
       .run = quit,
       .help = "Stop servers and daemon; wait for clients, at most so long",
       .manual = "Stop the servers, then the daemon. Clients that are still connected are waited "
                 "for, with `-t` no longer than that. The work of clients that have gone gets two "
                 "seconds."},
  };
  return kRows;
}

}  // namespace openmps::control
