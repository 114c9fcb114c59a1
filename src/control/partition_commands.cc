// SPDX-License-Identifier: Apache-2.0
// The commands about static partitions, of a daemon with -S.
#include <algorithm>

#include "base/text.h"
#include "control/command_call.h"
#include "control/format.h"

namespace openmps::control {
namespace {

void add_partition(const CommandCall& call) {
  const auto wanted = parse_unsigned(call.command.value, UINT32_MAX);
  if (!wanted) return call.done(usage_of(call.command, "the value \"" + call.command.value + "\""));
  call.servers.with_devices([call, chunks = static_cast<uint32_t>(*wanted)](
                                const std::vector<Device>& devices, const std::string& why_not) {
    if (devices.empty()) return call.done({"The devices are not known: " + why_not + "\n", 1});
    const std::string& uuid = call.command.device;
    const auto device = find_by_uuid(uuid, devices);
    if (!device) return call.done(usage_of(call.command, "the device UUID \"" + uuid + "\""));
    const auto made = call.servers.partitions().add(*device, devices[*device],
                                                    {.name = "", .device = uuid, .chunks = chunks});
    if (!made.ok()) {
      return call.done(
          {format_text("Failed to fulfill the requested SM partition of %u chunks, "
                       "error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n",
                       chunks)});
    }
    call.servers.keep_state();
    call.done({"Partition " + (*made)->name() + " created\n"});
  });
}

// No client is let in from here on, and the servers know those that are there: the question comes
// behind all that was admitted.
void remove_partition(const CommandCall& call) {
  const Command& command = call.command;
  StaticPartitions::Partition* partition = call.servers.partitions().find(command.value);
  if (partition == nullptr || command.device.empty() ||
      !partition->uuid.starts_with(command.device) || partition->is_leaving) {
    return call.done({"Partition " + printable(command.value) + " not found\n"});
  }
  partition->is_leaving = true;
  call.servers.ask(
      call.servers.all(), wire::QueryKind::kPartitions,
      [call, partition](const ServerPool::Answers& answers) {
        const std::string name = partition->name();
        for (const auto& [pid, answer] : answers) {
          const bool is_lost = !answer.answered && call.servers.is_there(pid);
          const bool has_it = call.servers.has_clients(*partition, {{pid, answer}});
          if (!is_lost && !has_it) continue;
          partition->is_leaving = false;
          return call.done(
              {is_lost ? silent_servers(call, answers)
                       : "Partition " + name + " in use. Terminate all clients before removing.\n",
               is_lost ? 1 : 0});
        }
        call.servers.partitions().remove(partition);
        call.servers.keep_state();
        call.done({"Partition " + name + " removed\n"});
      });
}

void change_partitions(const CommandCall& call) {
  const std::string& action = call.command.action;
  if (action == "rm") return remove_partition(call);
  if (action == "add") return add_partition(call);
  call.done(usage_of(call.command, "the action \"" + action + "\""));
}

void list_partitions(const CommandCall& call) {
  call.servers.with_devices([call](const std::vector<Device>& devices, const std::string& why_not) {
    if (devices.empty()) return call.done({"The devices are not known: " + why_not + "\n", 1});
    call.servers.ask(
        call.servers.all(), wire::QueryKind::kPartitions,
        [call, devices](const ServerPool::Answers& answers) {
          std::vector<DevicePartitions> lines;
          for (const Device& device : devices) {
            DevicePartitions& line =
                lines.emplace_back(DevicePartitions{device.uuid, device.chunk_sms, device.chunks});
            for (const StaticPartitions::Partition& one : call.servers.partitions().all()) {
              if (one.uuid != device.uuid) continue;
              line.partitions.push_back({.id = one.id,
                                         .chunks = one.chunks,
                                         .has_clients = call.servers.has_clients(one, answers),
                                         .is_shareable = one.place.lends != 0,
                                         .most_chunks = one.most_chunks});
            }
          }
          call.done({call.command.json ? format_partitions_json(lines)
                                       : format_partitions(lines) + silent_servers(call, answers)});
        });
  });
}

}  // namespace

std::span<const CommandInfo> partition_commands() {
  static const CommandInfo kRows[] = {
      {.word = "sm_partition",
       .arguments = "add <device UUID> <chunks> | rm <device UUID> <id>",
       .places = {&Command::action, &Command::device, &Command::value},
       .right = Right::kDaemon,
       .is_for_partitions = true,
       .run = change_partitions,
       .help = "With -S: keep so many chunks of SMs for clients that name the partition\n"
               "in CUDA_MPS_SM_PARTITION, or remove the partition",
       .manual =
           "Of a daemon with `-S`: makes a partition of so many chunks (8 SMs on a GPU of compute "
           "capability 9.0) of the device whose UUID begins so, and prints its name, <UUID>/<ID>; "
           "or removes it, unless it has clients, those included whose work has not ended yet. A "
           "program runs in the partition that it names in `CUDA_MPS_SM_PARTITION`, where the UUID "
           "may be cut. Several may share one; nobody else has its SMs, whether they are in use or "
           "not. It sees that device alone, with so many SMs, and percentages count for nothing. A "
           "program that names none, or one that is not there, fails to initialise CUDA with error "
           "915, and `control.log` says why. What can't be done is said with exit code 0, as by "
           "NVIDIA's daemon. For root and the user of the daemon."},
      {.word = "lspart",
       .arguments = "[--json]",
       .options = {&kJsonOption},
       .right = Right::kEverybody,
       .is_for_partitions = true,
       .run = list_partitions,
       .help = "With -S: partitions, and what is free",
       .manual = "Of a daemon with `-S`: the chunks and SMs of each device that are free and used, "
                 "and its partitions, with whether they have clients."},
  };
  return kRows;
}

}  // namespace openmps::control
