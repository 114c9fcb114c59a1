// SPDX-License-Identifier: Apache-2.0
// The commands about one running client: what it does, its end.
#include <unistd.h>

#include "base/text.h"
#include "control/client_name.h"
#include "control/command_call.h"
#include "control/format.h"

namespace openmps::control {
namespace {

// The lists of clients say where a session's memory is.
void show_inspected(const CommandCall& call, const ServerPool::Answers& found) {
  std::vector<ServerProcess*> servers;
  for (const auto& [pid, answer] : found) {
    ServerProcess* server = call.servers.find(std::to_string(pid));
    if (server != nullptr) servers.push_back(server);
  }
  call.servers.ask(
      servers, wire::QueryKind::kClients, [call, found](const ServerPool::Answers& answers) {
        const std::vector<ClientLine> clients = clients_of(answers);
        std::string text;
        for (const auto& [pid, answer] : found) {
          Inspected inspected = *answer.inspected;
          for (const ClientLine& client : clients) {
            const bool is_of_server = client.server == static_cast<uint32_t>(pid);
            if (!is_of_server || client.id != inspected.report.id) continue;
            inspected.residence = client.residence;
            inspected.host_bytes = client.host_bytes();
          }
          text +=
              call.command.json ? format_inspected_json(inspected) : format_inspected(inspected);
        }
        call.done({text});
      });
}

void inspect(const CommandCall& call) {
  if (is_hidden_pid(call.command.client)) return call.done({kHiddenPidNote, 1});
  const auto wanted = parse_client_name(call.command.client);
  if (!wanted) {
    return call.done(
        {"inspect wants a session: its ID or its client's PID, as ps shows them\n", 1});
  }
  std::vector<ServerProcess*> servers = call.servers.all();
  std::erase_if(servers, [&](const ServerProcess* server) {
    const bool is_named = wanted->server.empty() || std::to_string(server->pid()) == wanted->server;
    return !is_named || !may_control(call.caller.uid, server->user().uid, geteuid());
  });
  wire::Query query;
  query.query = wire::QueryKind::kInspect;
  query.session = wanted->pid;
  query.id = wanted->id;
  call.servers.ask(servers, query, [call](const ServerPool::Answers& answers) {
    ServerPool::Answers found = answers;
    std::erase_if(found, [](const auto& one) { return !one.second.inspected.has_value(); });
    if (!found.empty()) return show_inspected(call, found);
    call.done({silent_servers(call, answers) + "There is no session " +
                   printable(call.command.client) + "\n",
               1});
  });
}

// For `openmps trace`, which reads what comes.
void trace(const CommandCall& call) {
  const Command& command = call.command;
  if (!command.records) {
    return call.done({"trace takes the connection for what is recorded: use openmps trace\n", 1});
  }
  wire::Query query;
  query.query = wire::QueryKind::kTrace;
  std::vector<ServerProcess*> servers = call.servers.all();
  std::erase_if(servers, [&call](const ServerProcess* server) {
    return !may_control(call.caller.uid, server->user().uid, geteuid());
  });
  if (!command.client.empty()) {
    if (is_hidden_pid(command.client)) return call.done({kHiddenPidNote, 1});
    const auto client = parse_client_name(command.client);
    if (!client) return call.done(usage_of(command, "the client \"" + command.client + "\""));
    const auto its_servers = servers_of_client(call, *client);
    if (!its_servers) return;
    servers = *its_servers;
    query.session = client->pid;
    query.id = client->id;
  }
  const auto answered = [call](const ServerPool::Answers& answers) {
    uint32_t sessions = 0;
    bool is_any = false;
    for (const auto& [pid, answer] : answers) {
      if (!answer.answered || answer.result == CUDA_ERROR_INVALID_VALUE) continue;
      if (answer.result == CUDA_ERROR_NOT_PERMITTED) {
        return call.done({format_text("Server %d is traced as often as may be\n", pid), 1});
      }
      is_any |= answer.result == CUDA_SUCCESS;
      sessions += answer.amount;
    }
    const std::string silent = silent_servers(call, answers);
    if (is_any) return call.done({silent + format_text("%u clients\n", sessions), 0, true});
    call.done({silent + (call.command.client.empty()
                             ? "No server of yours runs\n"
                             : "Client " + printable(call.command.client) + " not found\n"),
               1});
  };
  call.servers.ask(servers, query, answered, call.connection);
}

// The result is text, as with MPS, and the exit code 0 whatever it is.
void terminate(const CommandCall& call) {
  const Command& command = call.command;
  ServerProcess* server = call.servers.find(command.server);
  if (server == nullptr) {
    const std::string pid = printable(command.server);
    return call.done({"Server " + pid + " not found\nServer " + pid + " not found!\n1\n"});
  }
  if (is_hidden_pid(command.client)) return call.done({std::string(kHiddenPidNote) + "1\n"});
  const std::string unknown = "Client " + printable(command.client) + " not found!\n1\n";
  const auto client = parse_client_name(command.client);
  if (!client || (!client->server.empty() && client->server != command.server)) {
    return call.done({unknown});
  }
  if (server->is_silent()) return call.done({silence_of(*server) + "1\n"});
  wire::Query query;
  query.query = wire::QueryKind::kTerminate;
  query.session = client->pid;
  query.id = client->id;
  server->ask(query, [done = call.done, unknown](const ServerAnswer& answer) {
    // A server that has gone has no clients.
    done({answer.answered && answer.result != CUDA_SUCCESS ? unknown : "0\n"});
  });
}

// Of several servers one has the client.
void move(const CommandCall& call) {
  const Command& command = call.command;
  if (is_hidden_pid(command.client)) return call.done({kHiddenPidNote, 1});
  const auto client = parse_client_name(command.client);
  if (!client) return call.done(usage_of(command, "the client \"" + command.client + "\""));
  if (!wire::is_domain_name(command.value)) {
    return call.done(usage_of(command, "the domain \"" + command.value + "\""));
  }
  const auto servers = servers_of_client(call, *client);
  if (!servers) return;
  wire::Query query;
  query.query = wire::QueryKind::kMove;
  query.session = client->pid;
  query.id = client->id;
  fill_field(query.change.name, command.value);
  call.servers.ask(*servers, query, [call](const ServerPool::Answers& answers) {
    const std::string who = printable(call.command.client);
    for (const auto& [pid, answer] : answers) {
      if (!answer.answered || answer.result == CUDA_ERROR_INVALID_VALUE) continue;
      if (answer.result == CUDA_ERROR_NOT_PERMITTED) {
        return call.done(
            {"Client " + who + " stays: SMs are reserved for it, or its group has other members\n",
             1});
      }
      if (answer.result == CUDA_ERROR_MPS_MAX_CLIENTS_REACHED) {
        return call.done({"There are as many domains as a server may have\n", 1});
      }
      if (answer.stayed != 0) {
        return call.done({"Client " + who +
                              " stays where it is: its work does not end, it could not move "
                              "(ps: SURVIVES), or the domain has no worker (server.log)\n",
                          1});
      }
      if (answer.amount == 0) return call.done({"Client " + who + " has ended\n", 1});
      return call.done({});
    }
    call.done({silent_servers(call, answers) + "Client " + who + " not found\n", 1});
  });
}

// Asks the servers that may have the client, of which one has it. `refusal` says why that server
// has not done it, `outcome` what it has done.
void ask_for_client(const CommandCall& call, wire::QueryKind kind, wire::Residence residence,
                    std::string (*refusal)(CUresult result),
                    std::string (*outcome)(const std::string& client, const ServerAnswer& answer)) {
  const Command& command = call.command;
  if (is_hidden_pid(command.client)) return call.done({kHiddenPidNote, 1});
  const auto client = parse_client_name(command.client);
  if (!client) return call.done(usage_of(command, "the client \"" + command.client + "\""));
  // A mistyped option would suspend in the other way.
  if (!command.unexpected.empty()) return call.done(usage_of(command, command.unexpected));
  const auto servers = servers_of_client(call, *client);
  if (!servers) return;
  wire::Query query;
  query.query = kind;
  query.session = client->pid;
  query.id = client->id;
  query.change.residence = residence;
  const bool is_of_all = !client->server.empty() || servers->size() == call.servers.all().size();
  call.servers.ask(*servers, query, [=](const ServerPool::Answers& answers) {
    const std::string who = printable(call.command.client);
    for (const auto& [pid, answer] : answers) {
      if (!answer.answered || answer.result == CUDA_ERROR_INVALID_VALUE) continue;
      if (answer.result == CUDA_SUCCESS) return call.done({outcome(who, answer)});
      return call.done({"Client " + who + refusal(answer.result) + "\n", 1});
    }
    call.done({silent_servers(call, answers) + "Client " + who + " not found" +
                   (is_of_all ? "" : format_text(" in a server of user %u", call.caller.uid)) +
                   "\n",
               1});
  });
}

std::string cuda_error(CUresult result) {
  return ": the server refuses it with CUDA error " + std::to_string(static_cast<int>(result));
}

void suspend(const CommandCall& call) {
  const auto refusal = [](CUresult result) -> std::string {
    switch (result) {
      case CUDA_ERROR_NOT_READY:
        return " stays on the device: its work does not end (it was given two seconds)";
      case CUDA_ERROR_OUT_OF_MEMORY:
        return " stays on the device: the host has no memory for what it has there";
      case CUDA_ERROR_NOT_SUPPORTED:
        return " stays on the device: the daemon was started with OPENMPS_SUSPEND=off, or the "
               "server is of another build";
      default: return cuda_error(result);
    }
  };
  const auto residence = call.command.until_used ? wire::Residence::kHost : wire::Residence::kHeld;
  ask_for_client(call, wire::QueryKind::kSuspend, residence, refusal,
                 [](const std::string& client, const ServerAnswer& answer) {
                   return format_suspended(client, answer.moved_bytes, answer.stayed_bytes);
                 });
}

void resume(const CommandCall& call) {
  const auto refusal = [](CUresult result) -> std::string {
    switch (result) {
      case CUDA_ERROR_OUT_OF_MEMORY: return " does not go on: the device has no memory for it";
      case CUDA_ERROR_NOT_SUPPORTED:
        return " is not suspended: the daemon was started with OPENMPS_SUSPEND=off, or the server "
               "is of another build";
      default: return cuda_error(result);
    }
  };
  ask_for_client(call, wire::QueryKind::kResume, wire::Residence::kDevice, refusal,
                 [](const std::string&, const ServerAnswer&) { return std::string(); });
}

}  // namespace

std::span<const CommandInfo> client_commands() {
  static const CommandInfo kRows[] = {
      {.word = "inspect",
       .arguments = "<session> [--json]",
       .places = {&Command::client},
       .options = {&kJsonOption},
       .right = Right::kEverybody,  // of the caller's own sessions
       .run = inspect,
       .help = "What a session is at, by its ID or its client's PID",
       .manual =
           "What a session, named by its ID or its client's PID, is at: commands in its ring, what "
           "its executor does, which sessions it waits for and why, values that streams wait for "
           "(address, condition, since when), memory and other things that it has given up and "
           "when they are given back, fences that the GPU has not reached, host functions that "
           "streams wait for, threads that wait. The list of values is as old as it says: the "
           "executor renews it when it has no command. For root, the user of the daemon, and the "
           "session's own user."},
      {.word = "move_client",
       .arguments = "<PID or id:ID> <domain>",
       .places = {&Command::client, &Command::value},
       .right = Right::kDaemon,
       .run = move,
       .help = "The client goes on in another fault domain: in a worker whose clients are not\n"
               "reached by the faults of others. \"common\": among all others again",
       .manual =
           "Moves the running client, with all that it has, to a worker that only clients of that "
           "domain share, as soon as its work has ended (two seconds at most, four times). A "
           "domain's name is a word of up to 31 characters; it is made with its first client and "
           "ends some time after its last one. `common` is the domain of all clients that state no "
           "other one by `OPENMPS_DOMAIN`, `quarantine` that of programs that have faulted. Exit "
           "code 1, with the reason: the client stays where it is. For root and the user of the "
           "daemon."},
      {.word = "suspend",
       .arguments = "<PID or id:ID> [--until-used]",
       .places = {&Command::client},
       .options = {&kUntilUsedOption},
       .right = Right::kServerOwner,
       .run = suspend,
       .help = "The client's GPU memory goes to the host, and its GPU work waits until resume;\n"
               "--until-used: until its next GPU call",
       .manual =
           "Moves the memory that the running client has on the devices to the host as soon as its "
           "work has ended, for which it has two seconds, and says how much that is. The program "
           "goes on, but its GPU work waits until `resume`; with `--until-used` the memory comes "
           "back by itself with the program's next GPU call, and stays where it is if the program "
           "makes such calls all the time. Addresses stay as they are. Memory "
           "that other programs have, too, stays where it is. Exit code 1, with the reason: the "
           "client's memory is where it was. Users may suspend their own clients; root and the "
           "user of the daemon may suspend all."},
      {.word = "resume",
       .arguments = "<PID or id:ID>",
       .places = {&Command::client},
       .right = Right::kServerOwner,
       .run = resume,
       .help = "A suspended client goes on",
       .manual = "The GPU work of a suspended client goes on, as soon as its memory is on the "
                 "device again. Prints nothing. For those who may suspend it."},
      {.word = "trace",
       .arguments = "[<PID or id:ID>] [--record]",
       .places = {&Command::client},
       .options = {&kRecordOption},
       .right = Right::kServerOwner,
       .run = trace,
       .help = "For openmps trace: when the work of a client, or of all, runs on the GPUs",
       .manual = "What `openmps trace` asks for: the client, or all that the caller may control, "
                 "those that come later included, are recorded as long as that reads. What is "
                 "recorded comes by the connection of the command (`--record`), which is good for "
                 "nothing else then."},
      {.word = "terminate_client",
       .arguments = "<server PID> <client PID>",
       .places = {&Command::server, &Command::client},
       .right = Right::kServerOwner,
       .run = terminate,
       .help = "End a client's work, however long it would take; prints 0 when it has ended",
       .manual =
           "Ends what the client with that PID does with the GPU, without harm to others or to its "
           "process: from then on its calls fail with `CUDA_ERROR_MPS_CLIENT_TERMINATED`. Prints 0 "
           "when its running kernels have ended and what it held is free. For a kernel that does "
           "not end it waits for `OPENMPS_DRAIN_SECONDS`; then a new worker takes the clients that "
           "come, and the old one ends with those that it has. Users may end their own clients; "
           "root and the user of the daemon may end all."},
  };
  return kRows;
}

}  // namespace openmps::control
