// SPDX-License-Identifier: Apache-2.0
// The commands about the daemon itself.
#include "base/text.h"
#include "control/command_call.h"

namespace openmps::control {
namespace {

void quit(const CommandCall& call) {
  if (call.command.leave_servers) return call.daemon.leave(call.done);
  call.daemon.quit(call.command.timeout_s, call.done);
}

// The servers' workers are replaced under their running clients.
void renew_workers(const CommandCall& call) {
  const std::vector<ServerProcess*> servers = call.servers.all();
  if (servers.empty()) return call.done({"There is no server\n", 1});
  call.servers.ask(servers, wire::QueryKind::kRenew, [call](const ServerPool::Answers& answers) {
    Reply reply{silent_servers(call, answers)};
    for (const auto& [pid, answer] : answers) {
      if (!answer.answered) continue;
      const bool is_done = answer.result == CUDA_SUCCESS;
      reply.text += format_text("Server %d: ", static_cast<int>(pid));
      if (answer.result == CUDA_ERROR_NOT_PERMITTED) {
        reply.text += "three of its old workers still have clients: nothing is changed\n";
      } else if (!is_done) {
        reply.text +=
            "it has no worker, or the new one does not start (server.log): nothing is changed\n";
      } else {
        reply.text +=
            format_text("a new worker; %u clients have moved to it, %u stay in the old one\n",
                        answer.amount, answer.stayed);
      }
      if (!is_done || answer.stayed != 0) reply.exit_status = 1;
    }
    call.done(reply);
  });
}

void reload(const CommandCall& call) {
  if (call.command.worker) return renew_workers(call);
  call.done(call.daemon.reload());
}

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
       .arguments = "[--worker]",
       .options = {&kWorkerOption},
       .right = Right::kDaemon,
       .run = reload,
       .help = "Read the daemon's configuration again; with --worker, replace the workers\n"
               "under their running clients",
       .manual = "Read the configuration again, as SIGHUP does. Prints a line for each limit and "
                 "partition that has changed. If the file is wrong, says where, and nothing "
                 "changes. With `--worker` the configuration is not read: each server starts a new "
                 "worker, of the program that is installed now, and its clients go on there, with "
                 "their memory, as soon as their work has ended. A client whose work takes longer "
                 "than two seconds, or that could not move (column SURVIVES of `ps`), stays in the "
                 "old worker until it ends; the exit status is 1 then."},
      {.word = "whoami",
       .right = Right::kEverybody,
       .is_for_members = true,
       .run = who_am_i,
       .help = "As whom the daemon sees you. Clients in a PID namespace that it can't see\n"
               "have no PID: here and above, id:ID names them, with the ID of ps",
       .manual = "As whom the daemon sees the caller: user and PID, or that the daemon can't see "
                 "the caller's PID namespace."},
      {.word = "quit",
       .arguments = "[-t <seconds>] [--leave-servers]",
       .options = {&kTimeoutOption, &kLeaveOption},
       .right = Right::kDaemon,
       .run = quit,
       .help = "Stop servers and daemon; wait for clients, at most so long. With\n"
               "--leave-servers, stop the daemon alone: no client ends",
       .manual = "Stop the servers, then the daemon. Clients that are still connected are waited "
                 "for, with `-t` no longer than that. The work of clients that have gone gets two "
                 "seconds. With `--leave-servers` the daemon alone ends, and servers serve their "
                 "clients on. The next daemon takes them back; of servers that are of another "
                 "build than it each ends with its last client, beside a new one. An upgrade of "
                 "OpenMPS does this."},
  };
  return kRows;
}

}  // namespace openmps::control
