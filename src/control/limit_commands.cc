// SPDX-License-Identifier: Apache-2.0
// The commands about limits: the defaults of coming servers, what the coming clients of a server
// get, and the limits of running clients and groups. wire/client_limits.h describes each limit.
#include <algorithm>
#include <functional>

#include "base/text.h"
#include "control/client_name.h"
#include "control/command_call.h"
#include "control/format.h"

namespace openmps::control {
namespace {

// ---- Defaults, and those of a server ------------------------------------------------------------

// As NVIDIA's get commands print a limit.
Reply shown(const Settings& settings, const Command& command, wire::Limit limit) {
  const std::string text = wire::info_of(limit).answer(settings.value(limit, command.device));
  return {text.empty() ? "" : text + "\n"};
}

// What a set command prints differs from limit to limit, as with NVIDIA's daemon.
Reply set(Settings& settings, const Command& command, wire::Limit limit) {
  const bool is_valid = settings.set(limit, command.device, command.value);
  if (limit == wire::Limit::kPercentage) return shown(settings, command, limit);
  const bool is_told = limit == wire::Limit::kPriority && !is_valid;
  return {is_told ? "Invalid priority value - must be 0 or 1!\n" : ""};
}

template <wire::Limit limit>
void get_default(const CommandCall& call) {
  call.done(shown(call.servers.defaults(), call.command, limit));
}
template <wire::Limit limit>
void set_default(const CommandCall& call) {
  call.done(set(call.servers.defaults(), call.command, limit));
}
template <wire::Limit limit>
void get_of_server(const CommandCall& call) {
  ServerProcess* server = named_server(call);
  if (server != nullptr) call.done(shown(server->settings(), call.command, limit));
}
template <wire::Limit limit>
void set_of_server(const CommandCall& call) {
  ServerProcess* server = named_server(call);
  if (server != nullptr) call.done(set(server->settings(), call.command, limit));
}

// ---- Running clients and groups -----------------------------------------------------------------

// Makes the answer of a change from the server's result and amount (wire::Answer).
using MakeReply = std::function<Reply(CUresult result, uint32_t amount)>;

// Reads the client or, where `is_name` takes it, the name. Empty, or what is not understood.
template <typename IsName>
std::string read_subject(const Command& command, IsName&& is_name, wire::Query* query) {
  if (const auto client = parse_client_name(command.client)) {
    query->session = client->pid;
    query->id = client->id;
    return "";
  }
  const bool fits = command.client.size() < sizeof(query->change.name);
  if (!fits || !is_name(command.client)) return "the client \"" + command.client + "\"";
  fill_field(query->change.name, command.client);
  return "";
}

std::string read_device(const Command& command, const std::vector<Device>& devices,
                        wire::Change* change) {
  const auto device = find_device(command.device, devices);
  if (!device) return "the device \"" + command.device + "\"";
  change->device = *device;
  return "";
}

// Asks the servers that may have the client. Of several the first that has it carries out the
// change, and for a program or a group any. `is_of_all`: each server has a part of the group, so
// one that does not answer is named.
void ask_for_change(const CommandCall& call, const wire::Query& query, bool is_of_all,
                    const MakeReply& make_reply) {
  const auto client = parse_client_name(call.command.client).value_or(ClientName());
  const auto servers = servers_of_client(call, client);
  if (!servers) return;
  call.servers.ask(*servers, query,
                   [call, is_of_all, make_reply](const ServerPool::Answers& answers) {
                     CUresult result = CUDA_ERROR_INVALID_VALUE;
                     uint32_t amount = 0;
                     for (const auto& [pid, answer] : answers) {
                       if (!answer.answered) continue;
                       amount = std::max(amount, answer.amount);
                       if (result == CUDA_SUCCESS) continue;
                       if (answer.result != CUDA_ERROR_INVALID_VALUE) result = answer.result;
                     }
                     Reply reply = make_reply(result, amount);
                     const bool is_done = result == CUDA_SUCCESS && !is_of_all;
                     if (!is_done) reply.text = silent_servers(call, answers) + reply.text;
                     call.done(reply);
                   });
}

// What both kinds of change can be refused for.
Reply refusal(CUresult result, const std::string& who) {
  switch (result) {
    case CUDA_ERROR_INVALID_DEVICE: return {"There is no such device\n", 1};
    case CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION:
      return {"There are not so many SMs that others could do without\n", 1};
    case CUDA_ERROR_ALREADY_ACQUIRED:
      return {"SMs are reserved for " + who + " already: say 0 first\n", 1};
    case CUDA_ERROR_MPS_SERVER_NOT_READY: return {"The server is not ready yet\n", 1};
    default:
      return {"The server refuses it with CUDA error " + std::to_string(static_cast<int>(result)) +
                  "\n",
              1};
  }
}

// Of a group made from cgroups the name has the cgroup's path behind a colon.
bool is_group_name(std::string_view name) { return names_a_group(name.substr(0, name.find(':'))); }

void change_limit(const CommandCall& call, wire::Limit limit) {
  const Command& command = call.command;
  // The second condition: a number that is no PID is no group's name.
  const bool is_group =
      !parse_client_name(command.client) && !parse_unsigned(command.client, UINT32_MAX);
  if (is_group && call.servers.all().empty()) {
    return call.done(
        {"There is no server that could have the group: see start_server, or describe the group in "
         "the configuration\n",
         1});
  }
  if (is_hidden_pid(command.client)) return call.done({kHiddenPidNote, 1});
  call.servers.with_devices([call, limit, is_group](const std::vector<Device>& devices,
                                                    const std::string&) {
    const wire::LimitInfo& info = wire::info_of(limit);
    wire::Query query;
    query.query = wire::QueryKind::kChange;
    query.change.limit = limit;
    std::string wrong = read_subject(call.command, is_group_name, &query);
    if (wrong.empty() && info.is_per_device) {
      wrong = read_device(call.command, devices, &query.change);
    }
    const auto value = info.parse(call.command.value);
    if (wrong.empty() && !value) wrong = "the value \"" + call.command.value + "\"";
    if (!wrong.empty()) return call.done(usage_of(call.command, wrong));
    query.change.value = *value;
    const std::string who = printable(call.command.client);
    ask_for_change(call, query, is_group, [who, is_group](CUresult result, uint32_t members) {
      if (result == CUDA_ERROR_INVALID_VALUE) {
        return Reply{(is_group ? "Group " : "Client ") + who + " not found\n", 1};
      }
      if (result != CUDA_SUCCESS) return refusal(result, who);
      if (!is_group || members != 0) return Reply{};
      return Reply{"Group " + who + " has no members yet; the limit is for those that will join\n"};
    });
  });
}

template <wire::Limit limit>
void change(const CommandCall& call) {
  change_limit(call, limit);
}

void reserve_sms(const CommandCall& call) {
  if (call.servers.requires_partitions()) {
    return call.done({"With static partitions (-S) SMs are kept by sm_partition\n", 1});
  }
  if (is_hidden_pid(call.command.client)) return call.done({kHiddenPidNote, 1});
  call.servers.with_devices([call](const std::vector<Device>& devices, const std::string&) {
    wire::Query query;
    query.query = wire::QueryKind::kReserve;
    query.change.lends = call.command.lend ? 1 : 0;
    const auto is_program = [](std::string_view name) { return !name.empty(); };
    std::string wrong = read_subject(call.command, is_program, &query);
    if (wrong.empty()) wrong = read_device(call.command, devices, &query.change);
    const auto sms = parse_unsigned(call.command.value, UINT32_MAX);
    if (wrong.empty() && !sms) wrong = "the value \"" + call.command.value + "\"";
    if (!wrong.empty()) return call.done(usage_of(call.command, wrong));
    query.change.sms = static_cast<uint32_t>(*sms);
    const std::string who = printable(call.command.client);
    const bool is_end = *sms == 0;
    ask_for_change(call, query, false, [who, is_end](CUresult result, uint32_t kept) {
      if (result == CUDA_ERROR_INVALID_VALUE) {
        return Reply{
            is_end ? "No SMs are reserved for " + who + "\n" : "Client " + who + " not found\n", 1};
      }
      if (result != CUDA_SUCCESS) return refusal(result, who);
      if (kept == 0) return Reply{};
      return Reply{std::to_string(kept) + " SMs are reserved for " + who + "\n"};
    });
  });
}

void list_groups(const CommandCall& call) {
  call.servers.ask(
      call.servers.all(), wire::QueryKind::kGroups, [call](const ServerPool::Answers& answers) {
        std::vector<GroupLine> groups;
        for (const auto& [pid, answer] : answers) {
          groups.insert(groups.end(), answer.groups.begin(), answer.groups.end());
        }
        call.done({call.command.json ? format_groups_json(groups)
                                     : format_groups(groups) + silent_servers(call, answers)});
      });
}

}  // namespace

std::span<const CommandInfo> limit_commands() {
  using wire::Limit;
  static const CommandInfo kRows[] = {
      {.word = "get_default_active_thread_percentage",
       .right = Right::kEverybody,
       .run = get_default<Limit::kPercentage>},
      {.word = "set_default_active_thread_percentage",
       .arguments = "<percentage>",
       .places = {&Command::value},
       .right = Right::kDaemon,
       .run = set_default<Limit::kPercentage>,
       .manual = "The percentage of the SMs that each client of a coming server may use, in whole "
                 "steps of the device, one at least. A program that starts later is told so many "
                 "SMs, and its kernels run on no others."},
      {.word = "get_active_thread_percentage",
       .arguments = "<server PID>",
       .places = {&Command::server},
       .right = Right::kEverybody,
       .run = get_of_server<Limit::kPercentage>},
      {.word = "set_active_thread_percentage",
       .arguments = "<server PID> <percentage>",
       .places = {&Command::server, &Command::value},
       .right = Right::kDaemon,
       .run = set_of_server<Limit::kPercentage>,
       .manual = "The percentage for the coming clients of a server."},
      {.word = "get_default_device_pinned_mem_limit",
       .arguments = "<device>",
       .places = {&Command::device},
       .right = Right::kEverybody,
       .run = get_default<Limit::kMemory>},
      {.word = "set_default_device_pinned_mem_limit",
       .arguments = "<device> <n>G|<n>M",
       .places = {&Command::device, &Command::value},
       .right = Right::kDaemon,
       .run = set_default<Limit::kMemory>,
       .manual = "How much memory of a device, named by ordinal or UUID, each client of coming "
                 "servers may have; `0G` lifts the limit."},
      {.word = "get_device_pinned_mem_limit",
       .arguments = "<server PID> <device>",
       .places = {&Command::server, &Command::device},
       .right = Right::kEverybody,
       .run = get_of_server<Limit::kMemory>},
      {.word = "set_device_pinned_mem_limit",
       .arguments = "<server PID> <device> <n>G|<n>M",
       .places = {&Command::server, &Command::device, &Command::value},
       .right = Right::kDaemon,
       .run = set_of_server<Limit::kMemory>,
       .manual = "The limit of memory for the coming clients of a server."},
      {.word = "get_default_client_priority",
       .right = Right::kEverybody,
       .run = get_default<Limit::kPriority>},
      {.word = "set_default_client_priority",
       .arguments = "0|1",
       .places = {&Command::value},
       .right = Right::kDaemon,
       .run = set_default<Limit::kPriority>,
       .manual = "For clients that come from now on: 0 is normal, 1 below normal. Where SMs are "
                 "short, kernels of clients below normal come behind those of the others."},
      {.word = "set_client_active_thread_percentage",
       .arguments = "<PID, id:ID or group> <percentage above 0 up to 100>",
       .places = {&Command::client, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kPercentage>,
       .help = "Of a running client, from now on; so are the next three"},
      {.word = "set_client_sm_count",
       .arguments = "<PID, id:ID or group> <device> <SMs, 0: no limit>",
       .places = {&Command::client, &Command::device, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kSmCount>,
       .help = "At most so many; 0: as many as its percentage says"},
      {.word = "set_client_device_pinned_mem_limit",
       .arguments = "<PID, id:ID or group> <device> <512M or 2G, 0G: no limit>",
       .places = {&Command::client, &Command::device, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kMemory>},
      {.word = "set_client_priority",
       .arguments = "<PID, id:ID or group> <0: normal, 1: below normal>",
       .places = {&Command::client, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kPriority>,
       .help = "With the name of a group for the PID: of all its members together",
       .manual =
           "What the client with that PID may have, from now on: for whatever it launches next, in "
           "streams and executable graphs that it has already. They print nothing. 0 SMs: as many "
           "as its percentage says; a limit of 0G: none. What the client has been told of the "
           "device (the number of SMs, say) does not change. A cooperative launch whose blocks do "
           "not fit into fewer SMs is refused (720), and executable graphs with cooperative "
           "kernels "
           "or conditional nodes keep the SMs that they were made for. Of a group: what all its "
           "members have together, those that come later, too, in each server that is there. For "
           "root and the user of the daemon."},
      {.word = "set_client_work_time_limit",
       .arguments = "<PID, id:ID or group> <seconds, 0: no limit>",
       .places = {&Command::client, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kWorkTime>,
       .help = "How long work that the GPU has may take without any of it ending",
       .manual =
           "If nothing of a stream's work ends for longer than that, as behind a kernel that never "
           "ends, its client is ended with `CUDA_ERROR_LAUNCH_TIMEOUT`; the others go on in "
           "another "
           "worker. The time includes what the work waits for SMs that others have; work that "
           "waits "
           "for another stream, a value or the program does not count. 0.1 to 86400 seconds. The "
           "configuration and the environment of the daemon state "
           "the limit of all clients, and a program may lower it (OPENMPS_WORK_TIME_LIMIT)."},
      {.word = "set_client_borrow_sms",
       .arguments = "<PID, id:ID or group> true|false",
       .places = {&Command::client, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kBorrow>,
       .help = "More SMs than its percentage or number while others have no work",
       .manual =
           "With `true` a client or a group has all SMs that nobody has reserved while no other "
           "client has had work on the device for 20 ms, and its own part again as soon as one "
           "has: after the kernels that run, and what has been queued for half a millisecond."},
      {.word = "set_client_weight",
       .arguments = "<PID, id:ID or group> <0.01 to 100, 0: none>",
       .places = {&Command::client, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kWeight>,
       .help = "Its part of the time on SMs that others want, too",
       .manual =
           "Where clients of one rank want more SMs than there are, each gets time on them in "
           "proportion to its weight (all members of a group with a weight together); 1 is usual. "
           "A program states its own in `OPENMPS_WEIGHT`, up to what the operator has stated."},
      {.word = "set_client_guaranteed_memory",
       .arguments = "<PID, id:ID or group> <device> <512M or 2G, 0G: all>",
       .places = {&Command::client, &Command::device, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kGuaranteedMemory>,
       .help = "Its memory that stays on the device while it is idle",
       .manual =
           "Memory of the device that stays there while the client, or all of the group, is idle. "
           "What it has beyond is borrowed: it goes to the host when another program needs memory, "
           "and comes back with the client's next GPU call. 0G: none is stated, and all of its "
           "memory stays."},
      {.word = "set_client_on_pressure",
       .arguments = "<PID, id:ID or group> oom|wait|terminate|none",
       .places = {&Command::client, &Command::value},
       .right = Right::kDaemon,
       .run = change<Limit::kOnPressure>,
       .help = "When memory is short and none of those that have borrowed it is idle",
       .manual =
           "What becomes of the client's allocation for which a device has no memory while others "
           "have more than their guaranteed memory, but none of them is idle: `oom`: it fails, as "
           "without this; `wait`: it waits until one is; `terminate`: the client that has borrowed "
           "most is ended. `none`: not stated."},
      {.word = "get_group_list",
       .arguments = "[--json]",
       .options = {&kJsonOption},
       .right = Right::kEverybody,
       .run = list_groups,
       .help = "Groups of clients, what they may have together and what they have",
       .manual = "A line for each group of clients (see GROUPS): its server, members, SMs, "
                 "priority, and for each device the memory that its members hold and may hold "
                 "together."},
      {.word = "reserve_sms",
       .arguments = "<PID, id:ID or program> <device> <SMs, 0: no longer> [--lend]",
       .places = {&Command::client, &Command::device, &Command::value},
       .options = {&kLendOption},
       .right = Right::kDaemon,
       .run = reserve_sms,
       .help = "For it alone, until it ends or 0 is said; with --lend, others have them\n"
               "while it has no work",
       .manual =
           "Keeps SMs of a device for a process, or for all clients of that program (the file name "
           "of their command), those that come later, too. Prints how many these are, whole groups "
           "(8 on a GPU of compute capability 9.0). All others keep off them; with `--lend` they "
           "have them while nothing has been launched there for a second. 0 SMs: no longer. What "
           "is reserved for a process goes with it. Exit code 1: there is no such client or "
           "device, or the others would keep too few SMs. For root and the user of the daemon."},
  };
  return kRows;
}

}  // namespace openmps::control
